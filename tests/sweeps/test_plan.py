# SPDX-License-Identifier: Apache-2.0
"""Grids of a sweep: what each point gathers, what padding holds, and how points are numbered."""

import itertools
from typing import Any

import numpy as np
import pytest

from aicjax.explore.agg_sweep import plan_agg_sweep
from aicjax.explore.evaluation import Evaluation, bind_layouts
from aicjax.forward.bound import COORDINATES
from aicjax.sweeps.cases import CHUNK_POINTS, PLAN_POINTS, enumerate_cases
from aicjax.sweeps.kept import Points
from aicjax.sweeps.kernel import BLOCK
from aicjax.sweeps.plan import CTX_PAD, plan_grid
from aicjax.sweeps.rest import REST, attention_alone, rest_union
from aicjax.sweeps.spec import SweepSpec
from tests.sweeps.sweeping import search_points, spec_of, swept, work_of

MODEL = "Qwen/Qwen3-32B-FP8"


def roofline_spec(**axes: Any) -> SweepSpec:
    given = {"models": [MODEL], "systems": ["h200_sxm"], "backends": ["trtllm"], "database_mode": "SOL"}
    return spec_of(**(given | axes))


GRIDS = {
    "padded": roofline_spec(isl=[900], osl=[200], batch={"last": 21}, ctx_tokens=[64, 1000, 4096]),
    "one of each": roofline_spec(isl=[900], osl=[200], batch=[5], ctx_tokens=[1000]),
    "full blocks": roofline_spec(isl=[900], osl=[1], batch={"last": 2 * BLOCK}, ctx_tokens={"last": CTX_PAD}),
    "cached prompt": roofline_spec(isl=[900], osl=[200], prefix=[900], batch={"last": 9}, ctx_tokens=[64, 1000, 4096]),
    "drafts": roofline_spec(
        isl=[900], osl=[200], drafts=[{"nextn": 2, "accepted": 1}], batch={"last": 9}, ctx_tokens=[64, 1000]
    ),
}


@pytest.mark.parametrize("name", GRIDS)
def test_every_point_gathers_the_step_times_of_the_search(name):
    spec = GRIDS[name]
    engine = enumerate_cases(spec).engines[0].workers["agg"]
    plan = plan_grid(engine, spec.batch, spec.ctx_tokens)
    bound = bind_layouts(engine.deployment, engine.op_lists)
    union = rest_union([plan.queries])
    rest, attention = union.times(bound).at(union.places[0]), bound.evaluate(attention_alone(plan.queries))
    curves, gather = plan.curves(rest, attention), plan.grid.gather
    batches, budgets = plan.batches, plan.budgets
    assert (batches, budgets) == (len(spec.batch), len(spec.ctx_tokens))

    evaluation = Evaluation()
    sweep = plan_agg_sweep(engine, spec.batch, spec.ctx_tokens, evaluation.add(engine))
    found, _ = evaluation.curves(engine)
    flat = sweep.decode_attention.values(found)
    mixed, alone = flat[:, : batches * budgets].reshape(-1, batches, budgets), flat[:, batches * budgets :]
    rest = sweep.decode_rest.values(found) + sweep.decode_other.values(found)
    within = np.s_[:batches, :budgets]
    np.testing.assert_array_equal(curves.shared[:, gather.shared[within]], sweep.shared.values(found))
    np.testing.assert_array_equal(curves.context_attention[:, :budgets], sweep.context_attention.values(found))
    np.testing.assert_array_equal(curves.decode_attention[:, gather.mixed_rows[within]], mixed)
    np.testing.assert_array_equal(curves.decode_attention[:, gather.decode_rows[:batches]], alone)
    np.testing.assert_allclose(curves.decode_rest[:, :batches], rest, rtol=1e-6)


def test_grids_share_the_coordinates_of_passes_without_attention():
    plans = []
    for name in ("padded", "full blocks", "cached prompt"):
        spec = GRIDS[name]
        plans.append(plan_grid(enumerate_cases(spec).engines[0].workers["agg"], spec.batch, spec.ctx_tokens))
    union = rest_union([plan.queries for plan in plans])
    for plan, places in zip(plans, union.places, strict=True):
        for part, place in zip(REST, places, strict=True):
            for field in COORDINATES[part]:
                expected = getattr(plan.queries, field)
                np.testing.assert_array_equal(getattr(union.queries, field)[place], expected)
    coordinates = np.stack([getattr(union.queries, field) for field in COORDINATES["context_rest"]])
    assert np.unique(coordinates, axis=1).shape == coordinates.shape
    assert coordinates.shape[1] < sum(len(plan.queries.context_new) for plan in plans)
    assert union.queries.decode_rows.size == 0


