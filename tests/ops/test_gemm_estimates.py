# SPDX-License-Identifier: Apache-2.0
"""Estimates of matrix products and of activation scales on made-up tables: the nearest points, and who lends."""

import math

import jax
import numpy as np
import pytest

from aicjax._results import MissingPeak, Provenance
from aicjax.constants import load_constants
from aicjax.hardware import System
from aicjax.ops.database import KINDS, Database
from aicjax.ops.gemm import bind_gemm, gemm_latency
from aicjax.ops.query import OpTimes, operator_latency
from aicjax.ops.records import Gemm
from aicjax.ops.roofline import hardware_arrays
from aicjax.tables.rows import Rows
from tests.ops import made_up
from tests.oracles import estimate as oracle
from tests.oracles import rooflines

TOLERANCE = 1e-5  # float32 against float64
CONSTANTS = load_constants("trtllm").op
LEVELS = CONSTANTS.gemm_format_efficiency
BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "int8_wo": 1.0, "nvfp4": 0.5625}
PEAKS = {"bfloat16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8", "int8_wo": "bfloat16", "nvfp4": "fp4"}

kernel = jax.jit(gemm_latency)


def roofline(system: System, form: str, m: float, n: float, k: float) -> float:
    return rooflines.product(m, n, k, BYTES[form], system.peak(PEAKS[form]), system.mem_bw_bytes_per_s)


def samples(system: System, points, form: str) -> dict[oracle.Point, float]:
    """Utilisation of measured points under the roofline of `form`; the first of a repeated point counts."""
    found: dict[oracle.Point, float] = {}
    for m, n, k, latency in points:
        sol = roofline(system, form, m, n, k)
        found.setdefault((m, n, k), sol / max(latency, sol))
    return dict(sorted(found.items()))


def ragged_points(rng: np.random.Generator) -> list[tuple[int, int, int, float]]:
    """Twelve shapes, large enough that no two are equally far from a third, each with a run of token counts."""
    tokens = np.sort(rng.choice(np.arange(1, 5000), 8, replace=False))
    points = []
    for n, k in rng.integers(500, 20000, (12, 2)).tolist():
        first, length = rng.integers(0, 3), rng.integers(1, 6)
        points += [(int(m), n, k, float(10.0 ** rng.uniform(-2, 2))) for m in tokens[first : first + length]]
    return [points[at] for at in rng.permutation(len(points))]


@pytest.mark.parametrize("seed", range(6))
def test_nearest_of_all_points_answer(seed: int):
    """Of all shapes and token counts together, with curves measured at token counts of their own."""
    rng = np.random.default_rng(seed)
    points, system = ragged_points(rng), made_up.system()
    (_, n, k, _), (_, other, _, _), *_ = points
    shapes = [(n, k), (n + 1, k), (n, 2 * k), (other, k + 3), (1, 1), (90000, k), (n, 90000), (3 * n, 3 * k)]
    tokens = np.sort(np.concatenate([[0, 1, 9000], rng.integers(1, 6000, 21), [m for m, *_ in points[:8]]]))
    with made_up.database(gemm_perf=made_up.product_rows(points)):
        records = [Gemm("gemm", 1.0, n, k, "bfloat16") for n, k in shapes]
        rows = bind_gemm(Database(system, *made_up.WHERE, "EMPIRICAL"), records, rows=len(records))
    transform = np.zeros(len(records), np.int32)
    latency, code = kernel(rows, transform, tokens[None].astype(np.float32), hardware_arrays(system), CONSTANTS)
    lent = samples(system, points, "bfloat16")
    assert (np.asarray(code) == Provenance.EMPIRICAL).all()
    for row, shape in enumerate(shapes):
        want = [
            roofline(system, "bfloat16", m, *shape) / oracle.utilization(lent, (m, *shape)) for m in tokens.tolist()
        ]
        np.testing.assert_allclose(latency[row], want, rtol=TOLERANCE)


POINTS = [(m, n, 64, latency) for n in (64, 96) for m, latency in ((1, 0.5), (16, 0.7), (256, 4.0))]
ASKED = {"tokens": 40, "n": 80, "k": 64}


