# SPDX-License-Identifier: Apache-2.0
"""Least number of replicas whose wait or time to first token meets a limit at a percentile."""

import enum
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from aicjax._types import FloatScalar
from aicjax.fleet.service import ServiceLaw, moments
from aicjax.fleet.ttft import ttft_quantile_s
from aicjax.fleet.waiting import wait_law, wait_quantile_s

DEFAULT_RHO_MAX = 0.85


class Verdict(enum.IntEnum):
    """What a sizing or a check of a stated count found."""

    MET = 0  # the limit holds
    OVERLOADED = 1  # the rate is not below capacity: the queue grows without bound
    MISSED = 2  # stable, but slower than the limit
    PREFILL_TOO_SLOW = 3  # a request alone misses the limit: no count helps
    COUNT_TOO_LARGE = 4  # more replicas than `most` would be needed


class Target(NamedTuple):
    """What a pool must meet.

    Attributes:
        limit_s: Limit on the percentile, of the TTFT or of the wait.
        quantile: The percentile as a share, such as 0.99.
        rho_max: Largest share of the slots that may be busy.
        on_wait: Limit the wait alone, not the TTFT: the fleet reference's target.
    """

    limit_s: FloatScalar
    quantile: FloatScalar = 0.99
    rho_max: FloatScalar = DEFAULT_RHO_MAX
    on_wait: bool = False


class PoolLoad(NamedTuple):
    """State of a pool with a stated number of replicas.

    Attributes:
        replicas: Replicas.
        utilization: Share of the slots that are busy.
        wait_probability: Probability that a request waits.
        wait_s: Wait at the percentile.
        ttft_s: TTFT at the percentile.
        verdict: A `Verdict`.
    """

    replicas: Float[Array, ""]
    utilization: Float[Array, ""]
    wait_probability: Float[Array, ""]
    wait_s: Float[Array, ""]
    ttft_s: Float[Array, ""]
    verdict: Int[Array, ""]


def node_availability(failures_per_day: FloatScalar, repair_hours: FloatScalar) -> Float[Array, ""]:
    """Share of the time that a node is up: 1 / (1 + failures per day x repair time in days)."""
    return 1.0 / (1.0 + jnp.asarray(failures_per_day, float) * repair_hours / 24.0)


def pool_load(
    replicas: FloatScalar,
    slots: FloatScalar,
    rate_per_s: FloatScalar,
    service: ServiceLaw,
    target: Target,
    arrival_cv2: FloatScalar = 1.0,
) -> PoolLoad:
    """How a stated number of replicas does; real counts are allowed, so that it can be differentiated."""
    mean_s, _ = moments(service)
    replicas = jnp.asarray(replicas, float)
    servers = replicas * slots
    wait = wait_law(servers, rate_per_s, service, arrival_cv2)
    wait_s = wait_quantile_s(wait, target.quantile)
    ttft_s = ttft_quantile_s(wait, service, target.quantile)
    rho = rate_per_s * mean_s / servers
    late = (wait_s if target.on_wait else ttft_s) > target.limit_s
    verdict = jnp.where(rho >= 1.0, Verdict.OVERLOADED, jnp.where(late, Verdict.MISSED, Verdict.MET))
    return PoolLoad(replicas, rho, wait.probability, wait_s, ttft_s, verdict)


def least_replicas(
    slots: FloatScalar,
    rate_per_s: FloatScalar,
    service: ServiceLaw,
    target: Target,
    arrival_cv2: FloatScalar = 1.0,
    *,
    availability: FloatScalar = 1.0,
    most: int = 1 << 20,
) -> PoolLoad:
    """The least replicas that meet a target, by halving over counts."""
    mean_s, _ = moments(service)
    floor = jnp.maximum(jnp.ceil(rate_per_s * mean_s / (slots * target.rho_max)), 1.0)

    def halve(_: int, ends):
        low, high = ends
        middle = jnp.floor((low + high) / 2.0)
        met = pool_load(middle, slots, rate_per_s, service, target, arrival_cv2).verdict == Verdict.MET
        return jnp.where(met, low, middle + 1.0), jnp.where(met, middle, high)

    _, found = jax.lax.fori_loop(0, most.bit_length(), halve, (floor, floor + most))
    return pool_load(jnp.ceil(found / availability), slots, rate_per_s, service, target, arrival_cv2)
