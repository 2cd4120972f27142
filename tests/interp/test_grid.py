# SPDX-License-Identifier: Apache-2.0
"""Ragged grids: properties of blends and holds, and equality with an oracle written from the definition."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import Provenance
from aicjax.interp.grid import GridSlice, bind_slice, empty_slice, grid_latency
from aicjax.ops.roofline import context_attention_sol_ms
from tests import strategies
from tests.oracles import grid as oracle
from tests.oracles import rooflines
from tests.strategies import GridTable, Roof

LEAVES = 64
BLEND = 1e-5  # float32 against float64: a handful of roundings
# The weights of a hold are differences of nearly equal distances when all four points are nearly as far as the fifth.
HOLD = 1e-4
ROUNDING = 3e-6  # float32 rounding of one blend, where an inequality is exact in real numbers
# One formula in two compiled programs: their loops are fused and vectorised in their own way, and sums round apart.
SAME = 1e-6
HEAD_SIZE, KV_BYTES = 128, 2
ROOF = Roof(1e12, 1e10)


def roofline(roof: Roof) -> oracle.Sol:
    def sol(heads: float, outer: float, inner: float) -> float:
        return rooflines.prefill_attention(
            inner, outer, 0, heads, heads, HEAD_SIZE, 0, KV_BYTES, roof.peak, roof.mem_bw
        )

    return sol


def bound(table: GridTable, roof: Roof) -> GridSlice:
    """The slice of a table; its heads are those with a measurement."""
    sol, kept = roofline(roof), np.isfinite(table.latency_ms).any((1, 2))
    heads, latency = table.heads[kept], table.latency_ms[kept]
    roofs = np.array([[[sol(h, o, i) for i in table.inner] for o in table.outer] for h in heads])
    return bind_slice(heads, latency, table.outer, table.inner, table.head, roofs, LEAVES)


@eqx.filter_jit
def kernel(slices, outer_knots, inner_knots, heads, outer, inner, peak, mem_bw, sqrt_outer):
    def sol(head_size, heads, outer, inner):
        return context_attention_sol_ms(inner, outer, 0.0, heads, heads, head_size, 0.0, float(KV_BYTES), peak, mem_bw)

    head_size = jnp.full(heads.shape, float(HEAD_SIZE))
    return grid_latency(slices, outer_knots, inner_knots, heads, outer, inner, sol, head_size, sqrt_outer=sqrt_outer)


def arguments(slices: list[GridSlice], table: GridTable, roof: Roof, outer: np.ndarray, inner: np.ndarray) -> tuple:
    """What `kernel` takes for slices on the knots and at the head count of `table`, all at the same queries."""
    stacked = jax.tree.map(lambda *leaf: np.stack(leaf), *slices)
    knots = (table.outer.astype(np.float32), table.inner.astype(np.float32))
    queries = (np.tile(x.astype(np.float32), (len(slices), 1)) for x in (outer, inner))
    heads = np.full(len(slices), table.head, np.float32)
    return stacked, *knots, heads, *queries, np.float32(roof.peak / 1e3), np.float32(roof.mem_bw / 1e3)


def ask(tables: list[GridTable], roof: Roof, outer: np.ndarray, inner: np.ndarray, sqrt_outer: bool = False):
    """Latency and provenance of the same queries of tables on the same knots [table, point]."""
    slices, *knots, _, outer, inner, peak, mem_bw = arguments(
        [bound(table, roof) for table in tables], tables[0], roof, outer, inner
    )
    heads = np.array([table.head for table in tables], np.float32)
    latency, code = kernel(slices, *knots, heads, outer, inner, peak, mem_bw, sqrt_outer)
    return np.asarray(latency, np.float64), np.asarray(code)


def answers(
    table: GridTable, roof: Roof, outer: np.ndarray, inner: np.ndarray, *, sqrt_outer: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Latency and provenance of queries of one table, padded to one compiled length."""
    points = (2 * strategies.OUTER + 1) * (2 * strategies.INNER + 1)
    spare = (0, points - outer.size)
    padded = (np.pad(x, spare, mode="edge") for x in (outer, inner))
    (latency,), (code,) = ask([table], roof, *padded, sqrt_outer)
    return latency[: outer.size], code[: outer.size]


