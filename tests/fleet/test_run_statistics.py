# SPDX-License-Identifier: Apache-2.0
"""Percentiles and intervals of runs: ranks, empty sets, coverage with and without correlation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from aicjax.fleet.statistics import (
    after_warm_up,
    mean_interval,
    nearest_rank,
    quantile_interval,
    share_interval,
    student_t,
)


@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize("degrees", [4, 9, 19, 200])
def test_student_quantile(degrees: int, confidence: float):
    share = (1.0 + confidence) / 2.0
    assert student_t(share, degrees) == pytest.approx(stats.t.ppf(share, degrees), rel=3e-3)


@given(
    samples=st.lists(st.floats(0.0, 1e6, width=32), min_size=1, max_size=50),
    hundredths=st.integers(1, 100),
)
def test_nearest_rank_is_the_least_sample_that_the_share_does_not_exceed(samples: list[float], hundredths: int):
    found = nearest_rank(np.array(samples), hundredths / 100)
    assert found in samples
    assert 100 * sum(x <= found for x in samples) >= hundredths * len(samples)
    assert 100 * sum(x < found for x in samples) < hundredths * len(samples)


def test_ranks_of_exact_shares():
    hundred = np.arange(1.0, 101.0)
    assert [nearest_rank(hundred, share) for share in (0.07, 0.29, 0.57, 0.99, 1.0)] == [7, 29, 57, 99, 100]
    assert nearest_rank(np.array([5.0]), 0.5) == 5


def test_sets_without_requests_have_no_percentile_and_no_interval():
    assert nearest_rank(np.empty((3, 0)), 0.99) is None
    for empty in (np.empty((4, 0)), np.empty((0, 100)), np.ones((1, 10))):
        assert mean_interval(empty) is None
        assert quantile_interval(empty, 0.99) is None


def test_the_first_fifth_of_every_run_is_warm_up():
    assert after_warm_up(np.arange(20).reshape(2, 10)).tolist() == [[*range(2, 10)], [*range(12, 20)]]
    assert after_warm_up(np.arange(10), 0.5).tolist() == [5, 6, 7, 8, 9]


def test_equal_samples_have_an_interval_without_width():
    for interval in (mean_interval(np.full((3, 40), 2.5)), quantile_interval(np.full((3, 40), 2.5), 0.99)):
        assert interval is not None
        assert (interval.low, interval.value, interval.high) == (2.5, 2.5, 2.5)


def test_a_share_and_its_interval_lie_between_0_and_1():
    holds = np.zeros((2, 200), bool)
    holds[0, :40] = True
    for samples, value in ((holds, 0.1), (~holds, 0.9)):
        plain, interval = mean_interval(samples), share_interval(samples)
        assert plain is not None and interval is not None
        assert plain.low < 0 or plain.high > 1
        assert interval.value == pytest.approx(value)
        assert (interval.low, interval.high) == (max(plain.low, 0), min(plain.high, 1))
    assert share_interval(np.zeros((2, 0), bool)) is None


def test_axes_before_runs_are_kept():
    samples = np.random.default_rng(0).exponential(1.0, (2, 3, 4, 500))
    for statistic in (mean_interval, lambda cut: quantile_interval(cut, 0.9)):
        together = statistic(samples)
        alone = statistic(samples[1, 2])
        assert together is not None
        assert alone is not None
        assert together.low.shape == (2, 3)
        np.testing.assert_allclose([end[1, 2] for end in together], alone)


@pytest.mark.parametrize("runs", [1, 5, 40])
def test_intervals_of_independent_samples_hold_the_truth_as_often_as_they_say(runs: int):
    samples = np.random.default_rng(runs).exponential(1.0, (2000, runs, 4000 // runs))
    for truth, interval in ((1.0, mean_interval(samples)), (np.log(10.0), quantile_interval(samples, 0.9))):
        assert interval is not None
        covered = np.mean((interval.low <= truth) & (truth <= interval.high))
        assert covered == pytest.approx(0.955, abs=0.02)
        assert np.all(interval.low < interval.value)
        assert np.all(interval.value < interval.high)


@pytest.mark.parametrize("kept", [0.9, 0.99])
def test_intervals_of_correlated_samples_hold_the_truth_as_often_as_they_say(kept: float):
    rng = np.random.default_rng(0)
    noise = rng.normal(0.0, 1.0, (10_000, 400))
    level = np.empty_like(noise)
    level[0] = noise[0]
    for step in range(1, len(noise)):
        level[step] = kept * level[step - 1] + np.sqrt(1.0 - kept**2) * noise[step]
    samples = level.T[:, None, :]
    for truth, interval in ((0.0, mean_interval(samples)), (stats.norm.ppf(0.9), quantile_interval(samples, 0.9))):
        assert interval is not None
        assert np.mean((interval.low <= truth) & (truth <= interval.high)) == pytest.approx(0.95, abs=0.035)
