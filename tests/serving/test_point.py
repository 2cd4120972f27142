# SPDX-License-Identifier: Apache-2.0
"""Points by the formulas of their constants: the mean field as it is, the closed loop by hand, grids, gradients."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.constants import Constants, load_constants, traced
from aicjax.serving.agg import AggPoint, AggSetting, agg_estimate, mixed_step_ms
from aicjax.serving.closed_loop import ClosedLoop, LoopTimes, LoopWork, closed_loop_estimate
from aicjax.serving.load import Load
from aicjax.serving.plan import AggPlan, full_prompts, plan_agg, plan_loop
from aicjax.serving.point import (
    AggCurves,
    StepParts,
    agg_points,
    gather_of,
    plan_points,
    point_estimate,
    serving_numbers,
    setting_of,
)
from tests.loop_constants import write_loop_constants

FLOAT32 = 2e-6
LOADS = st.builds(
    lambda isl, osl, share, nextn, waves, least: Load(
        isl, osl, int(share * (isl - 1)), nextn, 0.7 * nextn, waves=waves, least_share=least
    ),
    st.integers(1, 9000),
    st.integers(1, 3000),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 3),
    st.sampled_from([math.inf, 1.0, 10.0]),
    st.sampled_from([1.0, 0.8, 0.5]),
)
POINTS = (st.integers(1, 600), st.integers(1, 20000))
BACKENDS = st.sampled_from(["trtllm", "vllm", "sglang"])


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory):
    path = write_loop_constants(tmp_path_factory.mktemp("constants"))
    return functools.cache(lambda backend: load_constants(backend, path))


def point_of(plan: AggPlan) -> AggPoint:
    counts: Any = {name: np.float32(getattr(plan, name)) for name in AggPoint._fields if name != "drains"}
    return AggPoint(drains=plan.drains, **counts)


def parts_of(seed: int) -> Any:
    """Latencies of one point; the part of a decode step that prompts share is smaller than either step."""
    shared, prompts, mixed, attention, full = np.random.default_rng(seed).uniform(1, 60, 5)
    rest = 0.6 * shared
    return jax.tree.map(np.float32, StepParts(shared, prompts, mixed, rest, attention, 0.9 * rest, full))


_loop = jax.jit(closed_loop_estimate)


@jax.jit
def _mean_field(parts, point, setting, numbers):
    mixed_ms = mixed_step_ms(point, parts.shared_ms, parts.context_attention_ms, parts.mixed_attention_ms)
    decode_ms = parts.decode_rest_ms + parts.decode_attention_ms
    return agg_estimate(mixed_ms, decode_ms, point, setting, numbers, littles_law_cap=True)


_point = jax.jit(point_estimate, static_argnames="littles_law_cap")


@given(LOADS, *POINTS, BACKENDS, st.integers(0, 99), st.sampled_from([1.0, 8.0]))
def test_closed_loop_is_the_estimate_of_its_parts(loop, load, batch, ctx_tokens, backend, seed, replicas):
    constants: Constants = loop(backend)
    plan = plan_points(load, batch, ctx_tokens, constants, spread=True)
    parts, mean = parts_of(seed), load.mean
    if not load.starts_at_once:
        parts = parts._replace(full_prompt_ms=None)
    setting = jax.tree.map(np.float32, setting_of(load, 60))
    got = _point(parts, point_of(plan), setting, traced(serving_numbers(constants)), replicas=np.float32(replicas))

    steps = (mean.osl - 1) / load.progress
    held, chunks = ctx_tokens // mean.isl, -(-mean.isl // ctx_tokens)
    prompts = max(1, min(held, math.floor(1.5 + (batch - 1) / (1 + steps))))
    beside = parts.decode_shared_ms if backend != "sglang" and batch > 1 and mean.osl > 1 else 0.0
    prompt_ms = max(parts.shared_ms - beside, 0.0) * chunks / prompts + parts.context_attention_ms
    full_ms = prompt_ms if parts.full_prompt_ms is None else parts.full_prompt_ms + parts.context_attention_ms
    times = LoopTimes(parts.decode_rest_ms + parts.decode_attention_ms, prompt_ms, prompt_ms, full_ms)
    shape = (load.waves, load.least_share) if load.starts_at_once else ()
    want = _loop(
        jax.tree.map(np.float32, ClosedLoop(batch * replicas, *shape)),
        jax.tree.map(np.float32, LoopWork(1 + steps, 60, held or 1 / chunks)),
        jax.tree.map(np.float32, times),
        traced(constants.loop),
        ranks=np.float32(replicas),
    )
    for name, expected in want._asdict().items():
        if name in got._fields:
            expected = expected / load.progress if name == "tpot_ms" else expected
            np.testing.assert_allclose(getattr(got, name), expected, FLOAT32 * 10, err_msg=name)
    assert np.isfinite(got.request_latency_ms) and np.isfinite(got.tpot_ms) == (mean.osl > 1)
    latency_ms = float(1000 * batch * replicas / got.seq_per_s)
    assert latency_ms >= float(got.request_latency_ms) * (1 - FLOAT32)  # more at the end of a run, where clients idle
    if not load.starts_at_once:
        assert latency_ms == pytest.approx(float(got.request_latency_ms), rel=1e-5)


@given(LOADS, *POINTS, BACKENDS, st.integers(0, 99))
def test_mean_field_is_as_it_was(load, batch, ctx_tokens, backend, seed):
    constants = load_constants(backend, "reference")
    plan = plan_agg(load, batch, ctx_tokens, spread_decode_rows=True)
    parts, point, numbers = parts_of(seed), point_of(plan), traced(constants.serving)
    setting = jax.tree.map(np.float32, AggSetting(load.osl, load.progress, 60))
    got = _point(parts, point, setting, numbers, littles_law_cap=True)

    for name, expected in _mean_field(parts, point, setting, numbers)._asdict().items():
        np.testing.assert_array_equal(getattr(got, name), expected, err_msg=name)


@given(LOADS, *POINTS, st.booleans())
def test_plan_of_a_closed_loop(load, batch, ctx_tokens, mixes):
    plan, mean = plan_loop(load.mean, batch, ctx_tokens, mixes=mixes), load.mean
    held = ctx_tokens // mean.isl
    assert 1 <= plan.prompts <= max(held, 1)
    assert abs(plan.prompts - min(max(held, 1), 1 + (batch - 1) / mean.iterations)) <= 0.5 + 1e-9
    assert plan.decode_rows == (batch if mixes and batch > 1 and mean.osl > 1 else 0)
    tokens = plan.shared_tokens - plan.decode_rows * load.query_rows
    if held:
        assert (plan.chunks, tokens, plan.room) == (1, plan.prompts * mean.new_tokens, held)
    else:
        assert plan.prompts == 1 and plan.room == 1 / plan.chunks
        assert mean.new_tokens <= tokens * plan.chunks < mean.new_tokens + plan.chunks
        assert tokens <= ctx_tokens
    full, cached = full_prompts(mean, ctx_tokens)
    assert full == (held * mean.new_tokens if held else tokens) and cached == held * mean.prefix
    assert 1 <= mean.isl <= load.isl and 1 <= mean.osl <= load.osl and mean.prefix < mean.isl
    assert mean.isl == pytest.approx(load.isl * (1 + load.least_share) / 2, abs=0.5 + 1e-9) or mean.isl == 1


def test_budgets_that_hold_as_much_repeat_the_smallest():
    plan = plan_loop(Load(1000, 100), np.array([[1], [8]]), np.array([1999, 1000, 400, 2500, 499, 333]), mixes=True)
    assert plan.repeats.tolist() == [[True, False, False, False, True, False]] * 2  # 1, 1, 3, 2, 3 and 4 steps
    assert not plan_agg(Load(1000, 100), np.array([[8]]), np.array([1000, 1999]), spread_decode_rows=True).repeats.any()


@pytest.mark.parametrize("backend", ["vllm", "sglang"])
@pytest.mark.parametrize("waves", [math.inf, 10.0])
def test_grids_are_their_points(loop, backend, waves):
    load, random, constants = Load(900, 40, waves=waves, least_share=0.8), np.random.default_rng(0), loop(backend)
    batch, ctx_tokens = np.array([1, 2, 30, 500])[:, None], np.array([300, 900, 2000])
    plan = plan_points(load, batch, ctx_tokens, constants, spread=True)

    def u(*shape):
        return random.uniform(1, 50, shape).astype(np.float32)

    curves = AggCurves(u(2, 9), u(2, 3), u(2, 5), u(2, 4), u(2, 4), u(2, 3) if load.starts_at_once else None)
    shared, rows, alone = (random.integers(0, n, shape) for n, shape in ((9, (4, 3)), (5, (4, 3)), (5, 4)))
    gather, setting = gather_of(plan, shared, rows, alone), jax.tree.map(np.float32, setting_of(load, 30))
    numbers, replicas = traced(serving_numbers(constants)), np.array([1.0, 4.0], np.float32)
    got = jax.jit(functools.partial(agg_points, littles_law_cap=False))(curves, gather, setting, numbers, replicas)
    for c, b, k in np.ndindex(2, 4, 3):
        full = None if curves.full_prompt is None else curves.full_prompt[c, k]
        parts = StepParts(
            *(curves.shared[c, shared[b, k]], curves.context_attention[c, k], np.float32(np.nan)),  # no mixed attention
            *(curves.decode_rest[c, b], curves.decode_attention[c, alone[b]], curves.decode_shared[c, b], full),
        )
        plan_at = AggPlan(**{f.name: np.asarray(getattr(plan, f.name))[b, k] for f in dataclasses.fields(plan)})
        want = _point(parts, point_of(plan_at), setting, numbers, replicas=replicas[c])
        for field, expected in want._asdict().items():
            np.testing.assert_allclose(getattr(got, field)[c, b, k], expected, FLOAT32 * 10, err_msg=field)


@pytest.mark.parametrize("backend", ["trtllm", "sglang"])
@pytest.mark.parametrize(("batch", "osl"), [(1, 1), (1, 50), (64, 1), (64, 2), (64, 500)])
def test_gradients_are_finite_and_those_of_differences(loop, backend, batch, osl):
    constants, load = loop(backend), Load(1000, osl)
    plan = plan_points(load, batch, 1000, constants, spread=True)
    setting, point = setting_of(load, 30), point_of(plan)
    numbers = jax.tree.map(jnp.asarray, serving_numbers(constants))
    parts = parts_of(3)._replace(full_prompt_ms=None)

    def log_rate(logs):
        moved = jax.tree.map(lambda value, log: value * jnp.exp(log), (parts, numbers), logs)
        return jnp.log(point_estimate(moved[0], point, setting, moved[1]).seq_per_s)

    zeros = jax.tree.map(lambda leaf: jnp.zeros((), jnp.float32), (parts, numbers))
    slopes = jax.grad(log_rate)(zeros)
    assert all(np.isfinite(slope) for slope in jax.tree.leaves(slopes))
    for name in ("shared_ms", "decode_attention_ms"):
        ends = [log_rate((zeros[0]._replace(**{name: jnp.float32(step)}), zeros[1])) for step in (-0.01, 0.01)]
        assert (ends[1] - ends[0]) / 0.02 == pytest.approx(float(getattr(slopes[0], name)), abs=2e-3)


def test_prompts_beyond_what_steps_take_set_the_rate(loop):
    """512 clients, 20 output tokens, one prompt a step: every step prefills one, whatever the answers are."""
    constants, load = loop("trtllm"), Load(1000, 20)
    neutral = dataclasses.replace(load_constants("trtllm", "reference"), formulas="closed_loop")
    plan = plan_points(load, 512, 1000, neutral, spread=True)
    parts = StepParts(30.0, 5.0, 0.0, 8.0, 4.0, 8.0)
    found = point_estimate(parts, point_of(plan), setting_of(load, 30), neutral.loop)
    assert found.seq_per_s == pytest.approx(1000 / (30 + 5 + 4), rel=1e-3)
    assert found.tpot_ms == pytest.approx(30 + 5 + 4, rel=1e-3)
    assert plan_points(load, 512, 8000, constants, spread=True).prompts == 8
