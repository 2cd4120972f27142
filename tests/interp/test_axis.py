# SPDX-License-Identifier: Apache-2.0
"""One ragged axis: neighbours of an interval, intervals of coordinates, and integer division of counts."""

import bisect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.interp.axis import NO_KEY, PAD_KNOT, enclosing, interval, neighbour_keys
from aicjax.interp.counts import ceil_div, floor_div

KNOTS = [1.0, 2.0, 4.0, 8.0, 16.0, PAD_KNOT, PAD_KNOT]


@given(st.lists(st.booleans(), min_size=12, max_size=12))
def test_neighbours_are_the_nearest_measured_knots(flags):
    measured = np.array(flags).reshape(2, 6)
    lower, upper = neighbour_keys(measured)
    for row, keys in enumerate(map(np.flatnonzero, measured)):
        for gap in range(7):
            assert lower[row, gap] == max((key for key in keys if key <= gap - 1), default=NO_KEY)
            assert upper[row, gap] == min((key for key in keys if key >= gap), default=NO_KEY)


def test_interval_counts_the_knots_at_or_below():
    coordinates = [0.0, 0.5, 1.0, 1.5, 2.0, 15.9, 16.0, 1e9]
    want = [bisect.bisect_right(KNOTS, x) for x in coordinates]
    assert interval(jnp.array(KNOTS), jnp.array(coordinates)).tolist() == want


@pytest.mark.parametrize(
    ("coordinate", "want"),
    [
        (2.0, (1, 1, 0.0, True, True)),  # on a key: it alone
        (5.0, (1, 3, 0.5, False, True)),  # knot 4 was not measured: between 2 and 8
        (4.0, (1, 3, 1 / 3, False, True)),  # on a knot that was not measured
        (8.0, (3, 3, 0.0, True, True)),  # on the last key
        (1.0, (0, 1, 0.0, False, False)),  # below the first key
        (9.0, (3, 0, 0.0, False, False)),  # above the last key
    ],
)
def test_enclosing_keys_are_the_branches_own(coordinate, want):
    lower, upper = neighbour_keys(np.array([False, True, False, True, False, False, False]))
    at = bisect.bisect_right(KNOTS, coordinate)
    out = enclosing(jnp.array(KNOTS), lower[at], upper[at], jnp.array(coordinate))
    low, high, weight, exact, inside = jax.device_get(out)
    assert (bool(exact), bool(inside)) == want[3:]
    assert weight == pytest.approx(want[2], rel=1e-6)
    if inside:
        assert (low, high) == want[:2]
    else:
        assert 0 <= low < len(KNOTS) and 0 <= high < len(KNOTS), "an index that can be read"


@given(st.integers(0, 2**30), st.integers(1, 4096))
def test_division_of_counts_is_exact(count, by):
    assert floor_div(jnp.int32(count), by) == count // by
    assert ceil_div(jnp.int32(count), by) == -(-count // by)
