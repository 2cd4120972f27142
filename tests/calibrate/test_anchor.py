# SPDX-License-Identifier: Apache-2.0
"""Predictions given anchors: on a corpus whose levels are known, and in the limits."""

import dataclasses

import numpy as np
import pytest

from aicjax.calibrate import score
from aicjax.calibrate.anchor import Corpus, Corrected, by_fold, corrected, middle_loads
from aicjax.calibrate.levels import Components
from aicjax.calibrate.measurements import Measurements, read_measurements
from aicjax.calibrate.spread import NORMAL, Spread, of_kinds

ROWS = read_measurements()
FAMILIES, CURVES, LOADS = 24, 5, 5
Times = tuple[np.ndarray, np.ndarray]
Folds = tuple[Corrected, Corrected]
LEVEL_OF_FAMILY, LEVEL_OF_CURVE, NOISE = 0.3, 0.2, 0.05


@pytest.fixture(scope="module")
def rows() -> Measurements:
    """Servers of made-up families: 100 and 10 ms, times a level of the family, one of the curve, and noise."""
    count = FAMILIES * CURVES * LOADS
    family, curve, load = np.unravel_index(np.arange(count), (FAMILIES, CURVES, LOADS))
    first = ROWS.take(np.repeat(np.flatnonzero(ROWS.is_agg & ROWS.clean & (ROWS.harness != "unknown"))[:1], count))
    random = np.random.default_rng(0)
    levels = random.normal(0, LEVEL_OF_FAMILY, (FAMILIES, 2))[family]
    levels = levels + random.normal(0, LEVEL_OF_CURVE, (FAMILIES, CURVES, 2))[family, curve]
    times_ms = np.array([100.0, 10.0]) * np.exp(levels + random.normal(0, NOISE, (count, 2)))
    return dataclasses.replace(
        first,
        model_family=np.char.add("family", family.astype(str)),
        isl=1000 + curve,
        concurrency=2**load,
        ttft_ms=times_ms[:, 0],
        tpot_ms=times_ms[:, 1],
        queue_saturated=np.zeros(count, bool),
    )


@pytest.fixture(scope="module")
def predicted(rows: Measurements) -> Times:
    return np.full(len(rows), 100.0), np.full(len(rows), 10.0)


@pytest.fixture(scope="module")
def folds(rows: Measurements, predicted: Times) -> Folds:
    return by_fold(Corpus.of(rows, *predicted), *predicted, rows.codes(("model_family",)))


def test_spread_of_a_corpus_is_that_of_its_levels(rows: Measurements, predicted: Times):
    found = Corpus.of(rows, *predicted).spread()
    assert found.kinds == (f"{rows.backend[0]}/agg",)
    deviations = [np.sqrt(np.diagonal(values[0])) for values in found.components[:2]]
    np.testing.assert_allclose(deviations[0], LEVEL_OF_FAMILY, rtol=0.35)
    np.testing.assert_allclose(deviations[1], LEVEL_OF_CURVE, rtol=0.2)


def test_an_anchor_beats_no_anchor_and_the_plain_factor(rows: Measurements, predicted: Times, folds: Folds):
    def mean_error(**options) -> float:
        found = score.score(rows, *predicted, **options)
        return found["ttft"]["mape"] + found["tpot"]["mape"]

    plain, without = mean_error(with_anchor=True), mean_error(corrected=folds[0])
    anchored = mean_error(with_anchor=True, corrected=folds[1])
    assert anchored < plain < without / 3
    assert without == pytest.approx(mean_error())


@pytest.mark.parametrize("with_anchor", [False, True])
def test_eight_of_ten_times_of_unseen_families_are_in_their_range(
    rows: Measurements, predicted: Times, folds: Folds, with_anchor: bool
):
    found = score.score(rows, *predicted, with_anchor=with_anchor, corrected=folds[with_anchor])
    for share in found["interval_coverage"].values():
        assert share == pytest.approx(0.8, abs=0.06)


def test_an_anchor_narrows_the_range(folds: Folds):
    low, high = (np.log(values) for values in folds[0].range_ms)
    anchored_low, anchored_high = (np.log(values) for values in folds[1].range_ms)
    assert np.all(anchored_high - anchored_low < 0.5 * (high - low))


def test_units_do_not_matter(rows: Measurements, predicted: Times, folds: Folds):
    in_s = dataclasses.replace(rows, ttft_ms=rows.ttft_ms / 1000)
    times = predicted[0] / 1000, predicted[1]
    found = by_fold(Corpus.of(in_s, *times), *times, rows.codes(("model_family",)))[1]
    np.testing.assert_allclose(found.times_ms * [1000, 1], folds[1].times_ms, rtol=1e-9)


