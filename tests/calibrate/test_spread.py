# SPDX-License-Identifier: Apache-2.0
"""Variances by level: found again in a corpus that was drawn with them."""

import numpy as np
import pytest

from aicjax.calibrate import spread as spreads
from aicjax.calibrate.levels import DEGREES_OF_FREEDOM, Components, Nesting, Residuals

GROUP = np.array([[0.09, 0.02], [0.02, 0.04]])
CURVE = np.array([[0.04, -0.01], [-0.01, 0.01]])
LOADS = 5
NOISE = np.array([[0.02, 0.002], [0.002, 0.003]])


def _corpus(groups: int = 300, curves: int = 6, loads: int = LOADS, seed: int = 0) -> tuple[Residuals, Nesting]:
    """Rows of one kind, as many in every curve; noise is Student's t."""
    random = np.random.default_rng(seed)
    nesting = Nesting(
        curve=np.repeat(np.arange(groups * curves), loads),
        group=np.repeat(np.arange(groups), curves),
        kind=np.zeros(groups, int),
    )
    rows = groups * curves * loads
    group, curve, noise = (
        random.multivariate_normal(np.zeros(2), cov, count)
        for cov, count in ((GROUP, groups), (CURVE, groups * curves), (NOISE, rows))
    )
    heavy = np.sqrt(DEGREES_OF_FREEDOM / random.chisquare(DEGREES_OF_FREEDOM, (rows, 1)))
    values = group[nesting.group][nesting.curve] + curve[nesting.curve] + noise * heavy
    return Residuals(values, np.ones((rows, 2), bool), np.ones(rows)), nesting


@pytest.fixture(scope="module")
def corpus() -> tuple[Residuals, Nesting]:
    return _corpus()


def _spread(corpus: tuple[Residuals, Nesting], rounds: int = 20) -> spreads.Spread:
    residuals, nesting = corpus
    middle = np.arange(len(residuals.weight)) % LOADS == 2
    anchors, constants = np.stack([middle, middle], 1), np.broadcast_to(0.01 * np.eye(2), (len(middle), 2, 2))
    return spreads.spread(residuals, nesting, ["trtllm/agg"], anchors, constants, rounds=rounds)


def test_known_variances_are_found_again(corpus: tuple[Residuals, Nesting]):
    found = spreads.components(*corpus, 1)
    for estimate, truth, largest in ((found.group, GROUP, 0.2), (found.curve, CURVE, 0.15), (found.noise, NOISE, 0.1)):
        assert np.abs(estimate[0] - truth).max() < largest * np.abs(truth).max()


def test_variances_scale_with_residuals(corpus: tuple[Residuals, Nesting]):
    residuals, nesting = corpus
    twice = residuals._replace(log_ratio=2 * residuals.log_ratio)
    once, doubled = (spreads.components(r, nesting, 1) for r in (residuals, twice))
    for name in Components._fields:
        np.testing.assert_allclose(getattr(doubled, name), 4 * getattr(once, name), rtol=0.05, atol=1e-3)


def test_order_of_rows_does_not_matter(corpus: tuple[Residuals, Nesting]):
    residuals, nesting = corpus
    order = np.random.default_rng(2).permutation(len(residuals.weight))
    shuffled = residuals.take(order), nesting._replace(curve=nesting.curve[order])
    for one, other in zip(
        spreads.components(corpus[0], corpus[1], 1, rounds=5),
        spreads.components(shuffled[0], shuffled[1], 1, rounds=5),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-8)


def test_a_kind_without_rows_has_the_variances_of_all(corpus: tuple[Residuals, Nesting]):
    found = spreads.components(*corpus, 2)
    for values in found:
        np.testing.assert_allclose(values[1], values[0], rtol=0.05)


def test_unknown_times_do_not_bias_the_noise(corpus: tuple[Residuals, Nesting]):
    residuals, nesting = corpus
    usable = residuals.usable.copy()
    usable[::3, 0] = False
    hidden = residuals._replace(usable=usable, log_ratio=np.where(usable, residuals.log_ratio, np.nan))
    np.testing.assert_allclose(spreads.components(hidden, nesting, 1).noise[0], NOISE, atol=0.15 * NOISE.max())


def test_tails_cover_eight_of_ten_unseen_rows(corpus: tuple[Residuals, Nesting]):
    found = _spread(corpus)
    residuals, nesting = _corpus(seed=7)
    nothing = np.zeros_like(residuals.usable)
    _, left = spreads.left_over(residuals, nesting, found.components, nothing)
    deviation = np.sqrt(np.diagonal(left, axis1=1, axis2=2))
    low, high = found.tails.T
    inside = (residuals.log_ratio >= low * deviation) & (residuals.log_ratio <= high * deviation)
    np.testing.assert_allclose(inside.mean(0), 0.8, atol=0.03)


def test_one_absurd_row_hardly_moves_the_variances(corpus: tuple[Residuals, Nesting]):
    residuals, nesting = corpus
    absurd = residuals.log_ratio.copy()
    absurd[0] = 30.0
    usual = _spread((residuals, nesting)).components
    moved = _spread((residuals._replace(log_ratio=absurd), nesting)).components
    for one, other in zip(usual, moved, strict=True):
        np.testing.assert_allclose(one, other, atol=0.03 * np.abs(one).max())


def test_storage_gives_the_same_spread(corpus: tuple[Residuals, Nesting]):
    found = _spread(corpus, rounds=3)
    again = spreads.from_plain(spreads.as_plain(found))
    assert again.kinds == found.kinds
    np.testing.assert_allclose(again.tails, found.tails, atol=1e-5)
    np.testing.assert_allclose(again.anchored_tails, found.anchored_tails, atol=1e-5)
    np.testing.assert_allclose(again.constants, [0.01 * np.eye(2)], atol=1e-5)
    for one, other in zip(again.components, found.components, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_weighted_quantiles_follow_the_weight():
    values = np.random.default_rng(3).normal(size=41)
    plain = spreads.weighted_quantiles(values, np.ones(41), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(plain, np.quantile(values, [0.1, 0.5, 0.9], method="hazen"))
    np.testing.assert_allclose(spreads.weighted_quantiles(values, np.full(41, 7.0), [0.1, 0.5, 0.9]), plain)
    assert spreads.weighted_quantiles(values, np.where(values > 1, 50.0, 1.0), [0.5]) > 1