@pytest.mark.parametrize("name", GRIDS)
def test_padding_holds_no_points(name):
    spec = GRIDS[name]
    engine = enumerate_cases(spec).engines[0].workers["agg"]
    plan = plan_grid(engine, spec.batch, spec.ctx_tokens)
    rows, columns = plan.padded
    assert rows % BLOCK == 0
    assert columns % CTX_PAD == 0
    inside = np.array(plan.grid.needs.inside)
    load = engine.deployment.load
    expected = [[b == 1 or b > -(-c // load.isl) for c in spec.ctx_tokens] for b in spec.batch]
    if 1 in spec.batch:
        at = spec.batch.index(1)
        expected[at] = [c <= load.isl for c in spec.ctx_tokens]
    np.testing.assert_array_equal(inside[: plan.batches, : plan.budgets], expected)
    assert inside.sum() == plan.inside
    for part in plan.grid.gather:
        assert np.isfinite(part).all()
    limits = plan.limits(engine, None)
    assert (limits.rows[..., plan.batches :] == -1).all()
    assert (limits.drafted is None) == (load.nextn == 0)


AXES = {"isl": [500, 900], "batch": {"last": 19}, "ctx_tokens": [64, 1000], "memory_fraction": [None, 0.5]}


def test_points_are_numbered_through():
    cases = enumerate_cases(roofline_spec(models=[MODEL, "Qwen/Qwen3-8B"], **AXES))
    first = 0
    for case in cases.cases:
        layouts = len(cases.engines[case.engine].workers["agg"].layouts)
        assert (case.first_point, case.points) == (first, layouts * 19 * 2)
        first += case.points
    assert cases.points == first
    described = [(case.engine, case.workload, case.memory_fraction) for case in cases.cases]
    assert len(set(described)) == len(described) == 2 * 2 * 2


def test_a_number_leads_back_to_its_point():
    """The estimate kept under a number is that of the layout, batch and budget that the number says."""
    work = work_of(roofline_spec(top_k=60, limits=[{}, {"ttft": 60.0}], **AXES))
    kept = swept(work)
    every = {case.first_point: search_points(work.spec, work.cases, case) for case in work.cases.cases}
    checked = 0
    for top in kept.tops.values():
        for point in map(Points, *top):
            case = max((c for c in work.cases.cases if c.first_point <= point.number), key=lambda c: c.first_point)
            layout, rest = divmod(point.number - case.first_point, len(case.batches) * len(work.spec.ctx_tokens))
            place = (layout, *divmod(rest, len(work.spec.ctx_tokens)))
            points = every[case.first_point]
            assert point.seq_per_s == pytest.approx(points.seq_per_s[place], rel=1e-6)
            assert point.ttft_ms == pytest.approx(points.ttft_ms[place], rel=1e-6)
            checked += 1
    assert checked > 100


def test_chunks_hold_every_case_once_and_share_a_grid():
    work = work_of(roofline_spec(backends=["trtllm", "vllm", "sglang"], **AXES))
    chunks = work.chunks()
    assert sorted(itertools.chain(*chunks), key=lambda case: case.first_point) == list(work.cases.cases)
    for chunk in chunks:
        assert len({(case.workload, case.batches) for case in chunk}) == 1
        assert sum(case.points for case in chunk[:-1]) < CHUNK_POINTS


def test_long_axes_are_split_into_blocks_of_batches():
    spec = roofline_spec(isl=[500], batch={"last": 3000}, ctx_tokens={"last": 400})
    cases = enumerate_cases(spec)
    assert len(cases.cases) > 1
    assert tuple(itertools.chain(*(case.batches for case in cases.cases))) == spec.batch
    assert all(len(case.batches) * len(spec.ctx_tokens) <= PLAN_POINTS for case in cases.cases)


def test_blocks_of_batches_change_no_answer(monkeypatch):
    axes = {
        "isl": [900],
        "osl": [200],
        "batch": {"last": 45},
        "ctx_tokens": [64, 500, 1000],
        "limits": [{"ttft": 80.0}],
    }
    whole = swept(work_of(roofline_spec(**axes)))
    monkeypatch.setattr("aicjax.sweeps.cases.PLAN_POINTS", 3 * 13)
    work = work_of(roofline_spec(**axes))
    assert len(work.cases.cases) == 4
    parts = swept(work, reversed(work.chunks()))
    np.testing.assert_array_equal(parts.counts[0, 0], whole.counts[0, 0])
    for name in ("tops", "fronts"):
        for key, points in getattr(whole, name).items():
            for field in ("value", "tpot_ms", "ttft_ms"):
                np.testing.assert_allclose(getattr(getattr(parts, name)[key], field), getattr(points, field), rtol=1e-6)
