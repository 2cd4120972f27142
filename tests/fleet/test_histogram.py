# SPDX-License-Identifier: Apache-2.0
"""Histograms hold every request, the largest too."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.fleet.histogram import histogram


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200), st.integers(1, 40))
def test_counts_add_up_and_bins_touch(values: list[int], bins: int):
    rows = histogram(np.asarray(values, float), np.ones(len(values)), len(values), bins)
    assert sum(row["count"] for row in rows) == len(values)
    assert len(rows) == bins
    assert rows[0]["lo"] == min(values)
    assert rows[-1]["hi"] >= max(values)
    assert all(low["hi"] == high["lo"] for low, high in itertools.pairwise(rows))


def test_the_largest_value_is_in_the_last_bin():
    rows = histogram(np.asarray([0.0, 10.0]), np.ones(2), 2, 5)
    assert [row["count"] for row in rows] == [1, 0, 0, 0, 1]


def test_weights_are_shares_of_the_count():
    rows = histogram(np.asarray([0.0, 1.0]), np.asarray([0.25, 0.75]), 1000, 2)
    assert [row["count"] for row in rows] == pytest.approx([250, 750])
