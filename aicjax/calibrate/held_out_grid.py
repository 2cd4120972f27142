# SPDX-License-Identifier: Apache-2.0
"""Keys of ragged grids left out one by one and predicted from the rest of their slice.

A grid is an array [slice, *axis], NaN where nothing was measured. Leaving out a key of an axis takes away all that
was measured below it: a point on the innermost axis, a whole row or plane on others. The rule is that of
`interp.grid`: blend between a branch's own neighbouring keys, else hold the utilisation of the nearest points.
"""

from typing import NamedTuple

import numpy as np

from aicjax.calibrate.held_out import Neighbours, Rule, between, neighbours, take
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
    """Every measured point with its key of `axis` left out.

    Args:
        rules: Interpolant of each axis.
        axis: The axis, counted without that of slices.
        knots: Coordinates of each axis, ascending.
        latency_ms, sol_ms: Latency, NaN where not measured, and roofline [slice, *axis].
        held_rule: Interpolant that replaces the rule of `axis`; None for that rule.
    """
    measured = np.isfinite(latency_ms)
    values, sided = _resolved(rules, axis + 1, knots, latency_ms, sol_ms)
    near = _branch_neighbours(measured, axis)
    value, one = _blend(held_rule or rules[axis], axis, knots[axis], values, sol_ms, near, sided, 1 + axis < len(knots))
    return Blended(np.where(measured, value, np.nan), one & measured)


def _resolved(rules, axis: int, knots, latency_ms, sol_ms) -> tuple[np.ndarray, np.ndarray]:
    """Value of each branch at all knots of `axis` and inner axes, and whether a lone neighbour gave it."""
    if axis == len(knots):
        return latency_ms, np.zeros(latency_ms.shape, bool)
    values, sided = _resolved(rules, axis + 1, knots, latency_ms, sol_ms)
    measured = np.isfinite(latency_ms)
    exists = _any_below(measured, axis)
    near = _branch_neighbours(measured, axis)
    blend, one = _blend(rules[axis], axis, knots[axis], values, sol_ms, near, sided, 1 + axis < len(knots))
    shape = exists.reshape(*exists.shape, *(1,) * (latency_ms.ndim - exists.ndim))
    return np.where(shape, values, blend), np.where(shape, sided, one)


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


def _blend(rule, axis, knots, values, sol_ms, near, sided, scaled: bool) -> tuple[np.ndarray, np.ndarray]:
    """Blend along an axis of values [slice, *axis]; where one neighbour has none, the other by the ratio of roofs."""
    lines, roof, lone = (np.moveaxis(x, axis + 1, -1) for x in (values, sol_ms, sided))
    value = between(rule, knots, lines, roof, near)
    below, above = take(lines, near.below), take(lines, near.above)
    one = near.inside & (np.isfinite(below) ^ np.isfinite(above)) & scaled
    with np.errstate(invalid="ignore", divide="ignore"):
        from_below, from_above = below * roof / take(roof, near.below), above * roof / take(roof, near.above)
    value = np.where(one, np.where(np.isfinite(below), from_below, from_above), value)
    inherited = (take(lone, near.below, False) & np.isfinite(below)) | (
        take(lone, near.above, False) & np.isfinite(above)
    )
    return np.moveaxis(value, -1, axis + 1), np.moveaxis(one | inherited.astype(bool), -1, axis + 1)


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
