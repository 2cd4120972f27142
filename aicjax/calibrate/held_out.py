# SPDX-License-Identifier: Apache-2.0
"""Points of measured lines left out one by one and predicted from the rest of their line, in closed form.

A line is the last axis of an array: latencies on shared ascending knots, NaN where nothing was measured. Leaving out
an interior point of an interpolant that is local changes nothing but its two neighbours, so that one gather predicts
every point of every line at once.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from aicjax.interp.axis import NO_KEY, neighbour_keys
from aicjax.interp.curve import masked_median

TILE_TOKENS = 128  # rows of a matrix product that one thread block computes


class Rule(NamedTuple):
    """An interpolant between two points: linear in transformed coordinates.

    Attributes:
        place: Transform of the knots.
        value: Transform of (latency, roofline).
        latency: Its inverse, of (value, roofline).
        monotone: Whether the cubic through four points that keeps their order replaces the straight line.
    """

    place: Callable[[np.ndarray], np.ndarray]
    value: Callable[[np.ndarray, np.ndarray], np.ndarray]
    latency: Callable[[np.ndarray, np.ndarray], np.ndarray]
    monotone: bool = False


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _tiles(tokens: np.ndarray) -> np.ndarray:
    return np.ceil(tokens / TILE_TOKENS)


def _log(x: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(x, np.finfo(np.float64).tiny))


RULES = {
    "latency": Rule(_same, lambda t, sol: t, lambda y, sol: y),
    "sqrt_latency": Rule(_same, lambda t, sol: np.sqrt(t), lambda y, sol: y**2),
    "utilization": Rule(_same, lambda t, sol: sol / t, lambda y, sol: sol / y),
    "log_utilization": Rule(np.log, lambda t, sol: _log(sol / t), lambda y, sol: sol / np.exp(y)),
    "log_latency": Rule(np.log, lambda t, sol: _log(t), lambda y, sol: np.exp(y)),
    "pchip": Rule(np.log, lambda t, sol: _log(t), lambda y, sol: np.exp(y), monotone=True),
    "tiles": Rule(_tiles, lambda t, sol: t, lambda y, sol: y),
}


class Neighbours(NamedTuple):
    """Positions of each knot's nearest measured ones on its line, itself left out; `NO_KEY` where there is none.

    Attributes:
        below, above: The nearest on either side [..., knot].
    """

    below: np.ndarray
    above: np.ndarray

    @property
    def inside(self) -> np.ndarray:
        """Whether the rest of the line encloses the knot [..., knot]."""
        return (self.below != NO_KEY) & (self.above != NO_KEY)

    def beyond(self) -> "Neighbours":
        """The neighbours of the neighbours [..., knot]."""
        return Neighbours(take(self.below, self.below, NO_KEY), take(self.above, self.above, NO_KEY))

    def sides(self, two: bool) -> tuple[np.ndarray, ...]:
        """The neighbours in ascending order, one or two on either side."""
        far = self.beyond()
        return (far.below, self.below, self.above, far.above) if two else (self.below, self.above)


def neighbours(measured: np.ndarray) -> Neighbours:
    """Neighbours of every knot of every line, from which knots were measured, bool [..., knot]."""
    lower, upper = neighbour_keys(measured)
    return Neighbours(lower[..., :-1], upper[..., 1:])


def take(values: np.ndarray, at: np.ndarray, none: float = np.nan) -> np.ndarray:
    """Values at positions of the last axis [..., knot]; `none` where the position is `NO_KEY`."""
    return np.where(at == NO_KEY, none, np.take_along_axis(values, np.maximum(at, 0), -1))


class Known(NamedTuple):
    """One point that an interpolant passes through, at each query; NaN where there is none.

    Attributes:
        knot, latency_ms, sol_ms: Its coordinate, its latency and its roofline.
    """

    knot: np.ndarray
    latency_ms: np.ndarray
    sol_ms: np.ndarray


def between(rule: Rule, knots: np.ndarray, latency_ms: np.ndarray, sol_ms: np.ndarray, near: Neighbours) -> np.ndarray:
    """Latency of each knot from its neighbours alone [..., knot]; NaN where they do not enclose it.

    Args:
        rule: The interpolant.
        knots: Coordinates, ascending [knot].
        latency_ms: Latency, NaN where there is none [..., knot].
        sol_ms: Roofline [..., knot].
        near: Neighbours of each knot, all with a latency or NaN in the answer.
    """
    lines = np.broadcast_to(knots, latency_ms.shape)
    points = [Known(*(take(x, at) for x in (lines, latency_ms, sol_ms))) for at in near.sides(rule.monotone)]
    return interpolate(rule, knots, sol_ms, points)


def interpolate(rule: Rule, knot: np.ndarray, sol_ms: np.ndarray, points: Sequence[Known]) -> np.ndarray:
    """Latency at `knot` by a rule, from points on either side, in the order of `Neighbours.sides`."""
    with np.errstate(invalid="ignore", divide="ignore"):
        x, at = [rule.place(point.knot) for point in points], rule.place(knot)
        y = [rule.value(point.latency_ms, point.sol_ms) for point in points]
        if rule.monotone:
            return rule.latency(_cubic(at, x, y), sol_ms)
        share = np.where(x[1] > x[0], (at - x[0]) / (x[1] - x[0]), 1.0)
        return rule.latency(y[0] + (y[1] - y[0]) * share, sol_ms)


def _cubic(at: np.ndarray, x: Sequence[np.ndarray], y: Sequence[np.ndarray]) -> np.ndarray:
    """Monotone cubic (Fritsch and Carlson) through two points on either side; the outer ones may be unknown."""
    width = [b - a for a, b in pairwise(x)]
    slope = [(b - a) / w for (a, b), w in zip(pairwise(y), width, strict=True)]
    at_start, at_end = _slope(slope[0], slope[1], width[0], width[1]), _slope(slope[1], slope[2], width[1], width[2])
    at_start, at_end = np.where(np.isnan(at_start), slope[1], at_start), np.where(np.isnan(at_end), slope[1], at_end)
    t = (at - x[1]) / width[1]
    start, end = (1 + 2 * t) * (1 - t) ** 2, t**2 * (3 - 2 * t)
    return start * y[1] + end * y[2] + width[1] * (t * (1 - t) ** 2 * at_start - t**2 * (1 - t) * at_end)


def _slope(left: np.ndarray, right: np.ndarray, width_left: np.ndarray, width_right: np.ndarray) -> np.ndarray:
    """Slope at a knot: the weighted harmonic mean of those on either side, zero where they differ in sign."""
    first, second = 2 * width_right + width_left, width_right + 2 * width_left
    mean = (first + second) / (first / left + second / right)
    return np.where(np.isnan(left) | np.isnan(right), np.nan, np.where(left * right > 0, mean, 0.0))


def held_ends(latency_ms: np.ndarray, sol_ms: np.ndarray, tail: int) -> np.ndarray:
    """Latency of the first and the last point of each line at the median utilisation of the next `tail` points.

    Args:
        latency_ms, sol_ms: Latency, NaN where not measured, and roofline [..., knot].
        tail: Points at an end of the rest of a line whose utilisation holds beyond it.

    Returns:
        Prediction at the two end points of lines of two points or more, NaN elsewhere [..., knot].
    """
    measured = np.isfinite(latency_ms)
    up = np.cumsum(measured, -1)
    down = up[..., -1:] - up + 1
    usable = measured & (latency_ms > 0) & (sol_ms > 0)
    utilization = np.divide(sol_ms, latency_ms, out=np.full(latency_ms.shape, np.nan), where=usable)
    held = np.full(latency_ms.shape, np.nan)
    for rank in (up, down):
        next_ones = measured & (rank > 1) & (rank <= tail + 1)
        ends = measured & (rank == 1) & next_ones.any(-1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            middle = masked_median(np.where(next_ones, utilization, np.nan))[..., None]
            held = np.where(ends, sol_ms / middle, held)
    return held


def straight_ends(knots: np.ndarray, latency_ms: np.ndarray, sol_ms: np.ndarray | None) -> np.ndarray:
    """Latency of the last point of each curve along the line of the last octave of the rest.

    Args:
        knots: Coordinates, ascending [knot].
        latency_ms: Latency, NaN where not measured [curve, knot].
        sol_ms: Roofline, whose own line bounds the slope from below [curve, knot]; None for no bound.

    Returns:
        Prediction at the last point of curves of three points or more, NaN elsewhere [curve, knot].
    """
    measured = np.isfinite(latency_ms)
    near = neighbours(measured)
    ends = measured & (near.above == NO_KEY) & (near.beyond().below != NO_KEY)
    row, last = np.nonzero(ends)
    at = near.below[row, last]
    half = neighbour_keys(measured)[0][row, np.searchsorted(knots, knots[at] / 2, side="right")]
    start = np.where(half == NO_KEY, measured.argmax(-1)[row], half)

    def slope(values: np.ndarray) -> np.ndarray:
        return np.maximum((values[row, at] - values[row, start]) / (knots[at] - knots[start]), 0.0)

    steepest = slope(latency_ms) if sol_ms is None else np.maximum(slope(latency_ms), slope(sol_ms))
    predicted = np.full(latency_ms.shape, np.nan)
    predicted[row, last] = latency_ms[row, at] + steepest * (knots[last] - knots[at])
    return predicted
