# SPDX-License-Identifier: Apache-2.0
"""Estimates: the utilisation of the two measured points nearest to a query, wherever it lies.

Each axis is the logarithm of a coordinate, scaled to 0 at the smallest measured value and 1 at the largest, or at e
times the smallest where all points share it; a query beyond them counts as being there. A measured point answers for
itself; anything else is the mean of the two nearest points, weighted by the inverse of their distance. Unlike a grid,
the rule knows no axes to blend along, so it answers for tables of any raggedness, and for a shape that borrows
another's points.

Coordinates are often powers of two, so ties are common. The first point counts, except that of two points an equal
factor below and above a query the upper one does where float64 rounds it nearer: the answers are then those of
AIConfigurator.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from aicjax._types import Array
from aicjax.interp.counts import pick

LEAST = 1e-9  # what a coordinate of zero counts as, under a logarithm
BLOCK = 64  # queries that share one decision whether anything must be estimated
FAR = np.float32(1e6)  # scaled coordinate of a padded point: never near
TIE = 2e-6  # relative distance below which two points count as equally near, of distances exact in float32


class Samples(eqx.Module):
    """Measured points of one shape; stacked, of many shapes.

    Attributes:
        point: Coordinates of each point [axis, leaf].
        place: Their scaled logarithms, `FAR` on padding [axis, leaf].
        low, high: Coordinates beyond which a query counts as being there [axis].
        scale: Inverse of the logarithm of their ratio [axis].
        lean: How much nearer to a point, by rounding, the value an equal factor above is than the one below, on each
            axis; 0 where it is not [axis, leaf].
        utilization: Roofline over latency of each point [leaf]; 0 on padding.
    """

    point: Float[Array, "*row axis leaf"]
    place: Float[Array, "*row axis leaf"]
    low: Float[Array, "*row axis"]
    high: Float[Array, "*row axis"]
    scale: Float[Array, "*row axis"]
    lean: Float[Array, "*row axis leaf"]
    utilization: Float[Array, "*row leaf"]


def bind_samples(coordinates: tuple[np.ndarray, ...], utilization: np.ndarray, leaves: int) -> Samples:
    """Samples of one shape, on the host in float64.

    Args:
        coordinates: Coordinates of the measured points, an array an axis, in the order that settles ties [leaf].
        utilization: Roofline over latency of each [leaf]; points where it is not positive and finite do not count.
        leaves: Length to pad the points to.
    """
    usable = np.isfinite(utilization) & (utilization > 0)
    if not usable.any():
        return no_samples(len(coordinates), leaves)
    points = np.maximum(np.stack([np.asarray(axis, np.float64)[usable] for axis in coordinates]), LEAST)
    least, span = _log_span(points)
    spare = leaves - points.shape[1]
    place = (np.log(points) - least[:, None]) / span[:, None]
    return Samples(
        point=np.pad(points, ((0, 0), (0, spare)), constant_values=1).astype(np.float32),
        place=np.pad(place, ((0, 0), (0, spare)), constant_values=FAR).astype(np.float32),
        low=points.min(1).astype(np.float32),
        high=np.where(np.ptp(points, 1) > 0, points.max(1), points[:, 0] * np.e).astype(np.float32),
        scale=(1.0 / span).astype(np.float32),
        lean=np.pad([_lean(*axis) for axis in zip(points, place, strict=True)], ((0, 0), (0, spare))).astype(
            np.float32
        ),
        utilization=np.pad(utilization[usable], (0, spare)).astype(np.float32),
    )


def _lean(points: np.ndarray, place: np.ndarray) -> np.ndarray:
    """`Samples.lean` of one axis [leaf], from its coordinates and their places."""
    values, first, owner = np.unique(points, return_index=True, return_inverse=True)
    step = np.diff(place[first])
    lean = np.zeros(values.size)
    even = values[:-2] * values[2:] == values[1:-1] ** 2
    lean[1:-1] = np.where(even, np.maximum(step[:-1] - step[1:], 0.0), 0.0)
    return lean[owner]


def log_scale(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least logarithm of each axis of `points` [axis, leaf], and the inverse of its span (1 where it has none)."""
    least, span = _log_span(points)
    return least, 1.0 / span


