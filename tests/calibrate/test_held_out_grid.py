# SPDX-License-Identifier: Apache-2.0
"""Keys left out of ragged grids: closed forms against the grid rule on what is left, written from its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import Provenance
from aicjax.calibrate.held_out import RULES
from aicjax.calibrate.held_out_grid import blended, edge_points, held
from tests import strategies
from tests.oracles import grid as oracle

CLOSE = 1e-10  # relative; float64 sums in another order
AXES = 3


def sol(heads, length, batch):
    """A roofline that is no product of its coordinates."""
    return heads * length * batch + 100.0 * heads + 10.0 * length


def parts(table):
    knots = (table.heads, *table.knots)
    return knots, table.latency_ms[None], sol(*np.meshgrid(*knots, indexing="ij"))[None]


def without(points: dict, place: tuple, axis: int) -> dict:
    """Points without all those that share the coordinates of `place` up to an axis."""
    return {p: v for p, v in points.items() if p[: axis + 1] != place[: axis + 1]}


@settings(max_examples=25)
@given(strategies.grids(), st.integers(0, AXES - 1), st.sampled_from([None, 1]))
def test_every_key_equals_the_grid_without_it(table, axis, sqrt_axis):
    knots, latency, roofs = parts(table)
    rules = tuple(RULES["sqrt_latency" if a == sqrt_axis else "latency"] for a in range(AXES))
    found = blended(rules, axis, knots, latency, roofs)
    for index in np.argwhere(np.isfinite(table.latency_ms)):
        place = tuple(float(k[i]) for k, i in zip(knots, index, strict=True))
        rest = without(table.points, place, axis)
        want, how = oracle.grid(rest, place, sol, () if sqrt_axis is None else (1,))
        got = found.latency_ms[0][tuple(index)]
        alone = not any(point[:axis] == place[:axis] for point in rest)  # its branch would go with the key
        if alone or how in (Provenance.HELD, Provenance.MISSING):
            assert np.isnan(got)
        else:
            assert got == pytest.approx(want, rel=CLOSE)
            assert found.one_sided[0][tuple(index)] == (how == Provenance.ONE_SIDED)


@settings(max_examples=25)
@given(strategies.grids(), st.integers(0, AXES - 1))
def test_ends_are_held_by_the_points_that_are_left(table, axis):
    knots, latency, roofs = parts(table)
    first, last = edge_points(latency, axis)
    assert not (first & last).any()
    asked = first[0] | last[0]
    if not asked.any():
        return
    predicted = held(axis, knots, latency[0], roofs[0], asked)
    for got, index in zip(predicted, np.argwhere(asked), strict=True):
        place = tuple(float(k[i]) for k, i in zip(knots, index, strict=True))
        want, _ = oracle.hold(without(table.points, place, axis), place, sol)
        assert got == pytest.approx(want, rel=1e-6)  # weights are differences of nearly equal distances


def test_another_interpolant_on_one_axis_leaves_the_others_alone():
    knots = (np.array([1.0]), np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0]))
    latency = np.array([[[[1.0, 2.0], [5.0, 5.0], [4.0, np.nan]]]])
    roofs = np.ones_like(latency)
    rules = (RULES["latency"],) * AXES
    found = blended(rules, 1, knots, latency, roofs, RULES["log_latency"])
    assert found.latency_ms[0, 0, 1].tolist() == pytest.approx([2.0, 2.0])  # the second by its one neighbour
    assert found.one_sided[0, 0, 1].tolist() == [False, True]
