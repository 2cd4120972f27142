# SPDX-License-Identifier: Apache-2.0
"""Real numbers in place of counts: what whole ones give, and what lies between."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.serving.load import Load
from aicjax.serving.plan import plan_agg
from aicjax.serving.relaxed import RelaxedPlan, between, relaxed_agg_plan

LOADS = st.builds(Load, isl=st.integers(1, 9000), osl=st.integers(1, 3000))


def exact(load: Load, batch: int, ctx_tokens: int, spread: bool) -> RelaxedPlan:
    return RelaxedPlan.of(plan_agg(load, batch, ctx_tokens, spread_decode_rows=spread))


@given(LOADS, st.integers(1, 512), st.integers(1, 16), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_whole_quotients_give_the_plan(load: Load, batch: int, prompts: int, chunks: int, spread: bool):
    """Budgets of whole prompts, or of a whole part of one; batches that fill their steps."""
    isl = load.isl * chunks if prompts == 1 else load.isl
    load = Load(isl, load.osl)
    ctx_tokens = isl // chunks if prompts == 1 else isl * prompts
    batch = batch if prompts == 1 else batch * prompts
    got = relaxed_agg_plan(load, float(batch), float(ctx_tokens), spread_decode_rows=spread)
    want = exact(load, batch, ctx_tokens, spread)
    for name in ("batch", "prefill_steps", "prompts", "chunks"):
        np.testing.assert_allclose(getattr(got, name), getattr(want, name), rtol=1e-6, err_msg=name)
    if want.prefill_steps != pytest.approx(load.iterations):  # on the tie of the two float32 may see the other side
        assert got.drains == want.drains
        np.testing.assert_allclose(got.decode_rows, want.decode_rows, rtol=1e-5, atol=1.0 if spread else 1e-5)


@given(LOADS, st.integers(1, 512), st.integers(1, 16384))
def test_ceilings_add_less_than_one(load: Load, batch: int, ctx_tokens: int):
    got = relaxed_agg_plan(load, float(batch), float(ctx_tokens), spread_decode_rows=False)
    want = exact(load, batch, ctx_tokens, False)
    for name in ("prefill_steps", "prompts", "chunks"):
        below = float(getattr(want, name)) - float(getattr(got, name))
        assert -1e-4 * float(getattr(want, name)) <= below < 1 + 1e-4, name
    assert 0 <= float(got.decode_rows) - float(want.decode_rows) < 1 + 1e-4
    assert float(got.shared_tokens) == pytest.approx(ctx_tokens + float(got.decode_rows), rel=1e-6)


def test_longer_budgets_take_fewer_steps():
    slope = jax.grad(lambda c: relaxed_agg_plan(Load(4000, 500), 32.0, c, spread_decode_rows=True).prefill_steps)
    assert slope(8000.0) == pytest.approx(-4000 * 32 / 8000**2)


@given(st.lists(st.floats(0.25, 100, width=32), min_size=2, max_size=9), st.floats(-1, 10, width=32))
def test_curves_are_read_on_straight_lines(values: list[float], at: float):
    curve = np.array(values, np.float32)
    assert between(curve, at) == pytest.approx(np.interp(at, np.arange(len(values)), curve), rel=1e-5)
    assert [float(between(curve, float(count))) for count in range(len(values))] == curve.tolist()
