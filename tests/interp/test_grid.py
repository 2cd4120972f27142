# SPDX-License-Identifier: Apache-2.0
"""Ragged grids: properties of blends and holds, and equality with an oracle written from the definition."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import Provenance
from aicjax.interp.grid import empty_slice
from tests import strategies
from tests.interp.grids import (
    BLEND,
    HOLD,
    LEAVES,
    POINTS,
    ROOF,
    answers,
    ask,
    bound,
    check_against_oracle,
    rates_of,
    roofline,
)
from tests.strategies import GridTable

ROUNDING = 3e-6  # float32 rounding of one blend, where an inequality is exact in real numbers
# One formula in two compiled programs: their loops are fused and vectorised in their own way, and sums round apart.
SAME = 1e-6


@settings(max_examples=40)
@given(strategies.grids(), strategies.roofs(), st.sampled_from([None, 0]))
def test_kernel_equals_the_oracle_on_staircases(table, roof, sqrt_axis):
    if table.points:
        queries = table.queries()
        check_against_oracle(table, roof, queries, answers(table, roof, queries, sqrt_axis), sqrt_axis)


@settings(max_examples=8)
@given(strategies.grids(shape=strategies.VOLUME), strategies.roofs())
def test_kernel_equals_the_oracle_on_three_inner_axes(table, roof):
    if table.points:
        queries = table.queries()
        check_against_oracle(table, roof, queries, answers(table, roof, queries))


@settings(max_examples=20)
@given(strategies.grids(beyond=False), strategies.roofs(), st.sampled_from([None, 0]))
def test_knots_return_their_measurement(table, roof, sqrt_axis):
    known = {
        place: latency
        for (head, *place), latency in table.points.items()
        if head == table.head
        for place in [tuple(place)]
    }
    if not known:
        return
    latency, code = answers(table, roof, np.array(list(known)).T, sqrt_axis)
    assert (code == Provenance.EXACT).all()
    assert latency.tolist() == list(known.values())


@settings(max_examples=20)
@given(strategies.grids(staircase=False, beyond=False), strategies.roofs(), st.sampled_from([None, 0]))
def test_between_knots_lies_between_the_measured_corners(table, roof, sqrt_axis):
    latency, code = answers(table, roof, table.queries(), sqrt_axis)
    inside = table.by_axis(latency)[1:-1, 1:-1]
    assert (table.by_axis(code)[1:-1, 1:-1] <= Provenance.INTERPOLATED).all()
    heads = {np.searchsorted(table.heads, table.head, side) - (side == "right") for side in ("left", "right")}
    low_o, high_o, low_i, high_i = (side for n in inside.shape for side in (np.arange(n) // 2, (np.arange(n) + 1) // 2))
    corners = np.stack(
        [table.latency_ms[h][np.ix_(o, i)] for h in heads for o in (low_o, high_o) for i in (low_i, high_i)]
    )
    assert (inside >= corners.min(0) * (1 - ROUNDING)).all()
    assert (inside <= corners.max(0) * (1 + ROUNDING)).all()


@settings(max_examples=20)
@given(strategies.grids(staircase=False, beyond=False), strategies.roofs())
def test_linear_blend_halves_the_way_between_neighbours_on_each_axis(table, roof):
    latency, _ = answers(table, roof, table.queries())
    inside = table.by_axis(latency)[1:-1, 1:-1]
    for values in (inside, inside.T):
        np.testing.assert_allclose(values[1::2], (values[0:-1:2] + values[2::2]) / 2, rtol=BLEND)


@settings(max_examples=20)
@given(strategies.grids(staircase=False, beyond=False), strategies.roofs(), st.sampled_from([None, 0]))
def test_monotone_table_gives_monotone_latency(table, roof, sqrt_axis):
    rising = GridTable(table.heads, table.knots, strategies.monotone(table.latency_ms), table.head)
    latency, _ = answers(rising, roof, rising.queries(), sqrt_axis)
    inside = rising.by_axis(latency)[1:-1, 1:-1]
    for axis in (0, 1):
        assert (np.diff(inside, axis=axis) >= -ROUNDING * inside.max()).all()


@settings(max_examples=20)
@given(strategies.grids(), strategies.roofs())
def test_clamped_table_is_never_below_its_roofline(table, roof):
    """Holds for rooflines that are convex on every axis, as all clamped tables' are without a window."""
    sol = roofline(roof)
    points = np.stack(np.meshgrid(table.heads, *table.knots, indexing="ij"), -1).reshape(-1, 3).tolist()
    roofs = np.array([sol(*point) for point in points]).reshape(table.latency_ms.shape)
    clamped = GridTable(table.heads, table.knots, np.maximum(table.latency_ms, roofs), table.head)
    if not clamped.points:
        return
    queries = clamped.queries()
    latency, code = answers(clamped, roof, queries)
    bounds = np.array([sol(table.head, *query) for query in queries.T.tolist()])
    assert (latency >= bounds * (1 - ROUNDING)).all()
    assert not (code == Provenance.MISSING).any()


