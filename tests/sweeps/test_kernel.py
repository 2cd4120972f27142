# SPDX-License-Identifier: Apache-2.0
"""The two kernels agree with each other, with the sweep of a search, and with counts and maxima by numpy."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aicjax.constants import ServingConstants
from aicjax.serving.agg import AggEstimate
from aicjax.serving.point import AggCurves, AggGather
from aicjax.sweeps import kernel
from aicjax.sweeps.bounds import SLACK
from aicjax.sweeps.cases import Case, grid_rules
from aicjax.sweeps.kernel import BLOCK, MEASURES, Grid, Rows, Scan, StepLimits, StepNeeds
from aicjax.sweeps.plan import GridPlan
from aicjax.sweeps.spec import SweepSpec
from tests.sweeps.sweeping import ROUNDING, search_points, spec_of, work_of

STATIC = ("measures", "corners", "littles_law_cap")
SCAN = functools.partial(jax.jit, static_argnames=STATIC)(kernel.scan)
LOOK = functools.partial(jax.jit, static_argnames="littles_law_cap")(kernel.look)
NONE = np.full((1, 2), np.inf, np.float32)
DENSE = {"models": ["Qwen/Qwen3-32B-FP8"], "systems": ["h200_sxm"]}
EXPERTS = {"models": ["Qwen/Qwen3-235B-A22B"], "systems": ["h200_sxm"]}
SIZES = {"batch": {"last": 37}, "ctx_tokens": {"last": 5000, "step": 250}, "database_mode": "SOL"}
SPECS = {
    "plain": spec_of(**DENSE, backends=["trtllm"], isl=[3000], osl=[400], **SIZES),
    "one output token": spec_of(**DENSE, backends=["trtllm"], isl=[3000], osl=[1], **SIZES),
    "drafts": spec_of(
        **DENSE, backends=["trtllm"], isl=[70], osl=[400], drafts=[{"nextn": 3, "accepted": 1.3}], **SIZES
    ),
    "cached prompt": spec_of(**DENSE, backends=["vllm"], isl=[3000], osl=[400], prefix=[1000], **SIZES),
    "small cache": spec_of(**DENSE, backends=["sglang"], isl=[20000], osl=[400], memory_fraction=[0.4], **SIZES),
    "stages": spec_of(**DENSE, backends=["vllm"], parallel={"pp": [2, 4]}, isl=[3000], osl=[400], **SIZES),
    "attention ranks": spec_of(
        **EXPERTS, backends=["sglang"], parallel={"dp": [2, 4, 8]}, isl=[3000], osl=[400], **SIZES
    ),
}


class Scanned(NamedTuple):
    """A case with its scan and all its points looked at.

    Attributes:
        spec, case: The sweep and its only case.
        plan, rows: What the kernels take.
        capped: Whether Little's law caps the rate.
        found: Estimates of all points [row, batch, ctx], float64.
        fits: Whether each fits [row, batch, ctx].
    """

    spec: SweepSpec
    case: Case
    plan: GridPlan
    rows: Rows
    capped: bool
    found: AggEstimate
    fits: NDArray[np.bool_]

    def scan(self, limits: NDArray[np.float32]) -> Scan:
        return jax.device_get(
            SCAN(
                self.rows, self.plan.grid, limits, None,
                measures=tuple(MEASURES), corners=True, littles_law_cap=self.capped,
            )
        )  # fmt: skip


def look(rows: Rows, grid: Grid, shape: tuple[int, int, int], capped: bool) -> tuple[AggEstimate, NDArray[np.bool_]]:
    """All points of some rows, batches and budgets; TPOT is 0 for one output token."""
    index = np.indices(shape, np.int32).reshape(3, -1)
    found, fits = jax.device_get(LOOK(rows, grid, *index, littles_law_cap=capped))
    if grid.osl == 1:
        found = found._replace(tpot_ms=np.zeros_like(found.tpot_ms))
    return AggEstimate(*(values.astype(np.float64).reshape(shape) for values in found)), fits.reshape(shape)


@functools.cache
def scanned(name: str) -> Scanned:
    spec = SPECS[name]
    work = work_of(spec)
    (case,) = work.cases.cases
    rows = work.prepare(case)
    plan = work._preparation.grid(case)
    capped = grid_rules(work.cases.engines[0]).littles_law_cap
    found, fits = look(rows, plan.grid, (len(rows.replicas), plan.batches, plan.budgets), capped)
    return Scanned(spec, case, plan, rows, capped, found, fits)


def between(values: Any, share: float) -> np.float32:
    """A limit that a share of the values meets, clear of all of them."""
    distinct = np.unique(values[np.isfinite(values)])
    gaps = np.flatnonzero(np.diff(distinct) > 100 * SLACK * distinct[1:])
    if not gaps.size:
        return np.float32(1)
    at = gaps[int(share * (gaps.size - 1))]
    return np.float32((distinct[at] + distinct[at + 1]) / 2)


def counted(points: Any, isl: int) -> NDArray[np.bool_]:
    """Points whose budget leaves room for decoding and repeats no smaller one."""
    plan = points.plan
    return (plan.batch + -plan.ctx_tokens // isl >= np.where(plan.batch > 1, 1, 0)) & ~plan.repeats


@pytest.mark.parametrize("name", SPECS)
def test_look_finds_what_the_sweep_of_a_search_finds(name):
    it = scanned(name)
    points = search_points(it.spec, work_of(it.spec).cases, it.case)
    for field in AggEstimate._fields:
        expected = getattr(points, field)
        if field == "tpot_ms" and it.case.workload.osl == 1:
            expected = np.zeros_like(expected)
        np.testing.assert_allclose(getattr(it.found, field), expected, rtol=ROUNDING)
    np.testing.assert_array_equal(it.fits, counted(points, it.case.workload.isl) & (points.verdict == 0))
    assert it.fits.any()


@pytest.mark.parametrize("name", SPECS)
def test_counts_are_those_of_the_points(name):
    it = scanned(name)
    points = search_points(it.spec, work_of(it.spec).cases, it.case)
    feasible = it.fits & np.isfinite(it.found.request_latency_ms)
    ttft_ms, tpot_ms = it.found.ttft_ms[feasible], it.found.tpot_ms[feasible]
    limits = [(np.inf, np.inf), *((between(ttft_ms, share), between(tpot_ms, share)) for share in (0.2, 0.6))]
    scan = it.scan(np.array(limits, np.float32))
    inside = counted(points, it.case.workload.isl) & ~points.missing
    for code, place in ((2, 1), (1, 2)):  # everything too large; the cache alone
        np.testing.assert_array_equal(scan.lost[:, place], (inside & (points.verdict == code)).sum(axis=(1, 2)))
    assert scan.lost[:, 0].sum() == 0
    for place, (ttft_ms, tpot_ms) in enumerate(limits):
        fast, quick = feasible & (it.found.ttft_ms <= ttft_ms), feasible & (it.found.tpot_ms <= tpot_ms)
        expected = [mask.sum(axis=(1, 2)) for mask in (fast & quick, fast, quick)]
        np.testing.assert_array_equal(scan.met[place], np.stack(expected, axis=1))


@pytest.mark.parametrize("name", SPECS)
def test_bounds_are_the_best_of_the_points_of_each_block(name):
    it = scanned(name)
    feasible = it.fits & np.isfinite(it.found.request_latency_ms)
    limits = np.array(
        [[np.inf, np.inf], [between(it.found.ttft_ms[feasible], 0.5), between(it.found.tpot_ms[feasible], 0.5)]],
        np.float32,
    )
    scan = it.scan(limits)
    for place, (ttft_ms, tpot_ms) in enumerate(limits):
        fast = feasible & (it.found.ttft_ms <= ttft_ms)
        within = fast & (it.found.tpot_ms <= tpot_ms)
        for measure, of in MEASURES.items():
            same(scan.best[measure][place], by_block(np.where(within, of(it.found), -np.inf)).max(axis=2), it.plan)
        tpot_ms = np.where(fast, it.found.tpot_ms, np.inf)
        rate = np.where(fast, it.found.seq_per_s, -np.inf)
        corners = [by_block(tpot_ms, np.inf).min(axis=2), by_block(rate).max(axis=2)]
        samples = [by_block(tpot_ms, np.inf)[:, :, 0], by_block(rate)[:, :, 0]]
        assert scan.corners is not None
        for edge, expected in zip(scan.corners, [*corners, *samples], strict=True):
            same(edge[place], expected, it.plan)


def by_block(values: NDArray[np.float64], beyond: float = -np.inf) -> NDArray[np.float64]:
    """[row, batch, ctx] as [row, block, BLOCK, ctx]."""
    filled = np.pad(values, ((0, 0), (0, -values.shape[1] % BLOCK), (0, 0)), constant_values=beyond)
    return filled.reshape(len(values), -1, BLOCK, values.shape[2])


def same(found: Any, expected: NDArray, plan: GridPlan) -> None:
    """The same up to rounding; budgets beyond those of the plan have no point."""
    np.testing.assert_allclose(found[..., : plan.budgets], expected, rtol=ROUNDING)
    assert np.isinf(found[..., plan.budgets :]).all()


def test_points_next_to_a_limit_are_doubtful_and_stay_in_the_bounds():
    """A limit between what the two programs make of a point must not lose it."""
    it = scanned("plain")
    feasible = it.fits & np.isfinite(it.found.request_latency_ms)
    row, batch, ctx = (int(at[0]) for at in np.nonzero(feasible & (it.found.seq_per_s == it.found.seq_per_s.max())))
    ttft_ms, tpot_ms = it.found.ttft_ms[row, batch, ctx], it.found.tpot_ms[row, batch, ctx]
    below = 1 - 2 * np.finfo(np.float32).eps
    for limits in ([ttft_ms * below, np.inf], [np.inf, tpot_ms * below]):
        scan = it.scan(np.array([limits], np.float32))
        assert scan.doubtful[0, row] >= 1
        best = scan.best["seq_per_s"][0, row, batch // BLOCK, ctx]
        assert best >= it.found.seq_per_s[row, batch, ctx] * (1 - ROUNDING)
    clear = it.scan(np.array([[ttft_ms * (1 - 2 * SLACK), np.inf]], np.float32))
    assert clear.best["seq_per_s"][0].max() < scan.best["seq_per_s"][0].max()


def test_the_cases_have_the_layouts_that_they_are_named_after():
    sizes = {
        name: [(p.pp, p.dp) for p in work_of(SPECS[name]).cases.engines[0].workers["agg"].layouts] for name in SPECS
    }
    assert {pp for pp, _ in sizes["stages"]} == {2, 4}
    assert {dp for _, dp in sizes["attention ranks"]} == {2, 4, 8}
    replicas = scanned("attention ranks").rows.replicas
    np.testing.assert_array_equal(replicas, [pp * dp for pp, dp in sizes["attention ranks"]])


TOKENS, BATCHES, BUDGETS, MADE_UP = 9, 2 * BLOCK, 3, 3


@st.composite
def made_up(draw: st.DrawFn) -> tuple[Rows, Grid]:
    """Rows and grids of made-up numbers, some of them missing."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def times(*shape: int) -> NDArray[np.float32]:
        values = np.exp(random.normal(size=shape)).astype(np.float32)
        return np.where(random.random(shape) < 0.05, np.nan, values).astype(np.float32)

    def index(*shape: int) -> NDArray[np.int32]:
        return random.integers(0, TOKENS, shape).astype(np.int32)

    grid = Grid(
        gather=AggGather(
            shared=index(BATCHES, BUDGETS),
            mixed_rows=index(BATCHES, BUDGETS),
            decode_rows=index(BATCHES),
            batch=np.arange(1, BATCHES + 1, dtype=np.float32),
            prefill_steps=random.integers(1, 60, (BATCHES, BUDGETS)).astype(np.float32),
            chunks=random.integers(1, 4, BUDGETS).astype(np.float32),
            drains=random.random((BATCHES, BUDGETS)) < 0.7,
            prompts=np.ones((BATCHES, BUDGETS), np.float32),
            room=np.ones(BUDGETS, np.float32),
        ),
        needs=StepNeeds(
            inside=random.random((BATCHES, BUDGETS)) < 0.9,
            rows=random.integers(1, 100, (BATCHES, BUDGETS)).astype(np.int32),
            drafted=random.random((BATCHES, BUDGETS)).astype(np.float32),
        ),
        osl=float(draw(st.sampled_from([1, 2, 30]))),
        progress=float(draw(st.sampled_from([1.0, 1.7]))),
    )
    rows = Rows(
        curves=AggCurves(
            times(MADE_UP, TOKENS), times(MADE_UP, BUDGETS), times(MADE_UP, TOKENS), times(MADE_UP, BATCHES)
        ),
        limits=StepLimits(
            random.integers(0, 150, (MADE_UP, 2, BATCHES)).astype(np.int32),
            (1.3 * random.random((MADE_UP, 2, BATCHES))).astype(np.float32),
        ),
        dispatch_layers=np.array([0, 40, 90], np.float32),
        replicas=np.array([1, 2, 8], np.float32),
        constants=jax.tree.map(
            lambda value: np.full(MADE_UP, value, np.float32), ServingConstants(1.8, 0.05, 0.02, 4.0, 0.01, 3.0)
        ),
    )
    return rows, grid


