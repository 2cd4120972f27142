# SPDX-License-Identifier: Apache-2.0
"""Keys of ragged grids left out one by one and predicted from the rest of their slice.

A grid is an array [slice, *axis], NaN where nothing was measured. Leaving out a key of an axis takes away all that
was measured below it: a point on the innermost axis, a whole row or plane on others. The rule is that of
`interp.grid`: blend between a branch's own neighbouring keys, else hold the utilisation of the nearest points.
"""

from typing import NamedTuple

import numpy as np

from aicjax.calibrate.held_out import Known, Neighbours, Rule, interpolate, neighbours, take
from aicjax.interp.axis import NO_KEY
from aicjax.interp.hold import ANCHORS

LEAST = 1e-12  # what a coordinate of zero counts as, under a logarithm


class Blended(NamedTuple):
    """Predictions of a grid with one key of an axis left out, at every point measured below that key.

    Attributes:
        latency_ms: Latency from both neighbours, or from one by the ratio of rooflines [slice, *axis]; NaN elsewhere.
        one_sided: Whether one neighbour alone answered [slice, *axis].
    """

    latency_ms: np.ndarray
    one_sided: np.ndarray


def blended(
    rules: tuple[Rule, ...],
    axis: int,
    knots: tuple[np.ndarray, ...],
    latency_ms: np.ndarray,
    sol_ms: np.ndarray,
    held_rule: Rule | None = None,
) -> Blended:
    """Every measured point with its key of `axis` left out; nothing where that is its branch's only key.

    Args:
        rules: Interpolant of each axis.
        axis: The axis, counted without that of slices.
        knots: Coordinates of each axis, ascending.
        latency_ms, sol_ms: Latency, NaN where not measured, and roofline [slice, *axis].
        held_rule: Interpolant that replaces the rule of `axis`; None for that rule.
    """
    rules = (*rules[:axis], held_rule or rules[axis], *rules[axis + 1 :])
    found = _blend(rules, axis, knots, latency_ms, sol_ms)
    measured = np.isfinite(latency_ms)
    return Blended(np.where(measured, found.latency_ms, np.nan), found.one_sided & measured)


def _resolved(rules: tuple[Rule, ...], axis: int, knots, latency_ms: np.ndarray, sol_ms: np.ndarray) -> Blended:
    """Answer of each branch at all knots of `axis` and the axes below it: of its own keys, or between them."""
    if axis == len(knots):
        return Blended(latency_ms, np.zeros(latency_ms.shape, bool))
    own = _resolved(rules, axis + 1, knots, latency_ms, sol_ms)
    blend = _blend(rules, axis, knots, latency_ms, sol_ms)
    exists = _any_below(np.isfinite(latency_ms), axis)
    exists = exists.reshape(*exists.shape, *(1,) * (latency_ms.ndim - exists.ndim))
    return Blended(*(np.where(exists, *parts) for parts in zip(own, blend, strict=True)))