def _log_span(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    logs = np.log(points)
    span = np.ptp(logs, 1)
    return logs.min(1), np.where(span > 0, span, 1.0)


def no_samples(axes: int, leaves: int) -> Samples:
    """Samples of a shape that nothing can stand in for: every estimate is NaN."""
    one, points = np.ones(axes, np.float32), np.ones((axes, leaves), np.float32)
    return Samples(points, points * FAR, one, one, one, np.zeros_like(points), np.zeros(leaves, np.float32))


def estimated_utilization(
    samples: Samples,
    coordinates: tuple[Float[Array, "row point"], ...],
    needed: Bool[Array, "row point"] | None = None,
) -> Float[Array, "row point"]:
    """Utilisation at each query; NaN where a row has no samples.

    Args:
        samples: Samples, stacked.
        coordinates: Queries, an array an axis.
        needed: Queries that count; blocks without one are skipped, and others may be NaN. All when None.
    """
    rows, points = coordinates[0].shape
    blocks = -(-points // BLOCK)
    spare = ((0, 0), (0, blocks * BLOCK - points))
    wanted = jnp.ones((rows, points), bool) if needed is None else needed
    query = jnp.stack([jnp.pad(axis, spare, constant_values=1).reshape(-1, BLOCK) for axis in coordinates], 1)
    owner = jnp.repeat(jnp.arange(rows), blocks, total_repeat_length=rows * blocks)

    def block(task):
        row, query, wanted = task
        own = jax.tree.map(lambda leaf: jnp.asarray(leaf)[row], samples)

        def search():
            return jax.vmap(lambda place: _nearest_two(own, place), in_axes=1)(query)

        return jax.lax.cond(wanted.any(), search, lambda: jnp.full((BLOCK,), jnp.nan, own.utilization.dtype))

    return jax.lax.map(block, (owner, query, jnp.pad(wanted, spare).reshape(-1, BLOCK))).reshape(rows, -1)[:, :points]


def _nearest_two(samples: Samples, query: Float[Array, " axis"]) -> Float[Array, ""]:
    """Utilisation at one query, from its two nearest points."""
    query = jnp.clip(query, samples.low, samples.high)
    place = log_ratio(query, samples.low) * samples.scale
    # Not by difference of places: their rounding would hide which of two points is nearer.
    away = log_ratio(samples.point, query[:, None]) * samples.scale[:, None]
    distance = jnp.where(samples.place[0] < FAR, jnp.sqrt(sum(axis**2 for axis in away)), FAR)
    first, _ = _ends(distance)
    second, last = _ends(jnp.where(jnp.arange(distance.size) == first, FAR, distance))
    here, lower, upper = (samples.point[:, at] for at in (first, second, last))
    astride = (here == query) & (lower < query) & (query < upper)
    # How much nearer the upper point is, times the distance: it counts where it changes the last bit of the distance.
    gain = jnp.sum(jnp.where(astride, samples.lean[:, first] * (samples.place[:, last] - place), 0.0))
    counts = gain > 0.5 * _last_bit(distance[last]) * distance[last]
    second = jnp.where(jnp.all(astride | (lower == upper)) & counts, last, second)
    nearest = jnp.stack([first, second])
    return two_point_mean(jnp.sum(away[:, nearest] ** 2, 0), pick(samples.utilization, nearest))


def _last_bit(value):
    """Spacing of float64 numbers of this size."""
    return jnp.exp2(jnp.floor(jnp.log2(value)) - 52)


def _ends(distance):
    """First and last of the points that are as near as the nearest."""
    tied = distance <= jnp.min(distance) * (1 + TIE)
    return jnp.argmax(tied), distance.size - 1 - jnp.argmax(tied[::-1])


def log_ratio(value: Float[Array, "*shape"], by: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Logarithm of `value / by`, exact for neighbouring counts, zero for equal ones."""
    beyond = (value - by) / by
    near = jnp.abs(beyond) < 0.5
    return jnp.where(near, jnp.log1p(jnp.where(near, beyond, 0.0)), jnp.log(value / by))


def two_point_mean(distance_sq: Float[Array, "2 ..."], utilization: Float[Array, "2 ..."]) -> Float[Array, "..."]:
    """Mean of two utilisations, weighted by inverse distance; a point that is the query, or is alone, answers alone.

    Args:
        distance_sq: Squared distances, the nearer one first.
        utilization: Utilisations; 0 for a point that does not exist. NaN results when neither does.
    """
    alone = (distance_sq[0] == 0) | (utilization[1] <= 0)
    first, second = jnp.sqrt(jnp.where(alone, 1.0, distance_sq))  # no root of zero: its gradient is infinite
    # The mean by inverse distances, without dividing by either: the far point's distance weighs the near one.
    mean = (utilization[0] * second + utilization[1] * first) / (first + second)
    value = jnp.where(alone, utilization[0], mean)
    return jnp.where(value > 0, value, jnp.nan)
