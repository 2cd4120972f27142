# SPDX-License-Identifier: Apache-2.0
"""How variable service is, and over which times: what queues with many servers feel of it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from aicjax.fleet.service_times import ServiceLaw, moments

BINS = 256  # of service times, even in the logarithm; their spread within a bin is left out
TIME_KNOTS = 72
_SHORTEST = 1e-3  # interval of the table, of the mean service time: departures are random up to there
_LONGEST = 30.0  # ... of the longest service time: variability has settled there
_SERIES = 0.05  # argument below which a series replaces a difference of close numbers


class ServiceSpread(NamedTuple):
    """What the law of the wait needs of a law of service times.

    Attributes:
        mean_s: Mean.
        cv2: Squared coefficient of variation.
        overlap: Mean of the lesser of two service times, over the mean.
        times_s: Lengths of intervals, ascending [time].
        dispersion: Index of dispersion of the departures of a busy server over them [time].
    """

    mean_s: Float[Array, ""]
    cv2: Float[Array, ""]
    overlap: Float[Array, ""]
    times_s: Float[Array, " time"]
    dispersion: Float[Array, " time"]


def service_spread(service: ServiceLaw) -> ServiceSpread:
    """The spread of a law of service times, which depends on neither rate nor servers."""
    mean_s, cv2 = moments(service)
    times, weight = _binned(service.service_s, service.weight)
    longest = jnp.max(jnp.where(weight > 0, times, 0.0))
    intervals = _spaced(_SHORTEST * mean_s, _LONGEST * longest, TIME_KNOTS)
    longer = jnp.cumsum(weight[::-1])[::-1]
    overlap = jnp.sum(longer**2 * jnp.diff(times, prepend=0.0)) / jnp.sum(times * weight)
    return ServiceSpread(mean_s, cv2, overlap, intervals, index_of_dispersion(times, weight, intervals))


def index_of_dispersion(
    service_s: Float[Array, " point"], weight: Float[Array, " point"], times_s: Float[Array, " time"]
) -> Float[Array, " time"]:
    """Variance over mean of the departures of a server that is always busy, in a stationary interval.

    Departures form a renewal process of service times. The index is 1 over intervals that are short beside a service
    time, and the squared coefficient of variation over long ones; on the way it shows how long services block the
    server. From the Laplace transform of the variance at s = 1 / t, as for a curve that is a power of t there: a few
    percent off the exact curve.

    Args:
        service_s: Service times.
        weight: Probabilities that sum to 1.
        times_s: Lengths of the intervals, ascending, spaced evenly in their logarithms; at least two.
    """
    per_mean = jnp.sum(weight * service_s) / times_s  # s times the mean
    x = service_s / times_s[:, None]
    small, large = jnp.where(x < _SERIES, x, 0.0), jnp.where(x < _SERIES, 1.0, x)
    near = small**2 * (0.5 - small / 6.0 * (1.0 - small / 4.0))
    excess = jnp.where(x < _SERIES, near, large + jnp.expm1(-large))  # x - 1 + exp(-x)
    done = jnp.sum(weight * jnp.exp(-x), axis=1)
    ratio = jnp.sum(weight * excess, axis=1) / per_mean
    over_long = 1.0 + 2.0 * (ratio / per_mean + ratio - 1.0) / (1.0 - ratio)
    over_short = 1.0 - 2.0 / per_mean + 2.0 * done / (1.0 - done)
    smoothed = jnp.maximum(jnp.where(per_mean < 1.0, over_long, over_short), _SHORTEST)
    rise, run = (jnp.asarray(jnp.gradient(jnp.log(curve))) for curve in (smoothed, times_s))
    power = 1.0 + rise / run
    return smoothed * jnp.exp(-gammaln(1.0 + jnp.clip(power, 0.0, 2.0)))


def _binned(
    service_s: Float[Array, " point"], weight: Float[Array, " point"]
) -> tuple[Float[Array, " bin"], Float[Array, " bin"]]:
    """Mean service time, ascending, and weight of each bin; bins without weight repeat a neighbour."""
    some = weight > 0
    log_s = jax.lax.stop_gradient(jnp.log(service_s))
    low = jnp.min(jnp.where(some, log_s, jnp.inf))
    high = jnp.max(jnp.where(some, log_s, -jnp.inf))
    place = (log_s - low) / jnp.where(high > low, high - low, 1.0) * BINS
    bins = jnp.clip(place, 0.0, BINS - 1.0).astype(jnp.int32)
    mass = jax.ops.segment_sum(weight, bins, BINS)
    times = jax.ops.segment_sum(weight * service_s, bins, BINS) / jnp.where(mass > 0, mass, 1.0)
    return jax.lax.cummax(times), mass


def _spaced(low: Float[Array, ""], high: Float[Array, ""], n: int) -> Float[Array, " n"]:
    """From low to high, evenly in the logarithm."""
    return low * (high / low) ** jnp.linspace(0.0, 1.0, n)