def table(*formats: str) -> Rows:
    """The same points measured in each format, those of each next format three times as slow."""
    columns = [(form, m, n, k, 3**at * latency) for at, form in enumerate(formats) for m, n, k, latency in POINTS]
    names = ("gemm_dtype", "m", "n", "k", "latency")
    return made_up.rows(**dict(zip(names, zip(*columns, strict=True), strict=True)))


def ask(system: System, form: str, mode: str = "EMPIRICAL", policy: str | None = None, **tables: Rows) -> OpTimes:
    product = Gemm("gemm", 1.0, ASKED["n"], ASKED["k"], form)
    with made_up.database(**tables):
        return operator_latency(
            system, *made_up.WHERE, [product], mode=mode, transfer_policy=policy, tokens=ASKED["tokens"]
        )


def expected(system: System, form: str, slower: float, under: str) -> float:
    """Answer from points `slower` than the first format's, their utilisation taken under the roofline of `under`."""
    place = (ASKED["tokens"], ASKED["n"], ASKED["k"])
    lent = samples(system, [(m, n, k, slower * latency) for m, n, k, latency in POINTS], under)
    return roofline(system, form, *place) / oracle.utilization(lent, place)


@pytest.mark.parametrize(
    ("form", "formats", "slower", "under", "code"),
    [
        ("fp8", ("fp8_block", "fp8"), 3, "fp8", Provenance.EMPIRICAL),
        ("fp8_block", ("bfloat16", "fp8", "sq"), 3, "fp8_block", Provenance.XQUANT),
        ("fp8", ("bfloat16", "nvfp4"), 1, "bfloat16", Provenance.XPROFILE),
        ("int8_wo", ("fp8", "nvfp4", "bfloat16"), 9, "bfloat16", Provenance.XPROFILE),
    ],
)
def test_own_format_lends_then_one_of_its_profile_then_the_nearest_profile(form, formats, slower, under, code):
    """Nearest by compute class, then by bytes; a format of another profile lends under its own roofline."""
    system = made_up.system(peak_flops={"bfloat16": 1e15, "fp8": 2e15, "int8": 2e15, "fp4": 4e15})
    times = ask(system, form, gemm_perf=table(*formats))
    level = LEVELS[form] / LEVELS[under] if code == Provenance.XPROFILE else 1.0
    assert times.provenance.tolist() == [code]
    assert times.latency_ms[0] == pytest.approx(expected(system, form, slower, under) / level, rel=TOLERANCE)


def test_only_allowed_transfers_lend():
    system = made_up.system()
    lent = {
        policy: ask(system, "fp8_block", "EMPIRICAL", policy, gemm_perf=table("bfloat16", "fp8")).provenance.item()
        for policy in ("off", "conservative", "balanced", "aggressive", "xprofile", "xshape,xquant")
    }
    assert lent == {
        "off": Provenance.MISSING,
        "conservative": Provenance.MISSING,
        "balanced": Provenance.XQUANT,
        "aggressive": Provenance.XQUANT,
        "xprofile": Provenance.XPROFILE,
        "xshape,xquant": Provenance.XQUANT,
    }


@pytest.mark.parametrize("mode", ["HYBRID", "EMPIRICAL"])
def test_formats_without_a_peak_are_refused_before_anything_lends(mode: str):
    with pytest.raises(MissingPeak, match="states no peak"):
        ask(made_up.system(), "nvfp4", mode, gemm_perf=table("bfloat16"))


def test_hybrid_estimates_only_what_tables_miss():
    """Within two octaves of a measured shape tables answer; beyond, the nearest points do, and never the roofline."""
    system, tokens = made_up.system(), [40, 40, 40]
    ops = [Gemm("gemm", 1.0, n, k, "bfloat16", below_grid_sol=True) for n, k in ((64, 64), (70, 64), (1, 64))]
    with made_up.database(gemm_perf=table("bfloat16")):
        measured, hybrid, estimated = (
            operator_latency(system, *made_up.WHERE, ops, mode=mode, tokens=tokens)
            for mode in ("SILICON", "HYBRID", "EMPIRICAL")
        )
    assert hybrid.provenance.tolist() == [Provenance.INTERPOLATED, Provenance.TRANSFERRED, Provenance.EMPIRICAL]
    np.testing.assert_array_equal(hybrid.latency_ms[:2], measured.latency_ms[:2])
    np.testing.assert_array_equal(hybrid.latency_ms[2:], estimated.latency_ms[2:])
    assert measured.provenance[2] == Provenance.SOL