def test_without_spread_of_levels_anchors_change_nothing(rows: Measurements, predicted: Times):
    corpus = Corpus.of(rows, *predicted)
    nothing, noise = np.full((1, 2, 2), 1e-12) * np.eye(2), np.eye(2)[None] * 0.01
    rigid = Spread(
        Components(nothing, nothing, noise), np.tile(NORMAL, (2, 1)), np.tile(NORMAL, (2, 1)), 0 * noise, corpus.kinds
    )
    found = corrected(corpus, *predicted, rigid, with_anchor=True)
    np.testing.assert_allclose(found.times_ms, np.stack(predicted, 1), rtol=1e-6)


def test_without_noise_an_anchor_is_the_plain_factor(rows: Measurements, predicted: Times):
    corpus = Corpus.of(rows, *predicted)
    wide, noise = np.eye(2)[None] * 25.0, np.eye(2)[None] * 1e-8
    free = Spread(
        Components(wide, wide, noise), np.tile(NORMAL, (2, 1)), np.tile(NORMAL, (2, 1)), 0 * noise, corpus.kinds
    )
    found = corrected(corpus, *predicted, free, with_anchor=True)
    exact = score.anchored(rows, predicted[1], rows.tpot_ms, np.ones(len(rows), bool))
    scored = np.isfinite(exact)
    np.testing.assert_allclose(found.times_ms[scored, 1], exact[scored], rtol=1e-3)


@pytest.mark.parametrize(("factor", "least", "most"), [(30.0, 0.5, 4.0), (1 / 30.0, 1 / 40, 1 / 15)])
def test_a_measurement_far_off_is_followed_down_but_not_up(
    rows: Measurements, predicted: Times, factor: float, least: float, most: float
):
    found = Corpus.of(rows, *predicted).spread()
    first = np.arange(len(rows)) < LOADS
    far = dataclasses.replace(
        rows, ttft_ms=np.where(first, 100 * factor, rows.ttft_ms), tpot_ms=np.where(first, 10.0, rows.tpot_ms)
    )
    times = corrected(Corpus.of(far, *predicted), predicted[0], predicted[1], found, with_anchor=True).times_ms
    assert np.all((least < times[:LOADS, 0] / 100) & (times[:LOADS, 0] / 100 < most))


def test_anchors_are_middle_loads_and_never_scored(rows: Measurements):
    is_anchor, scored = middle_loads(rows, np.ones(len(rows), bool))
    np.testing.assert_array_equal(is_anchor, rows.concurrency == 4)
    np.testing.assert_array_equal(scored, ~is_anchor)


def test_a_kind_that_was_not_measured_has_the_mean_variance(rows: Measurements, predicted: Times):
    found = Corpus.of(rows, *predicted).spread()
    known, unknown = (of_kinds(found, [kind]) for kind in (found.kinds[0], "vllm/disagg"))
    for one, other in zip(known, unknown, strict=True):
        np.testing.assert_allclose(one, other)


def test_saturated_ttft_is_neither_used_nor_needed(rows: Measurements, predicted: Times):
    saturated = dataclasses.replace(rows, queue_saturated=rows.concurrency == 4)
    corpus = Corpus.of(saturated, *predicted)
    assert not corpus.residuals.usable[rows.concurrency == 4, 0].any()
    assert not (corpus.anchors & ~corpus.residuals.usable).any()
    np.testing.assert_array_equal(corpus.anchors[:, 0], rows.concurrency == 8)
    assert np.all(np.isfinite(corrected(corpus, *predicted, corpus.spread(), with_anchor=True).log_times))


def test_ranges_without_anchors_leave_a_score_as_it_is(rows: Measurements, predicted: Times):
    rows = dataclasses.replace(rows, queue_saturated=np.arange(len(rows)) % 3 == 0)
    corpus = Corpus.of(rows, *predicted)
    ranged = score.score(rows, *predicted, corrected=corrected(corpus, *predicted, corpus.spread(), with_anchor=False))
    plain = score.score(rows, *predicted)
    assert ranged["interval_coverage"] is not None and plain["interval_coverage"] is None
    for quantity in ("ttft", "tpot", "throughput"):
        assert ranged[quantity] == pytest.approx(plain[quantity])


def test_a_row_without_a_prediction_has_none(rows: Measurements, predicted: Times):
    ttft_ms = predicted[0].copy()
    ttft_ms[0] = np.nan
    corpus = Corpus.of(rows, ttft_ms, predicted[1])
    found = corrected(corpus, ttft_ms, predicted[1], corpus.spread(), with_anchor=False)
    assert np.isnan(found.times_ms[0, 0]) and np.isfinite(found.times_ms).sum() == 2 * len(rows) - 1
