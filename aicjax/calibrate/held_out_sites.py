# SPDX-License-Identifier: Apache-2.0
"""Whole curves of a table left out and predicted from the other curves, in closed form.

A curve lends its utilisation at the same tokens. Rules are those of `interp.sites`: the mean of the nearest four
shapes, or the fit through more of them; and that of estimates, the one nearest shape.
"""

import numpy as np

from aicjax.calibrate.held_out import take
from aicjax.calibrate.measured_curves import CurveTable
from aicjax.interp.axis import NO_KEY, neighbour_keys
from aicjax.interp.sites import GATE_OCTAVES, NEIGHBOURS

FAR = np.inf


def spanned_latency(knots: np.ndarray, latency_ms: np.ndarray) -> np.ndarray:
    """Latency of each curve at all shared knots within its range, linear between its own; NaN beyond [curve, knot]."""
    lower, upper = neighbour_keys(np.isfinite(latency_ms))
    lower, upper = lower[..., 1:], upper[..., :-1]  # at or below, and at or above, each knot
    first, second = take(latency_ms, lower), take(latency_ms, upper)
    low, high = knots[np.maximum(lower, 0)], knots[np.maximum(upper, 0)]
    share = np.where(upper > lower, (knots - low) / np.where(upper > lower, high - low, 1.0), 0.0)
    return np.where((lower == NO_KEY) | (upper == NO_KEY), np.nan, first + (second - first) * share)


def log2_offsets(sites: np.ndarray) -> np.ndarray:
    """Offset of every curve from every other in log2 of its coordinates [curve, other, axis]."""
    logs = np.log2(sites)
    return logs - logs[:, None]


def lent_latency(table: CurveTable, without: np.ndarray) -> np.ndarray:
    """Latency of every curve from the nearest four others that span the same tokens [curve, knot].

    Args:
        table: Curves.
        without: Which curves are left out with each, itself among them, bool [curve, other].

    Returns:
        Prediction at all knots; NaN where no other curve lies within the gate.
    """
    latency = spanned_latency(table.knots, table.latency_ms)
    utilization = table.sol_ms / latency
    distance = np.where(without, FAR, np.sqrt((log2_offsets(table.sites) ** 2).sum(-1)))
    predicted = np.full(latency.shape, np.nan)
    patterns, pattern_of = np.unique(np.isfinite(latency), axis=1, return_inverse=True)
    for pattern, spans in enumerate(patterns.T):
        knots = np.flatnonzero(pattern_of.reshape(-1) == pattern)
        away = np.where(spans & (distance <= GATE_OCTAVES), distance, FAR)
        nearest = np.argsort(away, -1, kind="stable")[:, :NEIGHBOURS]
        near = np.take_along_axis(away, nearest, -1)
        weight = np.where(np.isfinite(near), 1.0 / (near**2 + 1e-12), 0.0)
        lent = np.where(weight[..., None] > 0, utilization[:, knots][nearest], 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (weight[..., None] * lent).sum(1) / weight.sum(1)[:, None]
            predicted[:, knots] = table.sol_ms[:, knots] / mean
    return predicted
