# SPDX-License-Identifier: Apache-2.0
"""Pareto fronts: the definition, and what does not depend on order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aicjax.explore.pareto import front_of_groups, front_rows, pareto_front
from tests.oracles import serving as oracle

VALUE = st.integers(0, 6).map(float)
POINTS = st.lists(st.tuples(VALUE, VALUE), max_size=12)


def columns(points) -> tuple[np.ndarray, np.ndarray]:
    return np.array([x for x, _ in points]), np.array([y for _, y in points])


@given(POINTS)
def test_front_is_that_of_the_definition(points):
    assert list(front_rows(*columns(points))) == oracle.front(points)


@given(POINTS)
def test_front_is_its_own_front(points):
    x, y = columns(points)
    frame = pareto_front({"x": x, "y": y}, "x", "y")
    again = pareto_front(frame, "x", "y")
    np.testing.assert_array_equal(frame["x"], again["x"])
    np.testing.assert_array_equal(frame["y"], again["y"])


@given(POINTS, st.randoms(use_true_random=False))
def test_front_does_not_depend_on_order(points, random):
    shuffled = random.sample(points, len(points))
    x, y = columns(points)
    u, v = columns(shuffled)
    a, b = front_rows(x, y), front_rows(u, v)
    assert list(zip(x[a], y[a], strict=True)) == list(zip(u[b], v[b], strict=True))


@given(POINTS)
def test_smaller_x_may_be_better(points):
    x, y = columns(points)
    rows = front_rows(x, y, maximize_x=False)
    assert np.all(np.diff(x[rows]) > 0)
    assert np.all(np.diff(y[rows]) > 0)


def test_numbers_that_are_not_finite_are_left_out():
    assert list(front_rows(np.array([1.0, np.nan, 3.0]), np.array([1.0, 9.0, np.inf]))) == [0]


@given(st.lists(st.tuples(st.integers(0, 2), VALUE, VALUE, VALUE), max_size=14))
def test_front_of_groups_is_that_of_the_definition(points):
    group, x, y, tie = (np.array([point[i] for point in points], kind) for i, kind in enumerate((int, *[float] * 3)))
    front = front_of_groups(group, x, y, tie).tolist()

    def beats(a: int, b: int) -> bool:
        if group[a] != group[b] or x[a] > x[b] or y[a] < y[b]:
            return False
        return (x[a], -y[a]) != (x[b], -y[b]) or (tie[a], a) < (tie[b], b)

    kept = [i for i in range(len(points)) if not any(beats(j, i) for j in range(len(points)) if j != i)]
    assert front == sorted(kept, key=lambda i: (group[i], x[i]))
