# SPDX-License-Identifier: Apache-2.0
"""Matrix products on made-up tables: what is loaded, which shapes answer, static scales."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import DataError, MissingPeak, Provenance
from aicjax.constants import load_constants
from aicjax.hardware import System
from aicjax.interp.sites import fitted_utilization
from aicjax.ops.database import Database
from aicjax.ops.gemm import bind_gemm, gemm_latency
from aicjax.ops.gemm_tables import load_gemm
from aicjax.ops.query import operator_latency
from aicjax.ops.records import Gemm
from aicjax.ops.roofline import hardware_arrays
from aicjax.ops.scales import load_scale
from aicjax.tables.rows import Rows
from tests import strategies
from tests.ops import made_up
from tests.oracles import curves, grid, rooflines, sites

TOLERANCE = 1e-5  # float32 against float64
ROUNDING = 3e-6  # float32 rounding, where an inequality is exact in real numbers
CONSTANTS = load_constants("trtllm").op

kernel = jax.jit(gemm_latency)


def roofline(system: System, element_bytes: float = 2, dtype: str = "bfloat16") -> sites.Sol:
    rates = (system.peak(dtype), system.mem_bw_bytes_per_s)
    return lambda m, n, k: rooflines.product(m, n, k, element_bytes, *rates)


def clamped(points: list[sites.Row], sol: sites.Sol) -> list[sites.Row]:
    return [(m, n, k, max(latency, sol(m, n, k))) for m, n, k, latency in points]


def shapes_asked(points: list[sites.Row]) -> list[sites.Shape]:
    """A measured shape, near and far ones, one beyond the frontier, one below everything."""
    (_, n, k, _), (_, other, _, _), *_ = points
    most = max(row[1] for row in points)
    return [(n, k), (2 * n, k), (n + 1, 3 * k), (other, 2 * k), (32 * most, k), (32 * most, 2**24), (1, k), (n, 1)]


@settings(max_examples=25)
@given(strategies.product_rows(powers_of_two=True), strategies.roofs())
def test_products_equal_the_oracle(points, roof):
    system = made_up.system(peak_flops={"bfloat16": roof.peak}, mem_bw_bytes_per_s=roof.mem_bw)
    shapes, sol = shapes_asked(points), roofline(system)
    tokens = np.unique(np.floor(strategies.around(np.array(sorted({m for m, *_ in points}), float))))
    tokens = np.pad(tokens, (0, 2 * strategies.TOKENS + 1 - tokens.size), constant_values=tokens[-1])
    with made_up.database(gemm_perf=made_up.product_rows(points)):
        records = [Gemm("gemm", 1.0, n, k, "bfloat16") for n, k in shapes]
        rows = bind_gemm(Database(system, *made_up.WHERE), records, rows=len(records))
    transform = np.zeros(len(records), np.int32)
    latency, code = kernel(rows, transform, tokens[None].astype(np.float32), hardware_arrays(system), CONSTANTS)
    table = sites.curves_by_rank(clamped(points, sol))
    for row, shape in enumerate(shapes):
        for at, m in enumerate(tokens.tolist()):
            want, how = sites.product(table, shape, m, sol)
            assert code[row, at] == how, (shape, m)
            assert float(latency[row, at]) == pytest.approx(want, rel=TOLERANCE, nan_ok=True), (shape, m, how)
            assert how == Provenance.MISSING or latency[row, at] >= sol(m, *shape) * (1 - ROUNDING)


@settings(max_examples=10)
@given(strategies.product_rows(powers_of_two=False))
def test_fitted_products_equal_the_fit_of_their_neighbours(points):
    system = made_up.system()
    sol, table = roofline(system), sites.curves_by_rank(clamped(points, roofline(system)))
    (_, n, k, _), *_ = points
    asked = [shape for shape in ((n + n // 2, k), (n, 2 * k + 1)) if shape not in table]
    knots = np.array(sorted({m for m, *_ in points}), float)
    with made_up.database(gemm_perf=made_up.product_rows(points)):
        records = [Gemm("gemm", 1.0, *shape, "bfloat16") for shape in asked]
        rows = bind_gemm(Database(system, *made_up.WHERE, fits_shapes=True), records, rows=len(records))
    transform = np.zeros(len(records), np.int32)
    latency, code = kernel(rows, transform, knots[None].astype(np.float32), hardware_arrays(system), CONSTANTS)
    spanned = [[curves.between(curve, m) for m in knots] for curve in table.values()]
    utilization = np.array(
        [
            [np.nan if at is None else sol(m, *shape) / at[0] for m, at in zip(knots, line, strict=True)]
            for shape, line in zip(table, spanned, strict=True)
        ]
    )
    for row, shape in enumerate(asked):
        want = fitted_utilization(np.array(list(table), float), knots, utilization, shape)
        for at in np.flatnonzero(np.isfinite(want)):
            assert float(latency[row, at]) == pytest.approx(sol(knots[at], *shape) / want[at], rel=TOLERANCE)
            assert code[row, at] == Provenance.TRANSFERRED


def test_products_beyond_their_tokens_keep_the_utilisation_of_the_last_point():
    system = made_up.system()
    sol = roofline(system)
    points = [(m, 1024, 1024, sol(m, 1024, 1024) / u) for m, u in ((64, 0.2), (128, 0.4), (256, 0.8))]
    found = []
    for extends in (True, False):
        with made_up.database(gemm_perf=made_up.product_rows(points)):
            database = Database(system, *made_up.WHERE, extends_curves=extends)
            rows = bind_gemm(database, [Gemm("gemm", 1.0, 1024, 1024, "bfloat16")], rows=1)
        tokens = np.full((1, 1), 4096, np.float32)
        latency, code = kernel(rows, np.zeros(1, np.int32), tokens, hardware_arrays(system), CONSTANTS)
        assert code[0, 0] == Provenance.HELD
        found.append(sol(4096, 1024, 1024) / float(latency[0, 0]))
    assert found == pytest.approx([0.8, 0.4], rel=TOLERANCE)  # the last, the median of the last three


def test_first_of_repeated_rows_counts_and_rows_below_the_roofline_are_raised():
    system = made_up.system()
    points = [(1, 64, 64, 1.0), (1, 64, 64, 9.0), (4096, 64, 64, 1e-9)]
    with made_up.database(gemm_perf=made_up.product_rows(points)):
        table = load_gemm(system, *made_up.WHERE, True, "bfloat16")
    assert table is not None
    assert table.knots.tolist() == [1, 4096]
    assert table.latency_ms[0].tolist() == [1.0, pytest.approx(roofline(system)(4096, 64, 64), rel=1e-12)]


def test_formats_do_not_mix_and_kernels_merge():
    table = made_up.rows(
        gemm_dtype=["fp8", "bfloat16", "fp8", "awq"],
        kernel_source=["a", "a", "b", "a"],
        m=[1, 1, 2, 1],
        n=[64, 128, 64, 256],
        k=[64, 64, 64, 64],
        latency=[1.0, 2.0, 3.0, 4.0],
    )
    system = made_up.system()
    with made_up.database(gemm_perf=table):
        loaded = {mode: load_gemm(system, *made_up.WHERE, True, mode) for mode in ("fp8", "bfloat16", "awq", "nvfp4")}
    assert loaded["awq"] is None and loaded["nvfp4"] is None
    assert loaded["fp8"] is not None and loaded["bfloat16"] is not None
    assert loaded["fp8"].sites.tolist() == [[64, 64]]
    assert loaded["fp8"].latency_ms.tolist() == [[1.0, 3.0]]
    assert loaded["bfloat16"].sites.tolist() == [[128, 64]]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=40))
def test_shapes_are_ranked_in_the_order_of_the_walk(keys):
    """First-met m, then n as first met under it, then k under both: not the order of rows, nor of shapes."""
    points = [(m, n, k, 1.0) for m, n, k in keys]
    with made_up.database(gemm_perf=made_up.product_rows(points)):
        table = load_gemm(made_up.system(), *made_up.WHERE, True, "bfloat16")
    assert table is not None
    assert list(map(tuple, table.sites.tolist())) == list(sites.curves_by_rank(points))


def test_walk_order_differs_from_row_order():
    points = [(1, 8, 8, 1.0), (2, 16, 16, 1.0), (1, 32, 32, 1.0), (1, 8, 64, 1.0)]
    with made_up.database(gemm_perf=made_up.product_rows(points)):
        table = load_gemm(made_up.system(), *made_up.WHERE, True, "bfloat16")
    assert table is not None
    assert table.sites.tolist() == [[8, 8], [8, 64], [32, 32], [16, 16]]


def test_roofline_answers_a_shape_below_the_grid_only_when_asked_to():
    system, tokens = made_up.system(), [64, 64, 64]
    small = {"n": 1, "k": 4096, "quant": "bfloat16"}
    ops = [
        Gemm("plain", 1.0, **small),
        Gemm("estimate", 1.0, **small, below_grid_sol=True),
        Gemm("no table", 1.0, 1, 4096, "fp8", below_grid_sol=True),
    ]
    with made_up.database(gemm_perf=made_up.product_rows([(1, 4096, 4096, 1.0), (128, 4096, 4096, 2.0)])):
        times = operator_latency(system, *made_up.WHERE, ops, tokens=tokens)
    assert times.provenance.tolist() == [Provenance.MISSING, Provenance.SOL, Provenance.MISSING]
    assert np.isnan(times.latency_ms).tolist() == [True, False, True]
    assert times.latency_ms[1] == pytest.approx(roofline(system)(64, 1, 4096), rel=TOLERANCE)


def test_tokens_are_divided_with_floor_and_then_with_ceil():
    """100 // 3 = 33 tokens, of which a rank of two takes 17."""
    system = made_up.system()
    points = [(m, 64, 64, float(m)) for m in (1, 17, 33, 100)]
    ops = [
        Gemm("whole", 1.0, 64, 64, "bfloat16"),
        Gemm("floor", 2.0, 64, 64, "bfloat16", token_divisor=3),
        Gemm("both", 1.0, 64, 64, "bfloat16", token_divisor=3, seq_split=2),
    ]
    with made_up.database(gemm_perf=made_up.product_rows(points)):
        times = operator_latency(system, *made_up.WHERE, ops, tokens=100)
    assert times.latency_ms.tolist() == [100.0, 66.0, 17.0]
    assert set(times.provenance.tolist()) == {Provenance.EXACT}


