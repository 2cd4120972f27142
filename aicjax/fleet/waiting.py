# SPDX-License-Identifier: Apache-2.0
"""Law of the wait for a slot when requests arrive at a stated rate and are served in order of arrival."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from aicjax._types import Array as AnyArray
from aicjax._types import FloatScalar
from aicjax.fleet.dispersion import ServiceSpread, service_spread
from aicjax.fleet.erlang import log_erlang_c
from aicjax.fleet.fleet_constants import WaitConstants, load_fleet_constants
from aicjax.fleet.service_times import ServiceLaw

WAIT_KNOTS = 48
_SHORTEST, _LONGEST = 0.02, 25.0  # waits of the table, of the least and of the largest mean wait by dispersion
_LEAST_CV2 = 1e-6


class WaitLaw(NamedTuple):
    """P(wait > t) = probability x exp(-exponent(t)); the exponent is linear between its knots and beyond the last.

    Attributes:
        probability: Probability of waiting at all; 1 where the queue grows without bound.
        wait_s: Knots, ascending from 0 [knot].
        exponent: Ascending from 0; 0 everywhere where the queue grows without bound [knot].
    """

    probability: Float[Array, ""]
    wait_s: Float[Array, " knot"]
    exponent: Float[Array, " knot"]

    @property
    def stable(self) -> Bool[Array, ""]:
        """Whether the queue stays finite."""
        return self.exponent[-1] > 0


def survival(law: WaitLaw, wait_s: Float[AnyArray, "*axes"] | float | np.floating) -> Float[Array, "*axes"]:
    """P(wait > wait_s), for wait_s >= 0."""
    exponent = jnp.where(law.stable, _line(wait_s, law.wait_s, law.exponent), 0.0)
    return law.probability * jnp.exp(-exponent)


def wait_quantile_s(law: WaitLaw, quantile: FloatScalar) -> Float[Array, ""]:
    """Wait that a share `quantile` of the requests does not exceed [s]; 0 where fewer wait, infinite in overload."""
    ratio = law.probability / (1.0 - jnp.asarray(quantile, float))
    reached = jnp.log(jnp.maximum(ratio, 1.0))
    stable = law.stable
    exponent = jnp.where(stable, law.exponent, jnp.arange(law.exponent.size, dtype=law.exponent.dtype))
    return jnp.where(stable, _line(reached, exponent, law.wait_s), jnp.inf)


def mean_wait_s(law: WaitLaw) -> Float[Array, ""]:
    """Mean wait [s]; infinite in overload."""
    stable = law.stable
    exponent = jnp.where(stable, law.exponent, jnp.arange(law.exponent.size, dtype=law.exponent.dtype))
    left = jnp.exp(-exponent)
    slopes = jnp.diff(exponent) / jnp.diff(law.wait_s)
    mean_s = jnp.sum((left[:-1] - left[1:]) / slopes) + left[-1] / slopes[-1]
    return jnp.where(stable, law.probability * mean_s, jnp.inf)


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
    spare = servers / mean_s - rate
    stable = spare > 0
    decay = 2.0 * jnp.where(stable, spare, 1.0) / jnp.maximum(arrival_cv2 + service_cv2, _LEAST_CV2)
    knots = jnp.stack([jnp.zeros_like(decay), 1.0 / decay])
    exponent = jnp.where(stable, 1.0, 0.0).astype(decay.dtype) * jnp.arange(2, dtype=decay.dtype)
    return WaitLaw(jnp.exp(log_erlang_c(servers, rate * mean_s)), knots, exponent)


def wait_law(
    servers: FloatScalar,
    rate_per_s: FloatScalar,
    service: ServiceLaw | ServiceSpread,
    arrival_cv2: FloatScalar = 1.0,
    constants: WaitConstants | None = None,
) -> WaitLaw:
    """Law of the wait in GI/G/c from the whole law of service times.

    A wait of w needs that, over some time u in which all servers are busy, arrivals less departures exceed what the
    servers do in w. Both are taken as Gaussian with their variances over u, and the likeliest u counts:

        exponent(w) = min over u of (w + (1 - rho) u)^2 / (2 (m / c) (arrival_cv2 + I(u)) u)

    with the mean service time m and the index of dispersion I(u) of the departures of a busy server. Short queues feel
    I = 1 and decay as in M/M/c, however variable service is; long ones feel its whole variability, as in Kimura's law.
    For exponential service both are the same and exact. The probability of waiting is Erlang's C of a system as peaked
    as the arrivals, raised a little where service is more variable than exponential and servers are several.

    Args:
        servers: Servers c > 0, real.
        rate_per_s: Arrivals.
        service: Law of service times, or its spread where one law meets many counts and rates.
        arrival_cv2: Squared coefficient of variation of the times between arrivals, 1 for Poisson.
        constants: Empirical numbers; those that ship where None.
    """
    constants = load_fleet_constants().waiting if constants is None else constants
    spread = service_spread(service) if isinstance(service, ServiceLaw) else service
    c, rate = jnp.asarray(servers, float), jnp.asarray(rate_per_s, float)
    arrival = jnp.maximum(jnp.asarray(arrival_cv2, float), 0.0)
    offered = rate * spread.mean_s
    stable = offered < c
    idle = jnp.where(stable, 1.0 - offered / jnp.where(c > 0, c, 1.0), 0.5)
    own_s = spread.mean_s / jnp.where(c > 0, c, 1.0)
    bounds = jnp.append(spread.dispersion, spread.cv2)
    least, most = (own_s * (arrival + bound) / (2.0 * idle) for bound in (jnp.min(bounds), jnp.max(bounds)))
    waits = (_SHORTEST * least) * (_LONGEST / _SHORTEST * most / least) ** jnp.linspace(0.0, 1.0, WAIT_KNOTS)
    times = jnp.append(0.0, spread.times_s)
    variance = own_s * times * (arrival + jnp.append(1.0, spread.dispersion))
    exponent = _likeliest(waits, idle, times, variance, own_s * (arrival + spread.cv2))
    return WaitLaw(
        probability=_delay_probability(c, offered, spread, arrival, constants),
        wait_s=jnp.append(0.0, waits),
        exponent=jnp.where(stable, jnp.append(0.0, exponent), 0.0),
    )


def _delay_probability(
    servers: Float[Array, ""],
    offered: Float[Array, ""],
    spread: ServiceSpread,
    arrival_cv2: Float[Array, ""],
    constants: WaitConstants,
) -> Float[Array, ""]:
    """Erlang's C of a system scaled by the peakedness of the arrivals, raised by the variability of service."""
    peaked = jnp.maximum(1.0 + (arrival_cv2 - 1.0) * spread.overlap, _LEAST_CV2)
    chance = jnp.exp(log_erlang_c(servers / peaked, offered / peaked))
    beyond = (spread.cv2 - 1.0) / (spread.cv2 + 1.0) * (1.0 - 1.0 / jnp.maximum(servers, 1.0))
    return chance * jnp.exp(constants.delay_by_variability * (1.0 - chance) * beyond)