@settings(max_examples=20)
@given(strategies.grids(), strategies.roofs())
def test_holds_are_finite_flagged_and_within_the_measured_utilisation(table, roof):
    if not table.points:
        return
    sol, queries = roofline(roof), table.queries()
    utilization = [sol(*point) / latency for point, latency in table.points.items()]
    latency, code = answers(table, roof, queries)
    held = code == Provenance.HELD
    edge = table.by_axis(held)
    assert edge[0].all() and edge[-1].all() and edge[:, 0].all() and edge[:, -1].all()
    bounds = np.array([sol(table.head, *query) for query in queries.T.tolist()])[held]
    assert np.isfinite(latency[held]).all() and (latency[held] > 0).all()
    assert (latency[held] >= bounds / max(utilization) * (1 - HOLD)).all()
    assert (latency[held] <= bounds / min(utilization) * (1 + HOLD)).all()


def staircase(latency: dict[tuple[int, int], float], head: float = 8.0) -> GridTable:
    """A table of 8 heads over lengths 128, 256, ... and batches 2, 4, ...; latency by index of both."""
    dense = np.full((1, *strategies.PLANE), np.nan)
    for at, value in latency.items():
        dense[0][at] = value
    return GridTable(np.array([8.0]), (128.0 * 2.0 ** np.arange(5), 2.0 ** np.arange(1, 5)), dense, head)


def answer(table: GridTable, length: float, batch: float, sqrt_axis: int | None = None) -> tuple[float, int]:
    latency, code = answers(table, ROOF, np.array([[length], [batch]]), sqrt_axis)
    return float(latency[0]), int(code[0])


@pytest.mark.parametrize("sqrt_axis", [None, 0])
def test_one_sided_neighbour_is_scaled_by_the_roofline(sqrt_axis):
    """Length 192 lies between rows 128 and 256, and the first of them was measured at batch 2 only."""
    table = staircase({(0, 0): 1.0, (1, 0): 3.0, (1, 1): 5.0})
    sol = roofline(ROOF)
    want = 4.0 * sol(8, 192, 3) / sol(8, 256, 3)
    assert answer(table, 192, 3, sqrt_axis) == (pytest.approx(want, rel=BLEND), Provenance.ONE_SIDED)


def test_sqrt_axis_blends_roots_of_finished_inner_blends():
    table = staircase({(0, 0): 1.0, (0, 1): 2.0, (1, 0): 5.0, (1, 1): 7.0})
    rooted = (math.sqrt(1.5) * 0.75 + math.sqrt(6.0) * 0.25) ** 2
    assert answer(table, 160, 3) == (pytest.approx(1.5 + (6.0 - 1.5) / 4, rel=BLEND), Provenance.INTERPOLATED)
    assert answer(table, 160, 3, 0) == (pytest.approx(rooted, rel=BLEND), Provenance.INTERPOLATED)


def test_head_outside_the_collected_ones_is_held_everywhere():
    """Even on a knot of both other axes; the nearest point counts in all three."""
    table = staircase({(o, i): 1.0 + o + i for o in range(5) for i in range(4)}, head=16.0)
    latency, code = answers(table, ROOF, table.queries())
    assert (code == Provenance.HELD).all()
    assert (latency > 0).all()


def test_fewer_than_five_points_weigh_by_inverse_squares():
    table = staircase({(0, 0): 1.0, (1, 0): 3.0})
    sol = roofline(ROOF)
    far, near = 1 / (2**2 + 1), 1 / (1 + 1)
    mean = (far * sol(8, 128, 2) / 1.0 + near * sol(8, 256, 2) / 3.0) / (far + near)
    assert answer(table, 512, 4) == (pytest.approx(sol(8, 512, 4) / mean, rel=BLEND), Provenance.HELD)


