# SPDX-License-Identifier: Apache-2.0
"""What a search found beyond a coarser grid of candidates, both under the same model."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame


def score(best: Frame) -> float:
    """What top rows are compared by: throughput of the budget, or one over the GPUs of a load; 0 without rows."""
    if frames.length(best) == 0:
        return 0.0
    first = frames.row(best, 0)
    needed = first.get("total_gpus_needed")
    return 1.0 / needed if needed else first[frames.CLUSTER]


@dataclass(frozen=True)
class Baseline:
    """The same experiment on a coarser grid, from the same step times.

    Attributes:
        grid: Name of that grid.
        best: Top rows.
        meets_target: Whether they meet the limit of the request.
    """

    grid: str
    best: Frame
    meets_target: bool

    @classmethod
    def first(cls, baselines: Iterable["Baseline | None"]) -> "Baseline | None":
        """The best of several; None without any."""
        known = [baseline for baseline in baselines if baseline is not None]
        return max(known, key=lambda baseline: (baseline.meets_target, score(baseline.best)), default=None)


@dataclass(frozen=True)
class GridGain:
    """The best row of a search or an experiment beside the best one of a coarser grid.

    Attributes:
        grid, base: Names of the grids.
        percent: By how much the score is higher; None where only one of the rows meets the limits, or the coarser grid
            has none.
        base_meets_target: Whether the row of the coarser grid meets the limits.
        best, base_best: The rows, one each; `base_best` is without rows where the coarser grid has none.
    """

    grid: str
    base: str
    percent: float | None
    base_meets_target: bool
    best: Frame
    base_best: Frame

    @classmethod
    def over(cls, baseline: Baseline | None, grid: str, best: Frame, meets_target: bool) -> "GridGain | None":
        """The gain of top rows over a baseline; None without the one or the other."""
        if baseline is None or frames.length(best) == 0:
            return None
        first, base_score = np.zeros(1, np.int64), score(baseline.best)
        comparable = base_score > 0 and baseline.meets_target == meets_target
        return cls(
            grid=grid,
            base=baseline.grid,
            percent=100 * (score(best) / base_score - 1) if comparable else None,
            base_meets_target=baseline.meets_target,
            best=frames.take(best, first),
            base_best=frames.take(baseline.best, first[: frames.length(baseline.best)]),
        )
