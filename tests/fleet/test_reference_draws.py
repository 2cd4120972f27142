# SPDX-License-Identifier: Apache-2.0
"""Draws of the fleet reference: reproducible, from the law that they stand for, and far from it when they are few."""

import numpy as np
import pytest

from aicjax.fleet.cdf import load_lengths
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.reference_draws import DRAWS, reference_bins, reference_draws


def moments(law: Lengths) -> tuple[float, float]:
    total = law.total
    mean = float(law.weight @ total)
    return mean, float(law.weight @ total**2) / mean**2 - 1.0


@pytest.mark.parametrize(
    ("name", "pool_max", "lowest"), [("azure", 5_000, 1), ("lmsys", 4_096, 1), ("azure", 65_536, 7_372)]
)
def test_many_draws_have_the_moments_of_the_bins(name: str, pool_max: int, lowest: int):
    knots = load_lengths(name).knots
    drawn, exact = reference_draws(knots, pool_max, lowest, draws=60_000), reference_bins(knots, pool_max, lowest)
    assert moments(drawn) == pytest.approx(moments(exact), rel=0.05)
    assert exact.total.max() <= pool_max
    assert exact.total.min() >= lowest
    assert exact.weight.sum() == pytest.approx(1.0)


def test_draws_are_the_same_each_time():
    knots = load_lengths("azure").knots
    once, again = (reference_draws(knots, 8_192) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert np.isclose(once.weight.min() * DRAWS, 1.0)


def test_few_draws_miss_rare_long_requests():
    """The reason for exact expectations: the variability of lmsys is off by half and more."""
    knots = load_lengths("lmsys").knots
    drawn, exact = (moments(law)[1] for law in (reference_draws(knots, 65_536), reference_bins(knots, 65_536)))
    assert drawn / exact > 1.2


def test_a_share_below_one_leaves_the_rest_out():
    knots = load_lengths("azure").knots
    cut = knots._replace(tokens=knots.tokens[:6], shares=knots.shares[:6])
    assert reference_bins(cut, 1_024).weight.sum() == pytest.approx(1.0)
    assert reference_draws(cut, 1_024).total.max() <= 1_024