def by_axis(values: np.ndarray) -> np.ndarray:
    """Answers to `strategies.crossed` queries as [outer, inner]."""
    return values.reshape(2 * strategies.OUTER + 1, 2 * strategies.INNER + 1)


@settings(max_examples=60)
@given(strategies.grids(), strategies.roofs(), st.booleans())
def test_kernel_equals_the_oracle_on_staircases(table, roof, sqrt_outer):
    if not table.points:
        return
    outer, inner = strategies.crossed(table)
    latency, code = answers(table, roof, outer, inner, sqrt_outer=sqrt_outer)
    for at, (o, i) in enumerate(zip(outer, inner, strict=True)):
        want, how = oracle.grid(table.points, (table.head, o, i), roofline(roof), {1} if sqrt_outer else ())
        assert code[at] == how, (o, i)
        tolerance = HOLD if how == Provenance.HELD else BLEND
        assert latency[at] == pytest.approx(want, rel=tolerance, nan_ok=True), (o, i, how)


@settings(max_examples=20)
@given(strategies.grids(beyond=False), strategies.roofs(), st.booleans())
def test_knots_return_their_measurement(table, roof, sqrt_outer):
    known = [(o, i) for (head, o, i) in table.points if head == table.head]
    if not known:
        return
    outer, inner = np.array(known).T
    latency, code = answers(table, roof, outer, inner, sqrt_outer=sqrt_outer)
    assert (code == Provenance.EXACT).all()
    assert latency.tolist() == [table.points[table.head, o, i] for o, i in known]


@settings(max_examples=20)
@given(strategies.grids(staircase=False, beyond=False), strategies.roofs(), st.booleans())
def test_between_knots_lies_between_the_measured_corners(table, roof, sqrt_outer):
    latency, code = answers(table, roof, *strategies.crossed(table), sqrt_outer=sqrt_outer)
    inside = by_axis(latency)[1:-1, 1:-1]
    assert (by_axis(code)[1:-1, 1:-1] <= Provenance.INTERPOLATED).all()
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
    latency, _ = answers(table, roof, *strategies.crossed(table))
    inside = by_axis(latency)[1:-1, 1:-1]
    for values in (inside, inside.T):
        np.testing.assert_allclose(values[1::2], (values[0:-1:2] + values[2::2]) / 2, rtol=BLEND)


@settings(max_examples=20)
@given(strategies.grids(staircase=False, beyond=False), strategies.roofs(), st.booleans())
def test_monotone_table_gives_monotone_latency(table, roof, sqrt_outer):
    rising = GridTable(table.heads, table.outer, table.inner, strategies.monotone(table.latency_ms), table.head)
    latency, _ = answers(rising, roof, *strategies.crossed(rising), sqrt_outer=sqrt_outer)
    grid = by_axis(latency)[1:-1, 1:-1]
    for axis in (0, 1):
        assert (np.diff(grid, axis=axis) >= -ROUNDING * grid.max()).all()


@settings(max_examples=20)
@given(strategies.grids(), strategies.roofs())
def test_clamped_table_is_never_below_its_roofline(table, roof):
    """Holds for rooflines that are convex on every axis, as all clamped tables' are without a window."""
    sol = roofline(roof)
    roofs = np.array([[[sol(h, o, i) for i in table.inner] for o in table.outer] for h in table.heads])
    clamped = GridTable(table.heads, table.outer, table.inner, np.maximum(table.latency_ms, roofs), table.head)
    if not clamped.points:
        return
    outer, inner = strategies.crossed(clamped)
    latency, code = answers(clamped, roof, outer, inner)
    bounds = np.array([sol(table.head, o, i) for o, i in zip(outer, inner, strict=True)])
    assert (latency >= bounds * (1 - ROUNDING)).all()
    assert not (code == Provenance.MISSING).any()


@settings(max_examples=20)
@given(strategies.grids(), strategies.roofs())
def test_holds_are_finite_and_within_the_measured_utilisation(table, roof):
    if not table.points:
        return
    sol = roofline(roof)
    utilization = [sol(*point) / latency for point, latency in table.points.items()]
    outer, inner = strategies.crossed(table)
    latency, code = answers(table, roof, outer, inner)
    held = code == Provenance.HELD
    edge = by_axis(held)
    assert edge[0].all() and edge[-1].all() and edge[:, 0].all() and edge[:, -1].all()
    bounds = np.array([sol(table.head, o, i) for o, i in zip(outer, inner, strict=True)])[held]
    assert np.isfinite(latency[held]).all() and (latency[held] > 0).all()
    assert (latency[held] >= bounds / max(utilization) * (1 - HOLD)).all()
    assert (latency[held] <= bounds / min(utilization) * (1 + HOLD)).all()


