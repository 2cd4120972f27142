# SPDX-License-Identifier: Apache-2.0
"""How far predictions are from measurements: errors, ranking of configurations, errors after one anchor per curve."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax._units import MS_PER_S
from aicjax.calibrate.anchor import CURVE_COLUMNS, Corrected, middle_loads
from aicjax.calibrate.levels import QUANTITIES
from aicjax.calibrate.measurements import LAYOUT_COLUMNS, Flags, Floats, Measurements

FIXED_COLUMNS = ("model_family", "system", "isl", "osl", "concurrency")
CHOICE_COLUMNS = ("backend", "precision", "gemm_quant_mode", "moe_quant_mode", "mode", "num_gpus", *LAYOUT_COLUMNS)
FEWEST_CHOICES = 3


class Errors(NamedTuple):
    """Errors of predictions.

    Attributes:
        mape: Mean of |predicted / measured - 1| [%]; None without rows.
        median: Median of the same [%].
        bias: Mean of ln(predicted / measured).
        rows: Rows scored.
    """

    mape: float | None
    median: float | None
    bias: float | None
    rows: int


class Ranking(NamedTuple):
    """How well predictions order configurations under the same load.

    Attributes:
        tau: Mean Kendall tau over the sets; None without sets.
        first_pick_loss: Mean share of throughput lost by taking the configuration predicted best [%].
        sets: Sets compared.
    """

    tau: float | None
    first_pick_loss: float | None
    sets: int


def errors(predicted: Floats, measured: Floats) -> Errors:
    """Errors over the rows where both are positive numbers [row]."""
    usable = np.isfinite(predicted) & np.isfinite(measured) & (predicted > 0) & (measured > 0)
    ratio = predicted[usable] / measured[usable]
    if not ratio.size:
        return Errors(None, None, None, 0)
    percent = 100 * np.abs(ratio - 1)
    return Errors(float(percent.mean()), float(np.median(percent)), float(np.log(ratio).mean()), ratio.size)


def tokens_per_s_per_gpu(rows: Measurements, ttft_ms: Floats, tpot_ms: Floats) -> Floats:
    """Output tokens per second and GPU by Little's law: concurrency osl / (ttft + tpot (osl - 1)) / GPUs.

    Measured, predicted and peer throughput are all of this form: the sources state latencies alone.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = MS_PER_S * rows.concurrency * rows.osl / (ttft_ms + tpot_ms * (rows.osl - 1)) / rows.num_gpus
    return np.where(rows.num_gpus > 0, rate, np.nan)


def rank_at_fixed_concurrency(rows: Measurements, predicted: Floats, measured: Floats) -> Ranking:
    """Kendall tau of throughput per GPU over configurations under the same load.

    A set is all rows of one family, system, isl, osl and concurrency. Its members are configurations: backend,
    precision, recorded formats, mode, GPUs and layouts; repeats of one are averaged (logarithms). Sets of fewer than
    three members are left out. tau of a set is (concordant - discordant) / pairs, ties counting as neither; sets weigh
    alike.

    Args:
        rows: Measured servers.
        predicted, measured: Throughput per GPU [row]; rows without either are left out.
    """
    usable = np.flatnonzero(np.isfinite(predicted) & np.isfinite(measured))
    kept = rows.take(usable)
    load, choice = kept.codes(FIXED_COLUMNS), kept.codes((*FIXED_COLUMNS, *CHOICE_COLUMNS))
    _, first, member = np.unique(choice, return_index=True, return_inverse=True)
    mean = (
        [np.bincount(member, np.log(x[usable])) / np.bincount(member) for x in (predicted, measured)]
        if len(usable)
        else []
    )
    taus, losses = [], []
    for number in np.unique(load):
        members = np.flatnonzero(load[first] == number)
        if len(members) < FEWEST_CHOICES:
            continue
        guess, truth = (values[members] for values in mean)
        pairs = np.triu_indices(len(members), 1)
        agreement = np.sign(np.subtract.outer(guess, guess)[pairs]) * np.sign(np.subtract.outer(truth, truth)[pairs])
        taus.append(agreement.mean())
        losses.append(1 - np.exp(truth[np.argmax(guess)] - truth.max()))
    if not taus:
        return Ranking(None, None, 0)
    return Ranking(float(np.mean(taus)), float(100 * np.mean(losses)), len(taus))


