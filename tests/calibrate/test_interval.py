# SPDX-License-Identifier: Apache-2.0
"""Ranges of predictions: against exact cases, and as shares of draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.calibrate import interval
from aicjax.calibrate.levels import Components
from aicjax.calibrate.spread import NORMAL

TAILS = np.tile(NORMAL, (2, 1))
TIMES_MS = np.array([[200.0, 10.0], [400.0, 8.0]])
OSL = np.array([101.0, 101.0])
NOTHING = np.zeros((2, 2, 2))


def _parts(shared: float, own: float) -> interval.Parts:
    unit = np.broadcast_to(np.eye(2), (2, 2, 2))
    return interval.Parts(shared**2 * unit, own**2 * unit)


@given(st.floats(0.01, 0.8), st.floats(0.01, 0.8))
def test_a_range_holds_eight_of_ten_draws(shared: float, own: float):
    errors = _parts(shared, own)
    low, middle, high = interval.time_range(TIMES_MS, errors, TAILS)
    np.testing.assert_allclose(middle, TIMES_MS)
    drawn = interval.drawn_times_ms(TIMES_MS, interval.draws(errors, TAILS, np.zeros(2, int)))
    np.testing.assert_allclose(np.mean((low <= drawn) & (drawn <= high), axis=0), 0.8, atol=0.04)
    np.testing.assert_allclose(np.mean(drawn < low, axis=0), 0.1, atol=0.03)


def test_tails_stretch_each_side_alone():
    tails = np.array([[-0.5, 2.0], [-1.0, 1.0]])
    low, _, high = interval.time_range(TIMES_MS, _parts(0.0, 0.1), tails)
    np.testing.assert_allclose(np.log(low / TIMES_MS), [[-0.05, -0.1]] * 2)
    np.testing.assert_allclose(np.log(high / TIMES_MS), [[0.2, 0.1]] * 2)
    drawn = interval.draws(_parts(0.0, 0.1), tails, np.zeros(2, int))
    np.testing.assert_allclose(np.quantile(drawn, [0.1, 0.9], axis=(0, 1)), 0.1 * tails.T, atol=0.02)


def test_without_errors_a_range_is_a_point():
    errors = interval.Parts(NOTHING, NOTHING)
    np.testing.assert_array_equal(interval.time_range(TIMES_MS, errors, TAILS), np.stack([TIMES_MS] * 3))
    assert not interval.draws(errors, TAILS, np.zeros(2, int)).any()


def test_draws_have_the_covariance_of_the_parts():
    shared = np.array([[[0.09, 0.03], [0.03, 0.04]], [[0.01, -0.005], [-0.005, 0.02]]])
    own = np.broadcast_to(np.array([[0.02, 0.0], [0.0, 0.01]]), (2, 2, 2))
    drawn = interval.draws(interval.Parts(shared, own), TAILS, np.zeros(2, int), count=60_000)
    for row in range(2):
        np.testing.assert_allclose(np.cov(drawn[:, row].T), shared[row] + own[row], atol=0.003)


def test_rows_of_one_set_share_their_errors():
    together = interval.draws(_parts(0.3, 0.01), TAILS, np.zeros(2, int))
    apart = interval.draws(_parts(0.3, 0.01), TAILS, np.array([0, 1]))
    assert np.corrcoef(together[:, 0, 0], together[:, 1, 0]).min() > 0.99
    assert abs(np.mean(apart[:, 0, 0] * apart[:, 1, 0])) < 0.01


@pytest.mark.parametrize(("shared", "own", "least", "most"), [(0.5, 0.01, 0.99, 1.0), (0.0, 0.5, 0.5, 0.7)])
def test_shared_errors_do_not_blur_a_comparison(shared: float, own: float, least: float, most: float):
    times_ms = np.array([[200.0, 10.0], [220.0, 11.0]])
    drawn = interval.drawn_times_ms(times_ms, interval.draws(_parts(shared, own), TAILS, np.zeros(2, int)))
    first = interval.probability_first_is_best(1.0 / interval.request_latency_ms(drawn, OSL))
    assert first[0] == 1.0
    assert least <= first[1] <= most


def test_equal_rows_are_a_toss_up():
    times_ms = np.array([[200.0, 10.0]] * 2)
    for own in (0.0, 0.3):
        drawn = interval.drawn_times_ms(times_ms, interval.draws(_parts(0.3, own), TAILS, np.zeros(2, int)))
        first = interval.probability_first_is_best(1.0 / interval.request_latency_ms(drawn, OSL))
        assert first[1] == pytest.approx(0.5, abs=0.03)


def test_a_request_takes_its_first_token_and_a_step_for_each_other():
    np.testing.assert_allclose(interval.request_latency_ms(TIMES_MS, OSL), [1200.0, 1200.0])


def test_one_output_token_has_no_tpot():
    times_ms = np.array([[200.0, np.nan]])
    assert interval.request_latency_ms(times_ms, np.ones(1)) == pytest.approx([200.0])
    met = interval.probability_met(times_ms[None], np.ones(1), ttft_ms=300.0, tpot_ms=1.0)
    assert met == pytest.approx([1.0])


def test_probability_of_a_limit_is_the_share_of_draws():
    drawn = interval.drawn_times_ms(TIMES_MS, interval.draws(_parts(0.1, 0.1), TAILS, np.zeros(2, int)))
    at_the_prediction = interval.probability_met(drawn, OSL, ttft_ms=200.0)
    np.testing.assert_allclose(at_the_prediction, [0.5, 0.0], atol=0.03)
    both = interval.probability_met(drawn, OSL, ttft_ms=200.0, tpot_ms=10.0)
    np.testing.assert_allclose(both, [0.25, 0.0], atol=0.03)
    assert np.all(interval.probability_met(drawn, OSL) == 1.0)
    assert np.all(interval.probability_met(drawn, OSL, latency_ms=1.0) == 0.0)


def test_tables_of_operators_add_up_in_shares():
    share, common = np.array([[0.5, 0.5], [1.0, 0.0]]), np.zeros((2, 2))
    deviation = np.full((2, 2), 0.2)
    np.testing.assert_allclose(interval.table_covariance(share, deviation, common), [0.02, 0.04])
    np.testing.assert_allclose(interval.table_covariance(share, deviation, deviation), [0.04, 0.04])


def test_gradients_carry_the_covariance_of_constants():
    gradient = np.array([[[1.0, 0.0], [0.5, 2.0]]])
    found = interval.constants_covariance(gradient, np.diag([0.04, 0.01]))
    np.testing.assert_allclose(found, [[[0.04, 0.02], [0.02, 0.05]]])


def test_parts_of_usual_rows_add_up_to_the_residuals():
    group = np.broadcast_to(np.array([[0.09, 0.02], [0.02, 0.04]]), (2, 2, 2))
    components = Components(group, group / 2, group / 4)
    known = np.broadcast_to(0.01 * np.eye(2), (2, 2, 2))
    usual = interval.parts(components, known, known, 2 * known)
    np.testing.assert_allclose(usual.total, 1.75 * group)
    unsure = interval.parts(components, 5 * known, known, 2 * known)
    np.testing.assert_allclose(unsure.total - usual.total, 4 * known)
    sure = interval.parts(components, NOTHING, NOTHING, 100 * known)
    np.testing.assert_allclose(sure.shared, NOTHING, atol=1e-12)
