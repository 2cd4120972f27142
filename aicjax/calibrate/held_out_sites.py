# SPDX-License-Identifier: Apache-2.0
"""Whole curves of a table left out and predicted from the other curves, in closed form.

A curve lends its utilisation at the same tokens, by the rules of `interp.sites`.
"""

from collections.abc import Callable

import numpy as np

from aicjax.calibrate.measured_curves import CurveTable
from aicjax.interp.curve import spanned_latency
from aicjax.interp.sites import FIT_NEIGHBOURS, GATE_OCTAVES, NEIGHBOURS, plane_weights

FAR = np.inf


def log2_offsets(sites: np.ndarray) -> np.ndarray:
    """Offset of every curve from every other in log2 of its coordinates [curve, other, axis]."""
    logs = np.log2(sites)
    return logs - logs[:, None]


def mean_latency(table: CurveTable, without: np.ndarray) -> np.ndarray:
    """Latency of every curve at the mean utilisation of the nearest four others [curve, knot]; as `fitted_latency`."""

    def mean(offset: np.ndarray, near: np.ndarray, utilization: np.ndarray) -> np.ndarray:
        weight = np.where(np.isfinite(near), 1.0 / (near**2 + 1e-12), 0.0)
        total = weight.sum(1, keepdims=True)
        return (weight[..., None] * utilization).sum(1) / np.where(total > 0, total, np.nan)

    return _from_nearest(table, without, NEIGHBOURS, mean)


def fitted_latency(table: CurveTable, without: np.ndarray) -> np.ndarray:
    """Latency of every curve by a plane through the utilisations of the nearest sixteen others.

    Args:
        table: Curves.
        without: Which curves are left out with each, itself among them, bool [curve, other].

    Returns:
        Prediction at all knots; NaN where no other curve that spans the knot lies within the gate [curve, knot].
    """

    def plane(offset: np.ndarray, near: np.ndarray, utilization: np.ndarray) -> np.ndarray:
        used = np.isfinite(near)
        some = used.any(-1)
        value = np.full((len(near), utilization.shape[-1]), np.nan)
        offset, used, logs = offset[some], used[some], np.log(utilization[some])
        fitted = np.einsum("cs,csk->ck", plane_weights(offset, used), np.where(used[..., None], logs, 0.0))
        low, high = (np.where(used[..., None], logs, bound) for bound in (np.inf, -np.inf))
        value[some] = np.exp(np.clip(fitted, low.min(1), high.max(1)))
        return value

    return _from_nearest(table, without, FIT_NEIGHBOURS, plane)


def _from_nearest(table: CurveTable, without: np.ndarray, count: int, rule: Callable[..., np.ndarray]) -> np.ndarray:
    """Prediction by a rule of `(offset, distance, utilisation)` of the nearest curves [curve, neighbour, ...]."""
    latency = spanned_latency(table.knots, table.latency_ms)
    utilization = table.sol_ms / latency
    offset = log2_offsets(table.sites)
    distance = np.where(without, FAR, np.sqrt((offset**2).sum(-1)))
    predicted = np.full(latency.shape, np.nan)
    patterns, pattern_of = np.unique(np.isfinite(latency), axis=1, return_inverse=True)
    for pattern, spans in enumerate(patterns.T):
        knots = np.flatnonzero(pattern_of.reshape(-1) == pattern)
        away = np.where(spans & (distance <= GATE_OCTAVES), distance, FAR)
        nearest = np.argsort(away, -1, kind="stable")[:, :count]
        near = np.take_along_axis(away, nearest, -1)
        lent = np.where(np.isfinite(near)[..., None], utilization[:, knots][nearest], 1.0)
        places = np.take_along_axis(offset, nearest[..., None], 1)
        predicted[:, knots] = table.sol_ms[:, knots] / rule(places, near, lent)
    return predicted