def test_points_at_the_radius_weigh_nothing():
    """Distances 1, sqrt 2, 2, sqrt 5 and sqrt 5: the fifth sets the radius, and the fourth lies on it."""
    table = staircase({(2, 3): 1.0, (2, 2): 2.0, (1, 3): 3.0, (2, 1): 700.0, (1, 2): 900.0})
    sol, radius = roofline(ROOF), math.sqrt(5)
    counted = [(1.0, sol(8, 512, 16) / 1.0), (math.sqrt(2), sol(8, 512, 8) / 2.0), (2.0, sol(8, 256, 16) / 3.0)]
    weights = [((radius - d) / (radius * d)) ** 2 for d, _ in counted]
    mean = sum(w * u for w, (_, u) in zip(weights, counted, strict=True)) / sum(weights)
    assert answer(table, 1024, 16) == (pytest.approx(sol(8, 1024, 16) / mean, rel=BLEND), Provenance.HELD)


def test_points_that_are_all_equally_far_count_alike():
    """Five points three octaves away: at (heads, length, batch) offsets (0, -3, 0) and (+-1, -2, +-2)."""
    dense = np.full((3, *strategies.PLANE), np.nan)
    dense[1, 0, 1] = 1.0
    dense[0, 1, 0], dense[0, 1, 2], dense[2, 1, 0], dense[2, 1, 2] = 2.0, 3.0, 4.0, 5.0
    knots = (128.0 * 2.0 ** np.arange(5), 4.0 ** np.arange(1, 5))
    table = GridTable(np.array([4.0, 8.0, 16.0]), knots, dense, 8.0)
    sol = roofline(ROOF)
    mean = np.mean([sol(*point) / measured for point, measured in table.points.items()])
    assert answer(table, 1024, 16) == (pytest.approx(sol(8, 1024, 16) / mean, rel=BLEND), Provenance.HELD)


def test_nothing_measured_is_missing():
    table = staircase({})
    latency, code = ask([empty_slice(table.knots, LEAVES)], [table], table.queries(), rates_of(ROOF))
    assert np.isnan(np.asarray(latency)).all()
    assert (np.asarray(code) == Provenance.MISSING).all()


def three_tables() -> list[GridTable]:
    """Two staircases and a box on the same knots; asked between, on and outside the collected heads."""
    rng = np.random.default_rng(7)
    heads, knots = np.array([2.0, 4.0, 8.0]), (100.0 * 2 ** np.arange(5), 2.0 ** np.arange(4))
    tables = []
    for head, holes in ((6.0, 0.3), (4.0, 0.0), (32.0, 0.2)):
        latency = 10.0 ** rng.uniform(-2, 2, (3, 5, 4))
        latency[rng.random(latency.shape) < holes] = np.nan
        tables.append(GridTable(heads, knots, latency, head))
    return tables


def test_hold_continues_from_the_corner_of_the_range():
    """One part in 2^14 beyond the last knot of both axes the last measurement still answers."""
    table = three_tables()[1]
    corner = np.array([axis[-1] for axis in table.knots])
    beyond = corner * (1 + 2.0**-14)
    latency, code = answers(table, ROOF, beyond[:, None])
    growth = roofline(ROOF)(table.head, *beyond) / roofline(ROOF)(table.head, *corner)
    assert code[0] == Provenance.HELD
    assert latency[0] == pytest.approx(table.points[table.head, *corner] * growth, rel=1e-3)


def test_rows_in_chunks_agree_with_each_row_as_a_whole():
    """Three tables at once, a third of the points at a time, against one table at a time at all points."""
    tables = three_tables()
    slices, queries = [bound(table, ROOF) for table in tables], tables[0].queries()
    parts = [ask(slices, tables, queries[:, at : at + 33], rates_of(ROOF)) for at in range(0, POINTS, 33)]
    whole = [answers(table, ROOF, queries) for table in tables]
    np.testing.assert_allclose(np.hstack([part[0] for part in parts]), [latency for latency, _ in whole], rtol=SAME)
    np.testing.assert_array_equal(np.hstack([part[1] for part in parts]), [code for _, code in whole])


def test_vmap_over_systems_agrees_with_a_loop():
    table = three_tables()[0]

    def one(rates):
        return ask([bound(table, ROOF)], [table], table.queries(), rates)

    systems = np.array([[1e9, 1e7], [4e9, 1e8]], np.float32)
    each, mapped = [one(system) for system in systems], jax.vmap(one)(systems)
    np.testing.assert_allclose(mapped[0], np.stack([x[0] for x in each]), rtol=SAME)
    np.testing.assert_array_equal(mapped[1], np.stack([x[1] for x in each]))
