# SPDX-License-Identifier: Apache-2.0
"""Scores against numbers worked out by hand."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.calibrate import score
from aicjax.calibrate.measurements import Measurements, read_measurements

ROWS = read_measurements()


def _rows(count: int, **changed) -> Measurements:
    """Copies of one in-flight batching row with the changed columns; each runs on GPUs of its own number."""
    first = ROWS.take(np.repeat(np.flatnonzero(ROWS.is_agg & ROWS.clean & ~ROWS.queue_saturated)[:1], count))
    return dataclasses.replace(first, **{name: np.asarray(values) for name, values in changed.items()})


def test_errors_by_hand():
    found = score.errors(np.array([110.0, 80.0, 100.0, np.nan]), np.array([100.0, 100.0, 50.0, 1.0]))
    assert found.rows == 3
    assert found.mape == pytest.approx((10 + 20 + 100) / 3)
    assert found.median == pytest.approx(20)
    assert found.bias == pytest.approx(np.log(1.1 * 0.8 * 2) / 3)


def test_no_rows_have_no_errors():
    assert score.errors(np.array([np.nan]), np.array([1.0])) == (None, None, None, 0)


def test_throughput_is_littles_law():
    rows = _rows(2, concurrency=[8, 8], osl=[101, 101], num_gpus=[4, 0])
    found = score.tokens_per_s_per_gpu(rows, np.full(2, 500.0), np.full(2, 15.0))
    assert found[0] == pytest.approx(8 * 101 / 2.0 / 4)  # a request takes 0.5 s + 100 x 15 ms
    assert np.isnan(found[1])


def test_ranking_by_hand():
    # One set of four configurations, one of which was measured twice, and a set too small to count.
    rows = _rows(7, num_gpus=[1, 2, 3, 4, 4, 1, 2], concurrency=[8] * 5 + [16] * 2)
    measured = np.array([10.0, 20.0, 30.0, 32.0, 50.0, 1.0, 2.0])  # the fourth is 40, its geometric mean
    predicted = np.array([1.0, 2.0, 5.0, 4.0, 4.0, 2.0, 1.0])
    found = score.rank_at_fixed_concurrency(rows, predicted, measured)
    assert found.sets == 1
    assert found.tau == pytest.approx((5 - 1) / 6)
    assert found.first_pick_loss == pytest.approx(25)


def test_ties_count_as_neither():
    rows = _rows(3, num_gpus=[1, 2, 3])
    found = score.rank_at_fixed_concurrency(rows, np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    assert found.tau == pytest.approx(2 / 3)


@given(st.lists(st.floats(1, 100), min_size=3, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_tau_is_that_of_the_pairs(values, random):
    measured, predicted = np.array(values), np.array(random.sample(values, len(values)))
    rows = _rows(len(values), num_gpus=np.arange(len(values)) + 1)
    pairs = list(itertools.combinations(range(len(values)), 2))
    agree = [np.sign((predicted[i] - predicted[j]) * (measured[i] - measured[j])) for i, j in pairs]
    found = score.rank_at_fixed_concurrency(rows, predicted, measured)
    assert found.tau == pytest.approx(sum(agree) / len(pairs))
    exact = score.rank_at_fixed_concurrency(rows, measured, measured)
    assert (exact.tau, exact.first_pick_loss) == (pytest.approx(1), pytest.approx(0, abs=1e-9))


def test_ranking_without_sets_is_none():
    assert score.rank_at_fixed_concurrency(_rows(2), np.ones(2), np.ones(2)) == (None, None, 0)
    assert score.rank_at_fixed_concurrency(_rows(2), np.full(2, np.nan), np.ones(2)) == (None, None, 0)


def test_anchor_is_the_middle_of_the_curve():
    # Two curves (isl) of three and two concurrencies; one point is a curve of its own.
    rows = _rows(7, isl=[10, 10, 10, 10, 20, 20, 30], concurrency=[4, 8, 8, 16, 4, 8, 4])
    predicted = np.array([1.0, 2.0, 2.0, 4.0, 1.0, 2.0, 1.0])
    measured = np.array([3.0, 4.0, 9.0, 12.0, 3.0, 8.0, 5.0])
    found = score.anchored(rows, predicted, measured, np.ones(7, bool))
    factor = np.sqrt(4.0 * 9.0) / 2
    np.testing.assert_allclose(found, [factor, np.nan, np.nan, 4 * factor, 4.0, np.nan, np.nan])


def test_rows_that_take_no_part_are_no_anchors():
    rows = _rows(3, concurrency=[4, 8, 16])
    found = score.anchored(rows, np.ones(3), np.array([2.0, 3.0, 4.0]), np.array([True, False, True]))
    np.testing.assert_allclose(found, [4.0, np.nan, np.nan])


def test_curves_that_are_off_by_a_factor_are_exact_after_an_anchor():
    rows = _rows(6, isl=[10] * 3 + [20] * 3, concurrency=[1, 2, 4] * 2)
    factor = np.array([2.0] * 3 + [0.3] * 3)
    found = score.score(rows, rows.ttft_ms * factor, rows.tpot_ms / factor, with_anchor=True)
    assert (found["ttft"]["rows"], found["tpot"]["rows"], found["coverage"]) == (4, 4, 1.0)
    assert found["ttft"]["mape"] == pytest.approx(0, abs=1e-9)
    assert found["tpot"]["mape"] == pytest.approx(0, abs=1e-9)


def test_score_counts_answers_and_leaves_saturated_ttft_out():
    rows = _rows(4, queue_saturated=[False, True, False, False])
    ttft_ms = rows.ttft_ms * np.array([2.0, 9.0, 1.0, np.nan])
    found = score.score(rows, ttft_ms, rows.tpot_ms)
    assert found["coverage"] == 0.75
    assert found["ttft"] == {"mape": 50.0, "median": 50.0, "bias": pytest.approx(np.log(2) / 2), "rows": 2}
    assert found["interval_coverage"] is None


def test_groups_split_the_rows():
    rows = _rows(3, backend=["vllm", "trtllm", "vllm"])
    found = score.grouped(rows, rows.ttft_ms * np.array([1, 2, 1]), rows.tpot_ms, "backend")
    assert {name: values["ttft"]["rows"] for name, values in found.items()} == {"trtllm": 1, "vllm": 2}
    assert found["trtllm"]["ttft"]["mape"] == pytest.approx(100)