@settings(max_examples=20)
@given(strategies.grids(staircase=False, beyond=False), strategies.roofs())
def test_hold_continues_from_the_corner_of_the_range(table, roof):
    """One part in 2^14 beyond the last knot of both axes the last measurement still answers."""
    if table.head not in table.heads:
        return
    step = 1 + 2.0**-14
    outer, inner = np.array([[table.outer[-1] * step], [table.inner[-1] * step]])
    latency, code = answers(table, roof, outer, inner)
    corner = table.points[table.head, table.outer[-1], table.inner[-1]]
    growth = roofline(roof)(table.head, outer[0], inner[0]) / roofline(roof)(
        table.head, table.outer[-1], table.inner[-1]
    )
    assert code[0] == Provenance.HELD
    assert latency[0] == pytest.approx(corner * growth, rel=1e-3)


def staircase(latency: dict[tuple[int, int], float], head: float = 8.0) -> GridTable:
    """A table of one head over the knots 128, 256, ... and 2, 4, ...; knots by index."""
    dense = np.full((1, strategies.OUTER, strategies.INNER), np.nan)
    for at, value in latency.items():
        dense[0][at] = value
    return GridTable(np.array([8.0]), 128.0 * 2.0 ** np.arange(5), 2.0 ** np.arange(1, 5), dense, head)


@pytest.mark.parametrize("sqrt_outer", [False, True])
def test_one_sided_neighbour_is_scaled_by_the_roofline(sqrt_outer):
    """Length 192 lies between rows 128 and 256, and the first of them was measured at batch 2 only."""
    table = staircase({(0, 0): 1.0, (1, 0): 3.0, (1, 1): 5.0})
    latency, code = answers(table, ROOF, np.array([192.0]), np.array([3.0]), sqrt_outer=sqrt_outer)
    sol = roofline(ROOF)
    assert latency[0] == pytest.approx(4.0 * sol(8, 192, 3) / sol(8, 256, 3), rel=BLEND)
    assert code[0] == Provenance.ONE_SIDED


def test_sqrt_axis_blends_roots_of_finished_inner_blends():
    table = staircase({(0, 0): 1.0, (0, 1): 2.0, (1, 0): 5.0, (1, 1): 7.0})
    (linear,), _ = answers(table, ROOF, np.array([160.0]), np.array([3.0]))
    (rooted,), _ = answers(table, ROOF, np.array([160.0]), np.array([3.0]), sqrt_outer=True)
    assert linear == pytest.approx(1.5 + (6.0 - 1.5) / 4, rel=BLEND)
    assert rooted == pytest.approx((math.sqrt(1.5) * 0.75 + math.sqrt(6.0) * 0.25) ** 2, rel=BLEND)


def test_head_outside_the_collected_ones_is_held_everywhere():
    """Even on a knot of both other axes; the nearest point counts in all three."""
    table = staircase({(o, i): 1.0 + o + i for o in range(5) for i in range(4)}, head=16.0)
    latency, code = answers(table, ROOF, *strategies.crossed(table))
    assert (code == Provenance.HELD).all()
    assert (latency > 0).all()


def test_fewer_than_five_points_weigh_by_inverse_squares():
    table = staircase({(0, 0): 1.0, (1, 0): 3.0})
    (latency,), (code,) = answers(table, ROOF, np.array([512.0]), np.array([4.0]))
    sol = roofline(ROOF)
    far, near = 1 / (2**2 + 1), 1 / (1 + 1)
    mean = (far * sol(8, 128, 2) / 1.0 + near * sol(8, 256, 2) / 3.0) / (far + near)
    assert (latency, code) == (pytest.approx(sol(8, 512, 4) / mean, rel=BLEND), Provenance.HELD)


