# SPDX-License-Identifier: Apache-2.0
"""Which points of a sweep over attention and feed-forward apart are kept for its latency targets."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.afd_fields import MIN_BATCH_LIMIT
from aicjax.explore.afd_sweep import AfdPoints
from aicjax.explore.columns import DECIMALS


class Kept(NamedTuple):
    """Points of a sweep that a target keeps.

    Attributes:
        candidate, batch: Positions [row].
    """

    candidate: NDArray[np.int64]
    batch: NDArray[np.int64]


def kept_points(points: AfdPoints, tpot_ms: NDArray[np.float64], step: int, most: int) -> list[Kept]:
    """The points kept for each target: every candidate's largest batch within it, and the low ones.

    The largest batch is found by halving, over multiples of `step`, as in AIConfigurator 0.12.0: steps grow with the
    batch but for the seams of measured tables.

    Args:
        points: All points.
        tpot_ms: Targets [target].
        step: Multiples of this are sought; smaller batches of the points are the low ones.
        most: Largest batch allowed.
    """
    limit = batch_limits(points, step, most)
    within = np.round(points.times.step_ms, DECIMALS)[:, :, None] <= tpot_ms
    passing = within & points.memory.fits[:, :, None]
    first = int(np.searchsorted(points.batches, step))
    found = _halved(passing[:, first:], limit // step)
    low = passing[:, :first] & (points.batches[:first] <= limit[:, None])[:, :, None]
    kept = []
    for target in range(len(tpot_ms)):
        taken = np.zeros(passing.shape[:2], bool)
        taken[:, :first] = low[:, :, target]
        has = found[:, target] > 0
        taken[np.flatnonzero(has), first - 1 + found[has, target]] = True
        kept.append(Kept(*np.nonzero(taken)))
    return kept


def joined(kept: Sequence[Kept], points: AfdPoints) -> Kept:
    """The points that any of several targets keeps, in the order of first appearance."""
    batches = len(points.batches)
    codes = np.concatenate([rows.candidate * batches + rows.batch for rows in kept])
    first = np.sort(np.unique(codes, return_index=True)[1])
    return Kept(codes[first] // batches, codes[first] % batches)


def batch_limits(points: AfdPoints, step: int, most: int) -> NDArray[np.int64]:
    """Largest batch tried for each candidate: what memory allows by its growth, at least the floor of the search."""
    attention = np.clip(points.memory.attention_limit // step * step, MIN_BATCH_LIMIT, most // step * step)
    ffn = np.where(points.memory.ffn_limit > 0, points.memory.ffn_limit, np.inf)
    return np.minimum(attention, ffn).astype(np.int64)


def _halved(passing: NDArray[np.bool_], limit: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of the largest passing multiple of each candidate and target, by halving from 1 to `limit`; 0 for none."""
    low = np.ones((passing.shape[0], passing.shape[2]), np.int64)
    high = np.minimum(np.broadcast_to(limit[:, None], low.shape), passing.shape[1]).copy()
    best = np.zeros_like(low)
    rows, targets = np.indices(low.shape)
    while (open_ := low <= high).any():
        middle = np.maximum((low + high) // 2, 1)
        passes = passing[rows, np.minimum(middle, passing.shape[1]) - 1, targets]
        best = np.where(open_ & passes, middle, best)
        low, high = np.where(open_ & passes, middle + 1, low), np.where(open_ & ~passes, middle - 1, high)
    return best
