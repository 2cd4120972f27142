# SPDX-License-Identifier: Apache-2.0
"""The plan of in-flight batching: stored answers, the loop that defines it, and what is known by hand."""

from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.serving.backends import load_backend
from aicjax.serving.load import Load
from aicjax.serving.plan import equivalence_class, plan_agg
from tests.oracles import serving as oracle

REFERENCES = Path(__file__).parents[1] / "references"
LOAD = ("backend", "isl", "osl", "prefix", "nextn", "accepted")

LOADS = st.builds(
    lambda isl, osl, prefix, nextn, accepted: Load(isl, osl, prefix % isl, nextn, accepted * nextn),
    st.integers(1, 20000),
    st.integers(1, 3000),
    st.integers(0, 20000),
    st.integers(0, 4),
    st.floats(0, 1),
)


def stored_groups():
    rows = pq.read_table(REFERENCES / "serving_agg.parquet").to_pylist()
    key = lambda row: tuple(row[name] for name in LOAD)  # noqa: E731
    return [(facts, list(group)) for facts, group in groupby(sorted(rows, key=key), key)]


def column(rows: list[dict], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows])


@pytest.mark.parametrize(("facts", "rows"), stored_groups(), ids=lambda value: "-".join(map(str, value))[:40])
def test_plan_is_the_stored_one_exactly(facts, rows):
    backend, *load = facts
    load = Load(*load)
    rules = load_backend(backend)
    plan = plan_agg(load, column(rows, "bs"), column(rows, "ctx_tokens"), spread_decode_rows=rules.spread_decode_rows)
    mixed_steps = np.where(plan.batch == 1, 1, plan.prefill_steps)
    for name, values in (
        ("num_mix_steps", mixed_steps),
        ("num_genonly_steps", np.maximum(load.iterations - mixed_steps, 0)),
        ("mix_decode_requests", plan.decode_rows),
        ("num_ctx_reqs", plan.step_prompts),
        ("num_gen_reqs", plan.step_decodes),
        ("num_tokens", plan.step_tokens),
        ("balance_score", plan.balance),
    ):
        np.testing.assert_array_equal(values, column(rows, name), err_msg=name)


@given(LOADS, st.integers(1, 600), st.integers(1, 40000), st.booleans())
def test_plan_is_that_of_the_definition(load, batch, ctx_tokens, spread):
    numbers = oracle.Serving(spread, 0, 0, 0, 0, 0, 3, False)
    expected = oracle.agg_point(load, batch, ctx_tokens, numbers)
    plan = plan_agg(load, batch, ctx_tokens, spread_decode_rows=spread)
    assert (plan.prefill_steps, plan.decode_rows, plan.shared_tokens) == expected[:3]
    assert plan.shared_tokens > 0
    if batch > 1:
        assert bool(plan.drains) == (expected.decode_steps > 0)


@given(
    LOADS, st.lists(st.integers(1, 600), min_size=1, max_size=5), st.lists(st.integers(1, 9000), min_size=1, max_size=5)
)
def test_plan_of_a_grid_is_the_plan_of_its_points(load, batches, budgets):
    grid = plan_agg(load, np.array(batches)[:, None], np.array(budgets), spread_decode_rows=True)
    point = plan_agg(load, batches[-1], budgets[-1], spread_decode_rows=True)
    for name in ("prefill_steps", "decode_rows", "shared_tokens", "drains", "balance"):
        assert getattr(grid, name)[-1, -1] == getattr(point, name)


def test_a_prompt_longer_than_the_budget_takes_chunks():
    plan = plan_agg(Load(6000, 400), 5, 1536, spread_decode_rows=True)
    assert (plan.chunks, plan.prompts, plan.prefill_steps) == (4, 1, 20)


def test_prefix_leaves_whole_prompts_only():
    load = Load(4000, 500, prefix=1000)
    assert plan_agg(load, 8, 8000, spread_decode_rows=True).shared_tokens == 8000 + 6 - 2000
    assert plan_agg(load, 8, 3999, spread_decode_rows=True).shared_tokens == 3999 + 7


def test_drafts_widen_the_decode_rows():
    plan = plan_agg(Load(1000, 100, nextn=2, accepted=1.0), 4, 1000, spread_decode_rows=True)
    assert plan.shared_tokens == 1000 + 3 * 3


def test_schedules_repeat_only_when_prompts_outlast_answers():
    load = Load(4000, 10)
    assert equivalence_class(load, 4, 4000) == 0
    assert equivalence_class(load, 64, 4000) == equivalence_class(load, 128, 4000) > 1


def test_floor_of_a_tie_is_that_of_float64():
    assert equivalence_class(Load(4000, 10), 64, 4000) == 64 // 6.4 == 9
