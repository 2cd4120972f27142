# SPDX-License-Identifier: Apache-2.0
"""Least number of replicas whose time to first token, or wait, meets a limit at a percentile."""

import enum
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aicjax._types import FloatScalar
from aicjax.fleet.dispersion import service_spread
from aicjax.fleet.least_count import least_count
from aicjax.fleet.reference_queueing import reference_replicas, reference_wait
from aicjax.fleet.rules import SANE, Rules
from aicjax.fleet.service_times import ServiceLaw, mean_prefill_s, moments
from aicjax.fleet.ttft import ttft_quantile_s, ttft_survival
from aicjax.fleet.waiting import WaitLaw, survival, wait_law, wait_quantile_s

DEFAULT_RHO_MAX = 0.85
MOST_REPLICAS = 1 << 20  # that are looked at; float32 counts to 1 << 24


class Verdict(enum.IntEnum):
    """What a sizing, or a check of a stated count, found."""

    MET = 0  # the limits hold
    OVERLOADED = 1  # the rate is not below capacity: the queue grows without bound
    MISSED = 2  # stable, but slower than a limit
    PREFILL_TOO_SLOW = 3  # requests that do not wait miss the limit: no count helps
    COUNT_TOO_LARGE = 4  # more replicas than are looked at would be needed
    NO_SLOTS = 5  # a replica has no room for one request of this context


class Target(NamedTuple):
    """What a pool must meet.

    Attributes:
        limit_s: Limit on the TTFT at the percentile.
        quantile: The percentile as a share, such as 0.99.
        rho_max: Largest share of the slots that may be busy.
        wait_limit_s: Limit on the wait for a slot at the percentile.
    """

    limit_s: FloatScalar
    quantile: FloatScalar = 0.99
    rho_max: FloatScalar = DEFAULT_RHO_MAX
    wait_limit_s: FloatScalar = jnp.inf


class PoolLoad(NamedTuple):
    """State of a pool with a number of replicas.

    Attributes:
        replicas: Replicas.
        utilization: Share of the slots that are busy; 1 or more in overload.
        wait_probability: Probability that a request waits.
        wait_s: Wait at the percentile; infinite in overload.
        ttft_s: TTFT at the percentile; infinite in overload.
        verdict: A `Verdict`.
    """

    replicas: Float[Array, ""]
    utilization: Float[Array, ""]
    wait_probability: Float[Array, ""]
    wait_s: Float[Array, ""]
    ttft_s: Float[Array, ""]
    verdict: Int[Array, ""]


def pool_load(
    replicas: FloatScalar,
    slots: FloatScalar,
    rate_per_s: FloatScalar,
    service: ServiceLaw,
    target: Target,
    arrival_cv2: FloatScalar = 1.0,
    *,
    rules: Rules = SANE,
) -> PoolLoad:
    """How a stated number of replicas does, differentiable in real counts.

    Args:
        replicas: Replicas, all up.
        slots: Requests that a replica runs at once.
        rate_per_s: Arrivals at the pool.
        service: Law of service times and prefills.
        target: Limits; `rho_max` is not read.
        arrival_cv2: Squared coefficient of variation of the times between arrivals.
        rules: `two_moment_wait` takes the wait from two moments, without arrivals' variability, adds the mean prefill
            to its quantile and compares the wait alone with `limit_s`.
    """
    mean_s, _ = moments(service)
    count, slots = jnp.asarray(replicas, float), jnp.asarray(slots, float)
    servers = count * slots
    if rules.two_moment_wait:
        wait = reference_wait(servers, rate_per_s, *moments(service))
        wait_s = wait_quantile_s(wait, target.quantile)
        ttft_s, late = wait_s + mean_prefill_s(service), wait_s > target.limit_s
    else:
        wait = wait_law(servers, rate_per_s, service, arrival_cv2)
        wait_s = wait_quantile_s(wait, target.quantile)
        ttft_s = ttft_quantile_s(wait, service, target.quantile)
        late = ~_meets(wait, service, target)
    offered = jnp.asarray(rate_per_s, float) * mean_s
    verdict = jnp.where(offered >= servers, Verdict.OVERLOADED, jnp.where(late, Verdict.MISSED, Verdict.MET))
    return PoolLoad(
        replicas=count,
        utilization=offered / jnp.where(servers > 0, servers, 1.0),
        wait_probability=wait.probability,
        wait_s=wait_s,
        ttft_s=ttft_s,
        verdict=jnp.where(slots > 0, verdict, Verdict.NO_SLOTS),
    )


def least_replicas(
    slots: FloatScalar,
    rate_per_s: FloatScalar,
    service: ServiceLaw,
    target: Target,
    arrival_cv2: FloatScalar = 1.0,
    *,
    availability: FloatScalar = 1.0,
    rules: Rules = SANE,
) -> PoolLoad:
    """The least replicas that meet a target, and what they do; one at least.

    The count is the least whose utilisation is at most `rho_max` and whose limits hold. It is not raised above the
    former where requests that do not wait miss the limit already, since no count helps.

    Args:
        slots: Requests that a replica runs at once.
        rate_per_s: Arrivals at the pool.
        service: Law of service times and prefills.
        target: Limits.
        arrival_cv2: Squared coefficient of variation of the times between arrivals.
        availability: Share of the time that a replica is up, in (0, 1]; so many more are bought, and the state is that
            of those which are up.
        rules: As in `pool_load`; under `two_moment_wait` there is a spare replica, whatever the limit.

    Returns:
        The state with the replicas that are bought.
    """
    slots = jnp.asarray(slots, float)
    room = jnp.where(slots > 0, slots, 1.0)
    hopeless = beyond = jnp.zeros((), bool)
    if rules.two_moment_wait:
        mean_s, cv2 = moments(service)
        count = reference_replicas(rate_per_s, room / mean_s, cv2, room, target)
    else:
        spread = service_spread(service)
        alone = jnp.sum(jnp.where(service.prefill_s > target.limit_s, service.weight, 0.0))
        hopeless = alone > 1.0 - jnp.asarray(target.quantile, float)

        def meets(count: Float[Array, ""]) -> Bool[Array, ""]:
            wait = wait_law(count * room, rate_per_s, spread, arrival_cv2)
            return hopeless | (wait.stable & _meets(wait, service, target))

        by_rho = jnp.ceil(rate_per_s * spread.mean_s / room / target.rho_max)
        beyond = by_rho > MOST_REPLICAS
        count = least_count(meets, jnp.clip(by_rho, 1.0, MOST_REPLICAS), jnp.asarray(MOST_REPLICAS, by_rho.dtype))
    found = pool_load(count, slots, rate_per_s, service, target, arrival_cv2, rules=rules)
    bought = jnp.ceil(count / availability)
    missed = (found.verdict != Verdict.MET) | beyond | (bought > MOST_REPLICAS)
    reason = jnp.where(hopeless, Verdict.PREFILL_TOO_SLOW, Verdict.COUNT_TOO_LARGE)
    verdict = jnp.where(missed & (found.verdict != Verdict.NO_SLOTS), reason, found.verdict)
    return found._replace(replicas=jnp.minimum(bought, MOST_REPLICAS), verdict=verdict)


def _meets(wait: WaitLaw, service: ServiceLaw, target: Target) -> Bool[Array, ""]:
    """Whether few enough requests are later than the limits: one pass over the law, no quantile."""
    beyond = 1.0 - jnp.asarray(target.quantile, float)
    late = ttft_survival(wait, service, target.limit_s) > beyond
    return ~late & (survival(wait, target.wait_limit_s) <= beyond)
