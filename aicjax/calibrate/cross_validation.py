# SPDX-License-Identifier: Apache-2.0
"""How well a fit predicts servers that it has not seen: groups of one model on one system are left out whole."""

from collections.abc import Sequence

import numpy as np

from aicjax.calibrate.fit import Fitter, Vectors
from aicjax.calibrate.measurements import Flags, Floats


def cross_validate(
    fitter: Fitter, information: float, start: Vectors, folds: int | None = None
) -> tuple[Floats, Floats]:
    """TTFT and TPOT [ms] of each row, predicted by a fit that has not seen its group [row].

    Args:
        fitter: Rows and what is fitted.
        information: Weight of all rows against the prior.
        start: Where each fit starts: that of all rows.
        folds: Parts into which the groups are dealt; one for each group by default.
    """
    ttft_ms, tpot_ms = np.full((2, len(fitter.rows)), np.nan)
    for held in held_out(fitter, folds):
        found = fitter.predict(fitter.fit(~held, information, start))
        ttft_ms[held], tpot_ms[held] = (times[held] for times in found)
    return ttft_ms, tpot_ms


def held_out(fitter: Fitter, folds: int | None = None) -> list[Flags]:
    """Rows of each fold [row]; those of one group are in one fold, large groups are dealt first."""
    group = fitter.group
    size = np.bincount(group)
    order = np.argsort(-size, kind="stable")
    count = len(size) if folds is None else min(folds, len(size))
    fold = np.empty(len(size), np.int64)
    fold[order] = np.arange(len(size)) % count
    return [fold[group] == number for number in range(count)]


def choose_information(fitter: Fitter, candidates: Sequence[float]) -> float:
    """The weight of the rows against the prior with the least error on validation after a fit to the other splits.

    The error is the sum of the mean absolute logarithms of TPOT and, weighted as in the loss, of TTFT. Without
    validation rows it is the middle candidate.
    """
    validation = fitter.usable & (fitter.rows.split == "validation")
    if not validation.any() or validation.all():
        return candidates[len(candidates) // 2]
    rows, found = fitter.rows, []
    for information in candidates:
        ttft_ms, tpot_ms = fitter.predict(fitter.fit(~(rows.split == "validation"), information))
        off = [np.abs(np.log(a / b)) for a, b in ((ttft_ms, rows.ttft_ms), (tpot_ms, rows.tpot_ms))]
        of_ttft = off[0][validation & ~rows.queue_saturated].mean()
        found.append(off[1][validation].mean() + fitter.loss.ttft_weight * of_ttft)
    return candidates[int(np.argmin(found))]
