# SPDX-License-Identifier: Apache-2.0
"""Estimates from curves: the two nearest measured points where all axes but one are known when an operator is bound.

The rule is that of `interp.estimate`. A table of shapes with a curve of tokens each has tens of thousands of points;
but how far its shapes lie from one that asks is known beforehand. Of all curves measured at the same tokens only the
two nearest can hold one of the two nearest points, and on a curve only the two knots on either side of the query can.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._types import Array
from aicjax.interp.axis import NO_KEY, interval, neighbour_keys
from aicjax.interp.counts import pick
from aicjax.interp.estimate import FAR, log_ratio, two_point_mean

NO_CURVE = -1
CURVE_BUCKET = 4
TIE = 2e-6  # relative squared distance below which two points count as equally near, of exact distances in float32


class UtilizationCurves(eqx.Module):
    """Utilisation over one axis, on shared knots.

    Attributes:
        utilization: Roofline over latency [curve, knot]; 0 where a curve has no point.
        lower, upper: A curve's own knots around each interval of the shared ones [curve, knot + 1].
    """

    utilization: Float[Array, "curve knot"]
    lower: Int[Array, "curve interval"]
    upper: Int[Array, "curve interval"]


class CurveChoice(eqx.Module):
    """Curves that can answer for each row.

    Attributes:
        curve: Which curves, nearest first; `NO_CURVE` on padding [row, candidate].
        offset_sq: Squared distance of each from the row on the axes known beforehand [row, candidate].
        low, high: Range of the curves' own axis, beyond which a query counts as at its end [row].
        scale: Inverse of the logarithmic span of that axis [row].
    """

    curve: Int[Array, "row candidate"]
    offset_sq: Float[Array, "row candidate"]
    low: Float[Array, " row"]
    high: Float[Array, " row"]
    scale: Float[Array, " row"]


def bind_utilization_curves(utilization: np.ndarray) -> UtilizationCurves:
    """Curves on shared knots, on the host; NaN where a curve has no point [curve, knot]."""
    lower, upper = neighbour_keys(np.isfinite(utilization))
    return UtilizationCurves(np.nan_to_num(utilization).astype(np.float32), lower, upper)


def knot_patterns(utilization: np.ndarray) -> np.ndarray:
    """Which curves were measured at the same knots: a number shared by those that were [curve]."""
    packed = np.packbits(np.isfinite(utilization), axis=-1)
    return np.unique(packed, axis=0, return_inverse=True)[1].reshape(-1)


def nearest_curves(offset_sq: np.ndarray, patterns: np.ndarray) -> np.ndarray:
    """Curves that can hold one of the two nearest points, nearest first, ties in curve order, on the host in float64.

    Args:
        offset_sq: Squared distance of each curve from the shape that asks [curve].
        patterns: `knot_patterns` of the curves.
    """
    order = np.argsort(offset_sq, kind="stable")
    earlier = np.zeros(order.size, np.int64)
    for pattern in np.unique(patterns):
        same = patterns[order] == pattern
        earlier[same] = np.arange(same.sum())
    return order[earlier < 2]


def stack_choices(
    choices: list[tuple[np.ndarray, np.ndarray]], ranges: list[tuple[float, float]], *, rows: int
) -> CurveChoice:
    """Candidates `(curve, offset_sq)` of each row and the range `(low, high)` of their axis, padded to `rows`."""
    width = -(-max([curve.size for curve, _ in choices] + [1]) // CURVE_BUCKET) * CURVE_BUCKET
    curve = np.full((rows, width), NO_CURVE, np.int32)
    offset_sq = np.zeros((rows, width), np.float32)
    low, high = np.ones(rows), np.full(rows, np.e)
    for row, ((found, away), (first, last)) in enumerate(zip(choices, ranges, strict=True)):
        curve[row, : found.size], offset_sq[row, : found.size] = found, away
        low[row], high[row] = first, last if last > first else first * np.e
    return CurveChoice(curve, offset_sq, *(x.astype(np.float32) for x in (low, high, 1.0 / np.log(high / low))))


def curve_utilization(
    curves: UtilizationCurves,
    knots: Float[Array, " knot"],
    choice: CurveChoice,
    coordinate: Float[Array, "row point"],
) -> Float[Array, "row point"]:
    """Utilisation of each row at its own queries; NaN where no curve can answer.

    Args:
        curves: All curves in use.
        knots: Their shared knots, ascending.
        choice: Which of them can answer for each row.
        coordinate: Queries on the curves' own axis.
    """
    query = jnp.clip(coordinate, choice.low[:, None], choice.high[:, None])
    exists = choice.curve[:, None] != NO_CURVE
    curve = jnp.maximum(choice.curve, 0)[:, None]
    at = interval(knots, query)[..., None]
    below, above = pick(curves.lower, curve, at), pick(curves.upper, curve, at)
    before = jnp.where(below == NO_KEY, NO_KEY, pick(curves.lower, curve, jnp.maximum(below, 0)))
    after = jnp.where(above == NO_KEY, NO_KEY, pick(curves.upper, curve, jnp.maximum(above, 0) + 1))
    keys = jnp.stack([before, below, above, after], -1)  # [row, point, candidate, side]
    gap = log_ratio(pick(knots, jnp.maximum(keys, 0)), query[..., None, None]) * choice.scale[:, None, None, None]
    distance_sq = jnp.where(exists[..., None] & (keys != NO_KEY), choice.offset_sq[:, None, :, None] + gap**2, FAR)
    # Of equally near points the one at fewer tokens counts, then that of the nearer curve.
    order = keys * curve.shape[-1] + jnp.arange(curve.shape[-1], dtype=keys.dtype)[:, None]
    flat = (*query.shape, -1)
    distance_sq, order, keys = (x.reshape(flat) for x in (distance_sq, order, keys))
    first = _earliest(distance_sq, order)
    second = _earliest(jnp.where(jnp.arange(order.shape[-1]) == first, FAR, distance_sq), order)
    nearest = jnp.concatenate([first, second], -1)
    away = jnp.take_along_axis(distance_sq, nearest, -1)
    owner = jnp.take_along_axis(jnp.broadcast_to(curve, (*query.shape, curve.shape[-1])), nearest // 4, -1)
    value = pick(curves.utilization, owner, jnp.maximum(jnp.take_along_axis(keys, nearest, -1), 0))
    value = jnp.where(away < FAR, value, 0.0)
    return two_point_mean(jnp.moveaxis(away, -1, 0), jnp.moveaxis(value, -1, 0))


def _earliest(distance_sq, order):
    """Position of the point that comes first in `order` among the nearest, as a trailing axis of one."""
    tied = distance_sq <= jnp.min(distance_sq, -1, keepdims=True) * (1 + TIE)
    return jnp.argmin(jnp.where(tied, order, jnp.iinfo(order.dtype).max), -1, keepdims=True)