M_KNOTS, K_KNOTS = (1, 64, 1024), (64, 256, 4096)


def scale_rows(cost_ms: float) -> tuple[Rows, dict[grid.Point, float]]:
    points = {(float(m), float(k)): cost_ms * (1 + m / 100) * (1 + k / 1000) for m in M_KNOTS for k in K_KNOTS}
    m, k = zip(*points, strict=True)
    columns = {"m": [int(x) for x in m], "k": [int(x) for x in k], "latency": list(points.values())}
    return made_up.rows(quant_dtype=["fp8"] * len(points), **columns), points


@pytest.mark.parametrize("tokens", [1, 40, 64, 1024, 4096])
@pytest.mark.parametrize("low_precision_input", [False, True])
def test_static_scales_save_the_cost_of_dynamic_ones(tokens, low_precision_input):
    """The cost of computing scales stays flat beyond its table; that of applying them grows with tokens and k."""
    system = made_up.system()
    compute, compute_points = scale_rows(0.001)
    apply, apply_points = scale_rows(0.0005)
    base = {m: 1.0 + m / 16 for m in (1, 64, 1024, 8192)}
    shapes = [(512, k) for k in (64, 100, 256, 8192)]
    points = [(m, n, k, latency) for n, k in shapes for m, latency in base.items()]
    ops = [Gemm("gemm", 1.0, n, k, "fp8_static", low_precision_input) for n, k in shapes]
    tables = {"computescale_perf": compute, "scale_matrix_perf": apply}
    with made_up.database(gemm_perf=made_up.product_rows(points, "fp8"), **tables):
        times = operator_latency(system, *made_up.WHERE, ops, tokens=tokens)
    whole, _ = curves.token_curve(base, tokens, lambda m: m)
    for at, (_, k) in enumerate(shapes):
        held = (float(min(tokens, M_KNOTS[-1])), float(np.clip(k, K_KNOTS[0], K_KNOTS[-1])))
        saved = grid.grid(compute_points, held, lambda m, k: m * k)[0]
        if low_precision_input:
            saved += grid.grid(apply_points, held, lambda m, k: m * k)[0] * tokens * k / (held[0] * held[1])
        assert times.latency_ms[at] == pytest.approx(whole - saved, rel=TOLERANCE)
    assert set(times.provenance.tolist()) == {Provenance.ESTIMATED}