def test_points_at_the_radius_weigh_nothing():
    """Distances 1, sqrt 2, 2, sqrt 5 and sqrt 5: the fifth sets the radius, and the fourth lies on it."""
    table = staircase({(2, 3): 1.0, (2, 2): 2.0, (1, 3): 3.0, (2, 1): 700.0, (1, 2): 900.0})
    (latency,), (code,) = answers(table, ROOF, np.array([1024.0]), np.array([16.0]))
    sol, radius = roofline(ROOF), math.sqrt(5)
    counted = [(1.0, sol(8, 512, 16) / 1.0), (math.sqrt(2), sol(8, 512, 8) / 2.0), (2.0, sol(8, 256, 16) / 3.0)]
    weights = [((radius - d) / (radius * d)) ** 2 for d, _ in counted]
    mean = sum(w * u for w, (_, u) in zip(weights, counted, strict=True)) / sum(weights)
    assert (latency, code) == (pytest.approx(sol(8, 1024, 16) / mean, rel=BLEND), Provenance.HELD)


def test_points_that_are_all_equally_far_count_alike():
    """Five points three octaves away: at (heads, length, batch) offsets (0, -3, 0) and (+-1, -2, +-2)."""
    dense = np.full((3, strategies.OUTER, strategies.INNER), np.nan)
    heads, outer, inner = np.array([4.0, 8.0, 16.0]), 128.0 * 2.0 ** np.arange(5), 4.0 ** np.arange(1, 5)
    dense[1, 0, 1] = 1.0
    dense[0, 1, 0], dense[0, 1, 2], dense[2, 1, 0], dense[2, 1, 2] = 2.0, 3.0, 4.0, 5.0
    table = GridTable(heads, outer, inner, dense, 8.0)
    (latency,), (code,) = answers(table, ROOF, np.array([1024.0]), np.array([16.0]))
    sol = roofline(ROOF)
    mean = np.mean([sol(*point) / measured for point, measured in table.points.items()])
    assert (latency, code) == (pytest.approx(sol(8, 1024, 16) / mean, rel=BLEND), Provenance.HELD)


def test_nothing_measured_is_missing():
    empty = empty_slice(strategies.OUTER, strategies.INNER, LEAVES)
    latency, code = kernel(*arguments([empty], staircase({}), ROOF, *strategies.crossed(staircase({}))), False)
    assert np.isnan(np.asarray(latency)).all()
    assert (np.asarray(code) == Provenance.MISSING).all()


def three_tables() -> list[GridTable]:
    """Two staircases and a box on the same knots; asked between, on and outside the collected heads."""
    rng = np.random.default_rng(7)
    heads, outer, inner = np.array([2.0, 4.0, 8.0]), 100.0 * 2 ** np.arange(5), 2.0 ** np.arange(4)
    tables = []
    for head, holes in ((6.0, 0.3), (4.0, 0.0), (32.0, 0.2)):
        latency = 10.0 ** rng.uniform(-2, 2, (3, 5, 4))
        latency[rng.random(latency.shape) < holes] = np.nan
        tables.append(GridTable(heads, outer, inner, latency, head))
    return tables


def test_rows_in_chunks_agree_with_each_row_as_a_whole():
    """Three tables at once, a third of the points at a time, against one table at a time at all points."""
    tables = three_tables()
    outer, inner = strategies.crossed(tables[0])
    parts = [ask(tables, ROOF, outer[at : at + 33], inner[at : at + 33]) for at in range(0, outer.size, 33)]
    whole = [answers(table, ROOF, outer, inner) for table in tables]
    np.testing.assert_allclose(np.hstack([part[0] for part in parts]), [latency for latency, _ in whole], rtol=SAME)
    np.testing.assert_array_equal(np.hstack([part[1] for part in parts]), [code for _, code in whole])


def test_vmap_over_systems_agrees_with_a_loop():
    table = three_tables()[0]
    *at, _, _ = arguments([bound(table, ROOF)], table, ROOF, *strategies.crossed(table))
    rates = np.array([[1e9, 1e7], [4e9, 1e8]], np.float32)
    each = [kernel(*at, *rate, False) for rate in rates]
    mapped = jax.vmap(lambda rate: kernel(*at, *rate, False))(rates)
    np.testing.assert_allclose(mapped[0], np.stack([x[0] for x in each]), rtol=SAME)
    np.testing.assert_array_equal(mapped[1], np.stack([x[1] for x in each]))