def anchored(rows: Measurements, predicted: Floats, measured: Floats, usable: Flags) -> Floats:
    """Predictions scaled by one measured point per curve [row]; NaN for rows that are not scored.

    The factor is the geometric mean of measured / predicted over the rows at the anchor (`middle_loads`).

    Args:
        rows: Measured servers.
        predicted, measured: One quantity [row].
        usable: Rows to take part [row].
    """
    is_anchor, scored = middle_loads(rows, usable & np.isfinite(predicted) & np.isfinite(measured))
    if not scored.any():
        return np.full(len(rows), np.nan)
    curve = rows.codes(CURVE_COLUMNS)
    log_ratio = np.bincount(curve[is_anchor], np.log(measured / predicted)[is_anchor], curve.max() + 1)
    factor = np.exp(log_ratio / np.maximum(np.bincount(curve[is_anchor], minlength=curve.max() + 1), 1))
    return np.where(scored, predicted * factor[curve], np.nan)


def score(
    rows: Measurements,
    ttft_ms: Floats,
    tpot_ms: Floats,
    *,
    with_anchor: bool = False,
    corrected: Corrected | None = None,
) -> dict[str, Any]:
    """Errors, coverage and ranking of predictions over rows.

    TTFT is not scored where requests waited for a place (`queue_saturated`). `coverage` is the share of rows with an
    answer, whether or not an anchor takes them out of the score; `interval_coverage` the share of measured times
    between the 10 % and the 90 % quantile of their prediction, None where predictions are points.

    Args:
        rows: Measured servers, those to score.
        ttft_ms, tpot_ms: Predictions [row]; NaN where there is none.
        with_anchor: Whether one point of each curve is known: its middle concurrency, which is then not scored.
        corrected: Predictions with their errors, given the anchors where there are any; None scales each curve instead.
    """
    answered = np.isfinite(ttft_ms) & np.isfinite(tpot_ms)
    unsaturated = ~rows.queue_saturated
    takes_part = unsaturated & answered, answered
    coverage = None
    if corrected is not None:
        scored = [middle_loads(rows, usable)[1] for usable in takes_part] if with_anchor else takes_part
        ttft_ms, tpot_ms = corrected.times_ms.T
        if with_anchor:
            ttft_ms, tpot_ms = (np.where(s, t, np.nan) for s, t in zip(scored, (ttft_ms, tpot_ms), strict=True))
        coverage = interval_coverage(rows, corrected, np.stack(scored, 1))
    elif with_anchor:
        ttft_ms = anchored(rows, ttft_ms, rows.ttft_ms, unsaturated)
        tpot_ms = anchored(rows, tpot_ms, rows.tpot_ms, np.ones(len(rows), bool))
    measured = tokens_per_s_per_gpu(rows, rows.ttft_ms, rows.tpot_ms)
    throughput = tokens_per_s_per_gpu(rows, ttft_ms, tpot_ms)
    ranking = rank_at_fixed_concurrency(rows, throughput, measured)
    return {
        "ttft": errors(np.where(unsaturated, ttft_ms, np.nan), rows.ttft_ms)._asdict(),
        "tpot": errors(tpot_ms, rows.tpot_ms)._asdict(),
        "throughput": errors(throughput, measured)._asdict(),
        "coverage": float(answered.mean()) if len(rows) else None,
        "interval_coverage": coverage,
        "tau": ranking.tau,
        "ranking": ranking._asdict(),
    }


def interval_coverage(rows: Measurements, corrected: Corrected, scored: Flags) -> dict[str, float | None]:
    """Share of measured times between the 10 % and the 90 % quantile of their prediction.

    Args:
        rows: Measured servers.
        corrected: Predictions with their errors.
        scored: Which times to count [row, quantity].
    """
    measured = np.stack([rows.ttft_ms, rows.tpot_ms], 1)
    low, high = corrected.range_ms
    inside = (low <= measured) & (measured <= high)
    return {
        name: float(inside[which, quantity].mean()) if which.any() else None
        for quantity, (name, which) in enumerate(zip(QUANTITIES, scored.T, strict=True))
    }


def grouped(
    rows: Measurements,
    ttft_ms: Floats,
    tpot_ms: Floats,
    name: str,
    *,
    with_anchor: bool = False,
    corrected: Corrected | None = None,
) -> Mapping[str, dict[str, Any]]:
    """Scores of the rows of each value of one column."""
    values: NDArray[Any] = getattr(rows, name)
    return {
        str(value): score(
            rows.take(values == value),
            ttft_ms[values == value],
            tpot_ms[values == value],
            with_anchor=with_anchor,
            corrected=None if corrected is None else corrected.take(values == value),
        )
        for value in np.unique(values)
    }