@given(made_up(), st.booleans())
def test_counts_and_bounds_hold_for_any_numbers(made, capped):
    rows, grid = made
    scan = jax.device_get(SCAN(rows, grid, NONE, None, measures=tuple(MEASURES), corners=True, littles_law_cap=capped))
    found, fits = look(rows, grid, (MADE_UP, BATCHES, BUDGETS), capped)
    known = np.isfinite(found.request_latency_ms)
    feasible = fits & known
    assert scan.met[0, :, 0].tolist() == feasible.sum(axis=(1, 2)).tolist()
    np.testing.assert_array_equal(scan.lost[:, 0], (grid.needs.inside & ~known).sum(axis=(1, 2)))
    at_all, cached = (
        (grid.needs.rows <= rows.limits.rows[:, place, :, None])
        & (grid.needs.drafted <= rows.limits.drafted[:, place, :, None])
        for place in range(2)
    )
    there = grid.needs.inside & known
    np.testing.assert_array_equal(scan.lost[:, 1], (there & ~at_all).sum(axis=(1, 2)))
    np.testing.assert_array_equal(scan.lost[:, 2], (there & at_all & ~cached).sum(axis=(1, 2)))
    for measure, of in MEASURES.items():
        expected = by_block(np.where(feasible, of(found), -np.inf)).max(axis=2)
        np.testing.assert_allclose(scan.best[measure][0], expected, rtol=ROUNDING)