def test_rows_that_tables_answer_bind_no_estimate():
    with made_up.database(gemm_perf=table("bfloat16")):
        database = Database(made_up.system(), *made_up.WHERE, "HYBRID")
        rows = bind_gemm(database, [Gemm("gemm", 1.0, 64, 64, "bfloat16")], rows=1)
    assert rows.estimates is None
    assert database.transfers == KINDS


M_KNOTS, K_KNOTS = (1, 64, 1024), (64, 256, 4096)
GRID = [(m, k) for m in M_KNOTS for k in K_KNOTS]


@pytest.mark.parametrize("tokens", [1, 7, 9, 500, 1024, 5000])
def test_static_scales_save_what_the_nearest_points_cost(tokens: int):
    """Computing scales costs what the one nearest point does, free or not; applying them what the two nearest do."""
    system, low_precision = made_up.system(), True
    compute = {(m, k): 0.0 if m == 64 else 1e-4 * (1 + m / 10 + k / 1000) for m, k in GRID}
    apply = {(m, k): 1e-4 * (2 + m / 20 + k / 3000) for m, k in GRID}
    tables = {
        name: made_up.rows(
            quant_dtype=["fp8"] * 9, m=[m for m, _ in GRID], k=[k for _, k in GRID], latency=[*costs.values()]
        )
        for name, costs in (("computescale_perf", compute), ("scale_matrix_perf", apply))
    }
    products = [(m, 512, k, 1.0 + m / 100) for m in (1, 64, 1024) for k in (64, 4096)]
    ops = [Gemm("gemm", 1.0, 512, k, "fp8_static", low_precision) for k in (64, 150, 256, 20000)]
    with made_up.database(gemm_perf=made_up.product_rows(products, "fp8"), **tables):
        times = operator_latency(system, *made_up.WHERE, ops, mode="EMPIRICAL", tokens=tokens)
    base = samples(system, products, "fp8")
    lent: dict[oracle.Point, float] = {(m, k): m * k / cost for (m, k), cost in apply.items()}
    for at, op in enumerate(ops):
        whole = roofline(system, "fp8", tokens, op.n, op.k) / oracle.utilization(base, (tokens, op.n, op.k))
        near = min(GRID, key=lambda p: math.dist(scaled(p), scaled((tokens, op.k))))
        saved = compute[near] * tokens * op.k / (near[0] * near[1])
        saved += tokens * op.k / oracle.utilization(lent, (tokens, op.k))
        want = max(whole - saved, roofline(system, "fp8", tokens, op.n, op.k))
        assert times.latency_ms[at] == pytest.approx(want, rel=TOLERANCE)
    assert set(times.provenance.tolist()) == {Provenance.EMPIRICAL}


def scaled(point: tuple[float, float]) -> tuple[float, float]:
    return math.log(point[0]) / math.log(M_KNOTS[-1]), math.log(point[1] / K_KNOTS[0]) / math.log(
        K_KNOTS[-1] / K_KNOTS[0]
    )


def test_static_scales_without_a_scale_table_have_no_estimate():
    ops = [Gemm("static", 1.0, 512, 64, "fp8_static"), Gemm("dynamic", 1.0, 512, 64, "fp8")]
    with made_up.database(gemm_perf=made_up.product_rows([(64, 512, 64, 1.0)], "fp8")):
        times = operator_latency(made_up.system(), *made_up.WHERE, ops, mode="EMPIRICAL", tokens=64)
    assert times.provenance.tolist() == [Provenance.MISSING, Provenance.EMPIRICAL]
