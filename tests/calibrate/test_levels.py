# SPDX-License-Identifier: Apache-2.0
"""Levels given measurements: against the textbook formula on whole covariance matrices, and in the limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.calibrate.levels import Components, Nesting, Residuals, posterior

NESTING = Nesting(curve=np.array([0, 0, 1, 2, 2, 2]), group=np.array([0, 0, 1]), kind=np.array([0, 1]))
COMPONENTS = Components(
    group=np.array([[[0.09, 0.02], [0.02, 0.04]], [[0.05, 0.0], [0.0, 0.06]]]),
    curve=np.array([[[0.04, -0.01], [-0.01, 0.02]], [[0.03, 0.01], [0.01, 0.01]]]),
    noise=np.array([[[0.02, 0.003], [0.003, 0.005]], [[0.03, 0.0], [0.0, 0.004]]]),
)


def _residuals(seed: int = 0, rows: int = 6) -> Residuals:
    random = np.random.default_rng(seed)
    return Residuals(random.normal(0, 0.3, (rows, 2)), np.ones((rows, 2), bool), np.ones(rows))


def _by_whole_matrix(residuals: Residuals) -> np.ndarray:
    """Total levels [curve, 2] as conditional means of one joint normal distribution."""
    curve, group, kind = NESTING.curve, NESTING.group, NESTING.kind
    same_group = group[:, None] == group
    prior = np.einsum("cd,cij->cidj", same_group, COMPONENTS.group[kind[group]])
    prior += np.einsum("cd,cij->cidj", np.eye(len(group)), COMPONENTS.curve[kind[group]])
    of_rows = prior[curve][:, :, curve]
    noise = np.einsum("rs,rij->risj", np.eye(len(curve)), COMPONENTS.noise[NESTING.row_kind])
    known = residuals.usable.ravel()
    total = (of_rows + noise).reshape(2 * len(curve), -1)[np.ix_(known, known)]
    cross = prior[:, :, curve].reshape(2 * len(group), -1)[:, known]
    return (cross @ np.linalg.solve(total, residuals.log_ratio.ravel()[known])).reshape(-1, 2)


@given(seed=st.integers(0, 10_000), unknown=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), max_size=8))
def test_levels_are_conditional_means_of_the_joint_distribution(seed: int, unknown: list[tuple[int, int]]):
    residuals = _residuals(seed)
    for place in unknown:
        residuals.usable[place] = False
    found = posterior(residuals, NESTING, COMPONENTS, rounds=0)
    np.testing.assert_allclose(found.total, _by_whole_matrix(residuals), atol=1e-10)


def test_no_measurement_leaves_the_prior():
    nothing = _residuals()._replace(usable=np.zeros((6, 2), bool))
    found = posterior(nothing, NESTING, COMPONENTS)
    assert not found.total.any()
    np.testing.assert_allclose(found.group_cov, COMPONENTS.group)
    np.testing.assert_allclose(found.total_cov, (COMPONENTS.group + COMPONENTS.curve)[NESTING.curve_kind])


def test_many_measurements_overrule_the_prior():
    rows = 2000
    level, random = np.array([0.7, -0.4]), np.random.default_rng(1)
    many = Residuals(level + random.normal(0, 0.05, (rows, 2)), np.ones((rows, 2), bool), np.ones(rows))
    nesting = Nesting(np.zeros(rows, int), np.zeros(1, int), np.zeros(1, int))
    found = posterior(many, nesting, COMPONENTS)
    np.testing.assert_allclose(found.total[0], level, atol=0.01)
    assert np.all(np.diagonal(found.total_cov[0]) < 1e-4)


def test_one_measurement_moves_a_level_part_of_the_way():
    one = Residuals(np.array([[0.2, 0.1]]), np.ones((1, 2), bool), np.ones(1))
    nesting = Nesting(np.zeros(1, int), np.zeros(1, int), np.zeros(1, int))
    found = posterior(one, nesting, COMPONENTS)
    assert np.all((0.3 * one.log_ratio < found.total) & (found.total < one.log_ratio))
    assert np.all(np.diagonal(found.group_cov[0]) < np.diagonal(COMPONENTS.group[0]))


def test_one_odd_measurement_does_not_move_a_level_of_many():
    values = np.zeros((9, 2))
    values[4] = 3.0
    odd = Residuals(values, np.ones((9, 2), bool), np.ones(9))
    nesting = Nesting(np.zeros(9, int), np.zeros(1, int), np.zeros(1, int))
    assert np.abs(posterior(odd, nesting, COMPONENTS).total).max() < 0.05
    assert np.abs(posterior(odd, nesting, COMPONENTS, rounds=0).total).max() > 0.25


def test_an_odd_curve_has_its_own_level_where_curves_may_be_odd():
    curve = np.arange(5)
    nesting = Nesting(curve, np.zeros(5, int), np.zeros(1, int))
    values = np.zeros((5, 2))
    values[4] = -3.0
    odd = Residuals(values, np.ones((5, 2), bool), np.ones(5))
    held, free = (posterior(odd, nesting, COMPONENTS, odd_curves=odd_curves) for odd_curves in (False, True))
    assert np.all(free.total[4] < -2.5) and np.all(held.total[4] > -1.5)
    assert np.abs(free.total[:4]).max() < 0.1


def test_a_measurement_of_one_curve_informs_the_other_curve_of_its_group_alone():
    one = _residuals()._replace(usable=np.arange(6)[:, None] == np.array([0, 0]))
    found = posterior(one._replace(log_ratio=np.full((6, 2), 0.3)), NESTING, COMPONENTS)
    assert np.all(found.total[0] > found.total[1]) and np.all(found.total[1] > 0)
    assert not found.total[2].any()


def test_a_known_tpot_alone_moves_ttft_by_their_covariance():
    residuals = Residuals(np.array([[np.nan, 0.3]]), np.array([[False, True]]), np.ones(1))
    nesting = Nesting(np.zeros(1, int), np.zeros(1, int), np.zeros(1, int))
    found = posterior(residuals, nesting, COMPONENTS, rounds=0)
    prior = COMPONENTS.group[0] + COMPONENTS.curve[0]
    slope = prior[0, 1] / (prior[1, 1] + COMPONENTS.noise[0, 1, 1])
    assert found.total[0, 0] == pytest.approx(0.3 * slope)


def test_two_halves_count_as_one_measurement():
    one = Residuals(np.array([[0.2, 0.1]]), np.ones((1, 2), bool), np.ones(1))
    twice = Residuals(np.repeat(one.log_ratio, 2, 0), np.ones((2, 2), bool), np.full(2, 0.5))
    nestings = [Nesting(np.zeros(rows, int), np.zeros(1, int), np.zeros(1, int)) for rows in (1, 2)]
    found = [posterior(r, n, COMPONENTS, rounds=0).total for r, n in zip((one, twice), nestings, strict=True)]
    np.testing.assert_allclose(found[0], found[1])