def _blend(rules: tuple[Rule, ...], axis: int, knots, latency_ms: np.ndarray, sol_ms: np.ndarray) -> Blended:
    """Answer at every knot of an axis from the branch's keys on either side of it.

    The branches on either side are asked for the coordinates of the query on all other axes: their measurements move
    to its place before the axes below are resolved. Where one side has none, the other by the ratio of rooflines.
    """
    shape = (-1, *(1,) * (len(knots) - axis - 1))
    near = _branch_neighbours(np.isfinite(latency_ms), axis)
    points, sided = [], np.zeros(latency_ms.shape, bool)
    for at in near.sides(rules[axis].monotone):
        there = _resolved(rules, axis + 1, knots, _moved(latency_ms, at, axis), sol_ms)
        key = np.where(at == NO_KEY, np.nan, knots[axis][np.maximum(at, 0)])
        points.append(Known(np.moveaxis(key, -1, axis + 1), there.latency_ms, _moved(sol_ms, at, axis)))
        sided |= there.one_sided & np.isfinite(there.latency_ms)
    value = interpolate(rules[axis], knots[axis].reshape(shape), sol_ms, points)
    below, above = points[len(points) // 2 - 1], points[len(points) // 2]
    enclosed = np.moveaxis(near.inside, -1, axis + 1)
    alone = enclosed & (np.isfinite(below.latency_ms) ^ np.isfinite(above.latency_ms)) & (axis + 1 < len(knots))
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = [point.latency_ms * sol_ms / point.sol_ms for point in (below, above)]
    value = np.where(alone, np.where(np.isfinite(scaled[0]), *scaled), value)
    return Blended(value, alone | sided)


def _moved(values: np.ndarray, at: np.ndarray, axis: int) -> np.ndarray:
    """Values of other keys of an axis [slice, *axis]; `at` names the key of each place, that axis last."""
    return np.moveaxis(take(np.moveaxis(values, axis + 1, -1), at), -1, axis + 1)


def _any_below(measured: np.ndarray, axis: int) -> np.ndarray:
    """Whether a branch has each key of an axis [slice, *outer axis, axis]."""
    return np.any(measured.reshape(*measured.shape[: axis + 2], -1), axis=-1)


def _branch_neighbours(measured: np.ndarray, axis: int) -> Neighbours:
    """A branch's keys on either side of each knot of an axis, with that axis last [slice, *other axis, knot]."""
    inner = measured.shape[axis + 2 :]
    near = neighbours(_any_below(measured, axis))

    def spread(at: np.ndarray) -> np.ndarray:
        wide = np.broadcast_to(at.reshape(*at.shape, *(1,) * len(inner)), (*at.shape, *inner))
        return np.moveaxis(wide, axis + 1, -1)

    return Neighbours(spread(near.below), spread(near.above))


def edge_points(latency_ms: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Measured points whose key is the first, and those whose key is the last, of its branch on an axis [slice, *axis].

    A branch of one key has neither.
    """
    measured = np.isfinite(latency_ms)
    near = _branch_neighbours(measured, axis)
    none_below, none_above = near.below == NO_KEY, near.above == NO_KEY
    first, last = none_below & ~none_above, none_above & ~none_below
    return measured & np.moveaxis(first, -1, axis + 1), measured & np.moveaxis(last, -1, axis + 1)


def held(
    axis: int, knots: tuple[np.ndarray, ...], latency_ms: np.ndarray, sol_ms: np.ndarray, asked: np.ndarray
) -> np.ndarray:
    """Latency of points of one slice at the utilisation of the nearest others, their own key of `axis` left out.

    Args:
        axis: The axis.
        knots: Coordinates of each axis.
        latency_ms, sol_ms: Latency, NaN where not measured, and roofline [*axis].
        asked: Which points [*axis].

    Returns:
        Latency of each of them, in their order; NaN where nothing else was measured [point].
    """
    at, leaf = np.nonzero(asked), np.nonzero((latency_ms > 0) & (sol_ms > 0))
    logs = [np.log2(np.maximum(k, LEAST)) for k in knots]
    distance_sq = sum((log[mine][:, None] - log[other]) ** 2 for log, mine, other in zip(logs, at, leaf, strict=True))
    own = np.logical_and.reduce([at[a][:, None] == leaf[a] for a in range(axis + 1)])
    distance = np.where(own, np.inf, np.sqrt(distance_sq))
    count = min(ANCHORS + 1, distance.shape[1])
    order = np.argpartition(distance, count - 1, -1)[:, :count]
    near = np.take_along_axis(distance, order, -1)
    radius = near.max(-1, keepdims=True) if count > ANCHORS else np.full((len(near), 1), np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        fading = (np.maximum(radius - near, 0) / (radius * near + LEAST)) ** 2
        weight = np.where(np.isfinite(radius), fading, np.where(np.isfinite(near), 1 / (near**2 + LEAST), 0.0))
        tied = weight.sum(-1, keepdims=True) <= 0
        weight = np.where(tied & np.isfinite(near), 1.0, weight)
        utilization = (sol_ms[leaf] / latency_ms[leaf])[order]
        return sol_ms[at] * weight.sum(-1) / (weight * utilization).sum(-1)
