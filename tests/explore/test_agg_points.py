# SPDX-License-Identifier: Apache-2.0
"""The in-flight batching walk and its selection: stored searches, and the loops that define both."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.explore.agg_points import AggPoints, Outcome, front_points, kept_points, outcomes
from aicjax.explore.grid import load_grid
from aicjax.explore.targets import Bounds, Targets, request_latency_targets
from aicjax.forward.memory import Verdict
from aicjax.models import Parallel
from aicjax.serving.backends import load_backend
from aicjax.serving.load import Load
from aicjax.serving.plan import plan_agg
from tests.oracles import serving as oracle

REFERENCES = Path(__file__).parents[1] / "references"
GRID = load_grid()
TTFT_MS = {"p01": 300, "p03": 300, "p10": 1500, "p12": 2000, "p31": 2000, "p41": 1500}
REQUEST_LATENCY_MS = {"p12": 5000.0}


def table(name: str) -> list[dict]:
    return pq.read_table(REFERENCES / f"{name}.parquet").to_pylist()


def stored_points(search: str) -> AggPoints:
    """The points of a stored search on the full grid; points that it did not evaluate fit and are infinitely slow."""
    rows = [row for row in table("search_agg_points") if row["search"] == search]
    first = rows[0]
    load = Load(first["isl"], first["osl"], first["prefix"])
    batches, budgets = np.array(GRID.agg.batch), np.array(GRID.agg.context_tokens.values(load.isl, chunked=False))
    rules = load_backend(first["backend"])
    plan = plan_agg(load, batches[:, None], budgets, spread_decode_rows=rules.spread_decode_rows)
    layouts = sorted({(row["tp"], row["cp"]) for row in rows})
    shape = (len(layouts), *plan.batch.shape)
    place = tuple(
        np.array(index)
        for index in zip(
            *(
                (
                    layouts.index((row["tp"], row["cp"])),
                    int(np.searchsorted(batches, row["bs"])),
                    int(np.searchsorted(budgets, row["ctx_tokens"])),
                )
                for row in rows
            ),
            strict=True,
        )
    )

    def full(name: str) -> np.ndarray:
        values = np.full(shape, np.inf)
        values[place] = [row[name] for row in rows]
        return values

    verdict = np.zeros(shape, np.int8)
    verdict[place] = [
        {0: Verdict.FITS, 1: Verdict.KV_DOES_NOT_FIT, 2: Verdict.DOES_NOT_FIT}[r["verdict"]] for r in rows
    ]
    outcome = outcomes(load, plan, np.zeros(shape, bool), verdict)
    walked = np.isin(outcome, [Outcome.EVALUATED, Outcome.KV_DOES_NOT_FIT, Outcome.DOES_NOT_FIT])
    expected = np.zeros(shape, bool)
    expected[place] = True
    np.testing.assert_array_equal(walked, expected)
    return AggPoints(
        load=load,
        plan=plan,
        layouts=tuple(Parallel(tp=tp, cp=cp) for tp, cp in layouts),
        ttft_ms=full("ttft"),
        tpot_ms=full("tpot"),
        request_latency_ms=full("ttft"),
        seq_per_s=full("seq/s"),
        memory_bytes=np.zeros(shape),
        verdict=verdict,
    )


@pytest.mark.parametrize("search", TTFT_MS)
def test_walk_and_kept_rows_are_those_of_the_stored_search(search):
    points, tpot = stored_points(search), np.array(GRID.targets.tpot_ms)
    targets = Targets(np.full(len(tpot), float(TTFT_MS[search])), tpot)
    if search in REQUEST_LATENCY_MS:
        limit = REQUEST_LATENCY_MS[search]
        targets = request_latency_targets(limit, points.load.osl, TTFT_MS[search], GRID.targets)
    config, batch, ctx = np.unravel_index(kept_points(points, targets, GRID.agg.keep_per_target), points.outcome.shape)
    got = [
        (points.layouts[c].tp, points.layouts[c].cp, int(points.plan.batch[b, 0]), int(points.plan.ctx_tokens[0, k]))
        for c, b, k in zip(config, batch, ctx, strict=True)
    ]
    rows = [row for row in table("search_agg_kept") if row["search"] == search]
    assert got == [(row["tp"], row["cp"], row["bs"], row["ctx_tokens"]) for row in rows]


KINDS = st.sampled_from(["fits", "fits", "fits", "misfit", "missing"])


@given(st.integers(1, 300), st.integers(1, 60), st.sampled_from([0.0, 0.5]), st.data())
def test_outcomes_are_those_of_the_walk(isl, osl, accepted, data):
    load = Load(isl, osl, 0, 1, accepted)
    batches, budgets = (1, 2, 3, 5, 8, 16, 40), (100, 200, 300, 500, 1000)
    kinds = [
        {(b, c): data.draw(KINDS) for b in batches for c in budgets},
        {(b, c): data.draw(KINDS) for b in batches for c in budgets},
    ]
    plan = plan_agg(load, np.array(batches)[:, None], np.array(budgets), spread_decode_rows=True)
    as_array = np.array([[[kind[b, c] for c in budgets] for b in batches] for kind in kinds])
    verdict = np.where(as_array == "misfit", Verdict.DOES_NOT_FIT, Verdict.FITS).astype(np.int8)
    got = outcomes(load, plan, as_array == "missing", verdict)
    for config, kind in enumerate(kinds):
        expected = oracle.outcomes(kind, load, batches, budgets)
        evaluated = {
            (batches[b], budgets[k]) for b, k in zip(*np.nonzero(got[config] == Outcome.EVALUATED), strict=True)
        }
        assert evaluated == expected


POINT = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))


def points_of(rows: list[list[tuple[int, int, int]]], osl: int = 10) -> AggPoints:
    """Small points: one layout per list, one batch column per row."""
    width = len(rows[0])
    load = Load(10, osl)
    plan = plan_agg(load, np.ones((1, 1), int), np.full(width, 10), spread_decode_rows=True)
    ttft, tpot, rate = (np.array([[[row[i] for row in layout]] for layout in rows], float) for i in range(3))
    return AggPoints(
        load, plan, tuple(Parallel(tp=2**i) for i in range(len(rows))), ttft, tpot, ttft, rate, ttft,
        np.zeros(ttft.shape, np.int8),
    )  # fmt: skip


@given(
    st.lists(st.tuples(*[POINT] * 6), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(1, 4),
)
def test_kept_points_are_those_of_the_loop(layouts, limits, keep):
    points = points_of([list(layout) for layout in layouts])
    targets = Targets(*(np.array([limit[i] for limit in limits], float) for i in range(2)))
    got = kept_points(points, targets, keep)
    expected = []
    for config, layout in enumerate(layouts):
        named = [((config, at), *row) for at, row in enumerate(layout)]
        expected += oracle.kept(named, limits, keep)
    per_gpu = {(c, k): points.seq_per_s[c, 0, k] * 9 / 2**c for c, k in expected}
    expected.sort(key=lambda name: -round(per_gpu[name], 3))
    assert [divmod(int(p), 6) for p in got] == expected


def test_one_output_token_has_no_tpot_to_exceed():
    points = points_of([[(5, 9, 2), (7, 9, 3)]], osl=1)
    assert len(kept_points(points, Targets(np.array([6.0]), np.array([1.0])), 5)) == 1


@given(
    st.lists(st.tuples(*[POINT] * 6), min_size=1, max_size=3),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sets(st.integers(0, 17)),
)
def test_front_holds_the_best_of_every_layout_within_any_limit(layouts, ttft, limit, misfits):
    points = points_of([list(layout) for layout in layouts])
    verdict = points.verdict.copy()
    verdict.ravel()[[at for at in misfits if at < verdict.size]] = Verdict.DOES_NOT_FIT
    points = dataclasses.replace(points, verdict=verdict).one_by_one()
    front = front_points(points, Bounds(ttft, 9.0, on_request=False)).tolist()
    for config in range(len(layouts)):
        here = [at for at in range(points.verdict.size) if at // 6 == config]
        fits = [at for at in here if points.verdict.flat[at] == Verdict.FITS]
        met = [at for at in fits if points.ttft_ms.flat[at] <= ttft and points.tpot_ms.flat[at] <= limit]
        best = max((points.seq_per_s.flat[at] for at in met), default=None)
        assert max((points.seq_per_s.flat[at] for at in met if at in front), default=None) == best
    per_gpu = [points.seq_per_s.flat[at] / 2 ** (at // 6) for at in front]
    assert per_gpu == sorted(per_gpu, reverse=True)
    assert set(front) <= set(np.flatnonzero((points.ttft_ms <= ttft) & (verdict == Verdict.FITS)).tolist())


def test_batches_keep_fronts_of_their_own_where_requests_in_flight_are_picked_by():
    load, plan = Load(10, 10), plan_agg(Load(10, 10), np.array([[4], [8]]), np.array([10]), spread_decode_rows=True)
    ttft, tpot, latency, rate = (np.array([[[a], [b]]], float) for a, b in ((1, 1), (5, 6), (50, 60), (3, 2)))
    fits = np.zeros((1, 2, 1), np.int8)
    points = AggPoints(load, plan, (Parallel(),), ttft, tpot, latency, rate, ttft, fits).one_by_one()
    bounds = Bounds(9.0, 9.0, on_request=False)
    assert front_points(points, bounds).tolist() == [0]
    assert front_points(points, bounds, of_batches=True).tolist() == [0, 1]


@given(st.integers(1, 300), st.integers(1, 60), st.data())
def test_walk_over_a_part_is_the_walk_of_that_part_alone(isl, osl, data):
    load, batches, budgets = Load(isl, osl), (1, 2, 3, 5, 8, 16), (100, 200, 300, 500)
    kinds = np.array([[data.draw(KINDS) for _ in budgets] for _ in batches])[None]
    plan = plan_agg(load, np.array(batches)[:, None], np.array(budgets), spread_decode_rows=True)
    verdict = np.where(kinds == "misfit", Verdict.DOES_NOT_FIT, Verdict.FITS).astype(np.int8)
    times = np.where(kinds == "missing", np.nan, 1.0)
    points = AggPoints(load, plan, (Parallel(),), times, times, times, times, times, verdict)
    part = points.one_by_one().walked((2, 5, 8), (100, 300)).outcome
    rows, columns = [1, 3, 4], [0, 2]
    alone = plan_agg(load, np.array((2, 5, 8))[:, None], np.array((100, 300)), spread_decode_rows=True)
    at = np.ix_([0], rows, columns)
    np.testing.assert_array_equal(part[at], outcomes(load, alone, (kinds == "missing")[at], verdict[at]))
    rest = np.ones_like(part, bool)
    rest[at] = False
    assert (part[rest] == Outcome.OUTSIDE).all()