def _likeliest(
    waits: Float[Array, " wait"],
    idle: Float[Array, ""],
    times: Float[Array, " time"],
    variance: Float[Array, " time"],
    last_slope: Float[Array, ""],
) -> Float[Array, " wait"]:
    """Least (w + idle u)^2 / (2 variance(u)) over u > 0, variance linear between its knots and beyond the last."""
    slope = jnp.append(jnp.diff(variance) / jnp.diff(times), last_slope)
    base = variance - slope * times
    top = jnp.append(times[1:], jnp.inf)
    rises = slope > 0
    turn = waits[:, None] / idle - 2.0 * base / jnp.where(rises, slope, 1.0)
    u = jnp.where(rises, jnp.clip(turn, times, top), top)
    return jnp.min((waits[:, None] + idle * u) ** 2 / (2.0 * (base + slope * u)), axis=1)


def _line(x: Float[AnyArray, "*axes"] | float | np.floating, at: Float[Array, " knot"], values: Float[Array, " knot"]):
    """Linear between knots that ascend, beyond the last by the last slope."""
    x = jnp.asarray(x, at.dtype)
    beyond = jnp.maximum(x - at[-1], 0.0)
    return jnp.interp(x, at, values) + beyond * (values[-1] - values[-2]) / (at[-1] - at[-2])