def test_static_scales_never_go_below_the_roofline():
    system = made_up.system()
    compute, _ = scale_rows(1e3)
    with made_up.database(
        gemm_perf=made_up.product_rows([(64, 512, 256, 1.0), (128, 512, 256, 1.0)], "fp8"), computescale_perf=compute
    ):
        times = operator_latency(system, *made_up.WHERE, [Gemm("gemm", 1.0, 512, 256, "fp8_static")], tokens=64)
    assert times.latency_ms[0] == pytest.approx(roofline(system, 1, "fp8")(64, 512, 256), rel=TOLERANCE)


def test_static_scales_without_a_scale_table_are_missing():
    ops = [Gemm("static", 1.0, 512, 256, "fp8_static"), Gemm("dynamic", 1.0, 512, 256, "fp8")]
    with made_up.database(gemm_perf=made_up.product_rows([(64, 512, 256, 1.0), (128, 512, 256, 1.0)], "fp8")):
        times = operator_latency(made_up.system(), *made_up.WHERE, ops, tokens=64)
    assert times.provenance.tolist() == [Provenance.MISSING, Provenance.EXACT]
    assert np.isnan(times.latency_ms).tolist() == [True, False]


def test_hole_in_a_scale_table_is_refused_by_name():
    table = made_up.rows(quant_dtype=["fp8"] * 3, m=[1, 1, 2], k=[64, 128, 64], latency=[1.0, 1.0, 1.0])
    with made_up.database(computescale_perf=table), pytest.raises(DataError, match="no row at m = 2, k = 128"):
        load_scale(made_up.system(), *made_up.WHERE, True, "computescale_perf")


def test_peak_is_asked_for_before_any_table():
    system = made_up.system(peak_flops={"bfloat16": 1e15})
    with made_up.database(), pytest.raises(MissingPeak, match="no peak for fp4"):
        bind_gemm(Database(system, *made_up.WHERE), [Gemm("gemm", 1.0, 64, 64, "nvfp4")], rows=1)
