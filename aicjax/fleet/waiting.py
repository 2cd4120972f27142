# SPDX-License-Identifier: Apache-2.0
"""Law of the wait for a slot when requests arrive at a stated rate and are served in order of arrival."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.erlang import log_erlang_c
from aicjax.fleet.service import ServiceLaw, moments


class WaitLaw(NamedTuple):
    """P(wait > t) = probability x sum of share x exp(-decay t); never stable where the probability is 1.

    Attributes:
        probability: Probability of waiting at all.
        shares: Weights of the exponentials, sum 1 [part].
        decay_per_s: Their rates; 0 where the queue grows without bound [part].
    """

    probability: Float[Array, ""]
    shares: Float[Array, " part"]
    decay_per_s: Float[Array, " part"]


def survival(law: WaitLaw, wait_s: FloatScalar) -> Float[Array, ""]:
    """P(wait > wait_s)."""
    return law.probability * jnp.sum(law.shares * jnp.exp(-law.decay_per_s * wait_s))


def mean_wait_s(law: WaitLaw) -> Float[Array, ""]:
    """Mean wait [s]; infinite where the queue grows without bound."""
    return law.probability * jnp.sum(law.shares / law.decay_per_s)


def kimura_wait(
    servers: FloatScalar,
    rate_per_s: FloatScalar,
    mean_s: FloatScalar,
    service_cv2: FloatScalar,
    arrival_cv2: FloatScalar = 1.0,
) -> WaitLaw:
    """The two-moment law: Erlang's C, then one exponential of rate 2 (c mu - rate) / (arrival_cv2 + service_cv2).

    Args:
        servers: Servers, real.
        rate_per_s: Arrivals.
        mean_s: Mean service time.
        service_cv2: Squared coefficient of variation of service times.
        arrival_cv2: ... of the times between arrivals, 1 for Poisson.
    """
    rate, servers = jnp.asarray(rate_per_s, float), jnp.asarray(servers, float)
    spare = jnp.maximum(servers / mean_s - rate, 0.0)
    decay = 2.0 * spare / jnp.maximum(arrival_cv2 + service_cv2, 1e-9)
    return WaitLaw(jnp.exp(log_erlang_c(servers, rate * mean_s)), jnp.ones(1), decay[None])


def wait_law(
    servers: FloatScalar, rate_per_s: FloatScalar, service: ServiceLaw, arrival_cv2: FloatScalar = 1.0
) -> WaitLaw:
    """Law of the wait in GI/G/c from the whole law of service times."""
    mean_s, cv2 = moments(service)
    return kimura_wait(servers, rate_per_s, mean_s, cv2, arrival_cv2)


def wait_quantile_s(law: WaitLaw, quantile: FloatScalar) -> Float[Array, ""]:
    """Wait that a share `quantile` of the requests does not exceed [s]; 0 where fewer wait, infinite in overload."""
    ratio = law.probability / (1.0 - quantile)
    waits = ratio > 1.0
    value = jnp.log(jnp.where(waits, ratio, 1.0)) / law.decay_per_s[0]
    return jnp.where(waits, value, 0.0)
