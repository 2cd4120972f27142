# SPDX-License-Identifier: Apache-2.0
"""A queue whose rate of arrivals changes in time, followed through time: how full it is, and how long requests wait."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.arrivals import RatePattern

_LEAST_VARIANCE = 1e-6  # of the requests in the system, where nothing is random yet


class Transient(NamedTuple):
    """State of a queue at a row of times.

    Attributes:
        time_s: Times [time].
        rate_per_s: Arrivals just before [time].
        in_system: Mean number of requests that wait or are served [time].
        deviation: Its standard deviation [time].
        servers, mean_s: As given.
    """

    time_s: Float[Array, " time"]
    rate_per_s: Float[Array, " time"]
    in_system: Float[Array, " time"]
    deviation: Float[Array, " time"]
    servers: Float[Array, ""]
    mean_s: Float[Array, ""]

    @property
    def utilization(self) -> Float[Array, " time"]:
        """Share of the servers that are busy."""
        return (self.in_system - _beyond(self.in_system, self.deviation, self.servers)) / self.servers

    @property
    def wait_s(self) -> Float[Array, " time"]:
        """Mean wait of a request that comes at each time [s]."""
        ahead = _beyond(self.in_system, self.deviation, self.servers - 0.5) + 0.5 * self.later_than(0.0)
        return ahead * self.mean_s / self.servers

    def later_than(self, wait_s: FloatScalar) -> Float[Array, " time"]:
        """Share of the requests of each time that wait longer."""
        most = self.servers * (1.0 + wait_s / self.mean_s) - 0.5
        return norm.cdf((self.in_system - most) / self.deviation)


def transient_queue(
    pattern: RatePattern,
    mean_s: FloatScalar,
    servers: FloatScalar,
    *,
    arrival_cv2: FloatScalar = 1.0,
    in_system: FloatScalar = 0.0,
    cycles: int = 1,
    steps: int = 8,
) -> Transient:
    """Mean and variance of the requests in the system, as of M/M/c with a normal number of them.

        mean' = rate - E min(Q, c) / m,     variance' = cv2 rate + E min(Q, c) / m - 2 variance P(Q < c) / m

    Overload that passes is followed through. Differentiable in rates, mean service time and servers. With exponential
    service and 40 servers the mean is within 2 %, and 10 % while an overload drains through full load, where the number
    is far from normal: mean waits are then wrong by up to a twentieth of the worst. Other laws of service differ in how
    fast a queue settles.

    Args:
        pattern: Arrivals; pieces of constant rate.
        mean_s: Mean service time m.
        servers: Servers c, real.
        arrival_cv2: Squared coefficient of variation of the times between arrivals at a constant rate.
        in_system: Requests at the beginning.
        cycles: Repetitions of the pattern. Static.
        steps: Steps of a piece: at least one for each mean service time. Static.

    Returns:
        The states at the end of each step.
    """
    servers, mean_s = jnp.asarray(servers, float), jnp.asarray(mean_s, float)
    step_s = jnp.tile(jnp.repeat(jnp.asarray(pattern.durations_s, float) / steps, steps), cycles)
    rates = jnp.tile(jnp.repeat(jnp.asarray(pattern.rates_per_s, float), steps), cycles)

    def slope(state: Array, rate: Array) -> Array:
        mean, variance = state[0], jnp.maximum(state[1], _LEAST_VARIANCE)
        deviation = jnp.sqrt(variance)
        served = (mean - _beyond(mean, deviation, servers)) / mean_s
        calms = 2.0 * variance * norm.cdf((servers - mean) / deviation) / mean_s
        return jnp.stack([rate - served, arrival_cv2 * rate + served - calms])

    def step(state: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        step_s, rate = now
        first = slope(state, rate)
        second = slope(state + step_s / 2.0 * first, rate)
        third = slope(state + step_s / 2.0 * second, rate)
        fourth = slope(state + step_s * third, rate)
        after = state + step_s / 6.0 * (first + 2.0 * second + 2.0 * third + fourth)
        after = jnp.maximum(after, jnp.asarray([0.0, _LEAST_VARIANCE], after.dtype))
        return after, after

    start = jnp.stack([jnp.asarray(in_system, float), jnp.asarray(_LEAST_VARIANCE, float)]).astype(rates.dtype)
    states = jax.lax.scan(step, start, (step_s, rates))[1]
    return Transient(jnp.cumsum(step_s), rates, states[:, 0], jnp.sqrt(states[:, 1]), servers, mean_s)


def _beyond(mean: Array, deviation: Array, level: Array) -> Array:
    """Mean of what a normal number exceeds a level by."""
    place = (mean - level) / deviation
    return deviation * norm.pdf(place) + (mean - level) * norm.cdf(place)
