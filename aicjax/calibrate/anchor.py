# SPDX-License-Identifier: Apache-2.0
"""Predictions given a few measured points: the levels of curves and groups, by empirical Bayes.

One measured point of a curve says something of its other loads, and something of the other curves of its group. How
much is learned from servers measured before (`spread`): a level moves by the share of an error that usually is a level.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aicjax.calibrate.levels import Nesting, Residuals
from aicjax.calibrate.measurements import LAYOUT_COLUMNS, Flags, Floats, Ints, Measurements
from aicjax.calibrate.spread import Spread, left_over, of_kinds, spread

CURVE_COLUMNS = (  # what rows of one curve share: everything but the load
    *("model_path", "model_family", "system", "backend", "backend_version", "image", "source", "precision", "mode"),
    *("gemm_quant_mode", "moe_quant_mode", "isl", "osl"),
    *LAYOUT_COLUMNS,
)
GROUP_COLUMNS = ("model_family", "system", "backend", "mode")


class Corrected(NamedTuple):
    """Predictions with what is known of their errors, as logarithms [row, quantity].

    Attributes:
        log_times: ln(ttft, tpot), levels included; NaN without a prediction.
        covariance: Of the errors that are left [row, 2, 2].
        tails: 10 % and 90 % quantile of the errors, relative to their standard deviation [row, 2, 2].
    """

    log_times: Floats
    covariance: Floats
    tails: Floats

    def take(self, rows: Flags) -> "Corrected":
        """The chosen rows."""
        return Corrected(self.log_times[rows], self.covariance[rows], self.tails[rows])

    @property
    def times_ms(self) -> Floats:
        """TTFT and TPOT [row, quantity]."""
        return np.exp(self.log_times)

    @property
    def range_ms(self) -> tuple[Floats, Floats]:
        """10 % and 90 % quantile of TTFT and TPOT [row, quantity]."""
        deviation = np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))
        low, high = (np.exp(self.log_times + tail * deviation) for tail in np.moveaxis(self.tails, 2, 0))
        return low, high


class Corpus(NamedTuple):
    """Measured rows and what predictions say of them.

    Attributes:
        residuals: ln(measured / predicted) of each row.
        nesting: Curves and groups.
        kinds: Name of each kind.
        anchors: The middle load of each curve [row, quantity].
    """

    residuals: Residuals
    nesting: Nesting
    kinds: tuple[str, ...]
    anchors: Flags

    @classmethod
    def of(
        cls, rows: Measurements, ttft_ms: Floats, tpot_ms: Floats, groups: Sequence[str] = GROUP_COLUMNS
    ) -> "Corpus":
        """The corpus of measured rows; TTFT is not used where requests waited for a place.

        Args:
            rows: Measured servers.
            ttft_ms, tpot_ms: Predictions [row]; NaN where there is none.
            groups: Columns that the rows of one group share.
        """
        predicted, measured = np.stack([ttft_ms, tpot_ms], 1), np.stack([rows.ttft_ms, rows.tpot_ms], 1)
        answered = np.isfinite(predicted) & (predicted > 0)
        usable = answered & np.stack([~rows.queue_saturated, np.ones(len(rows), bool)], 1)
        log_ratio = np.log(np.where(answered, measured / np.where(answered, predicted, 1.0), 1.0))
        load = rows.codes((*CURVE_COLUMNS, "concurrency"))
        weight = 1.0 / np.bincount(load)[load]
        kinds, kind = np.unique(_kinds(rows), return_inverse=True)
        group, curve = rows.codes(groups), rows.codes(CURVE_COLUMNS)
        nesting = Nesting(curve, group[_first(curve)], kind[_first(group)])
        anchors = np.stack([middle_loads(rows, known)[0] for known in usable.T], 1)
        return cls(Residuals(log_ratio, usable, weight), nesting, tuple(str(name) for name in kinds), anchors)

    def take(self, rows: Flags) -> "Corpus":
        """The chosen rows, with their curves and groups; kinds stay as they are."""
        kept, curve = np.unique(self.nesting.curve[rows], return_inverse=True)
        groups, group = np.unique(self.nesting.group[kept], return_inverse=True)
        nesting = Nesting(curve, group, self.nesting.kind[groups])
        return Corpus(self.residuals.take(rows), nesting, self.kinds, self.anchors[rows])

    def spread(self, constants: Floats | None = None) -> Spread:
        """Variances and tails of the residuals, which are those of a cross-validation.

        Args:
            constants: Covariance of each row by what the fit left open [row, 2, 2]; none by default.
        """
        return spread(self.residuals, self.nesting, self.kinds, self.anchors, constants)


def middle_loads(rows: Measurements, usable: Flags) -> tuple[Flags, Flags]:
    """The anchors of a score: the middle concurrency of each curve, the upper one of an even number.

    Args:
        rows: Measured servers.
        usable: Rows to take part [row].

    Returns:
        Rows at the anchors, and rows to score: the others of curves with more than one concurrency [row].
    """
    is_anchor, scored = np.zeros((2, len(rows)), bool)
    at = np.flatnonzero(usable)
    if at.size:
        kept = rows.take(at)
        curve = kept.codes(CURVE_COLUMNS)
        points = np.unique(np.stack([curve, kept.concurrency]), axis=1)
        count = np.bincount(points[0])
        middle = points[1][np.cumsum(count) - count + count // 2]
        is_anchor[at] = kept.concurrency == middle[curve]
        scored[at] = ~is_anchor[at] & (count[curve] > 1)
    return is_anchor, scored


def corrected(corpus: Corpus, ttft_ms: Floats, tpot_ms: Floats, found: Spread, *, with_anchor: bool) -> Corrected:
    """Predictions and their errors, where nothing is measured or the anchors of all curves.

    Args:
        corpus: The rows.
        ttft_ms, tpot_ms: Predictions [row].
        found: Errors of unseen servers.
        with_anchor: Whether the anchors are known.
    """
    known = corpus.anchors if with_anchor else np.zeros_like(corpus.anchors)
    level, left = left_over(corpus.residuals, corpus.nesting, of_kinds(found, corpus.kinds), known)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_times = np.log(np.stack([ttft_ms, tpot_ms], 1)) + level
    tails = found.anchored_tails if with_anchor else found.tails
    return Corrected(log_times, left, np.broadcast_to(tails, (len(left), *tails.shape)))


def by_fold(corpus: Corpus, ttft_ms: Floats, tpot_ms: Floats, fold: Ints) -> tuple[Corrected, Corrected]:
    """Predictions of a cross-validation without and with anchors, each fold with the spread of the other folds.

    Args:
        corpus: The rows.
        ttft_ms, tpot_ms: Predictions of a cross-validation, each row by constants fitted without its fold [row].
        fold: Fold of each row; rows of one group share it [row].
    """
    shape = corpus.anchors.shape
    whole = [Corrected(*(np.full((*shape, *more), np.nan) for more in ((), (2,), (2,)))) for _ in range(2)]
    for number in np.unique(fold):
        own = fold == number
        found, part = corpus.take(~own).spread(), corpus.take(own)
        for with_anchor in (False, True):
            values = corrected(part, ttft_ms[own], tpot_ms[own], found, with_anchor=with_anchor)
            for target, source in zip(whole[with_anchor], values, strict=True):
                target[own] = source
    return whole[0], whole[1]


def _kinds(rows: Measurements) -> list[str]:
    """Engine and mode of each row; rows whose load nobody published are kinds of their own."""
    load = np.where(rows.harness == "unknown", "/unknown load", "")
    return [f"{backend}/{mode}{of}" for backend, mode, of in zip(rows.backend, rows.mode, load, strict=True)]


def _first(code: Ints) -> Ints:
    return np.unique(code, return_index=True)[1]
