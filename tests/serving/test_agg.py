# SPDX-License-Identifier: Apache-2.0
"""In-flight batching estimates: stored answers, the plain-Python formula, identities and gradients."""

import functools
from itertools import groupby
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.constants import load_constants
from aicjax.serving.agg import AggEstimate, AggPoint, AggSetting, agg_estimate
from aicjax.serving.backends import load_backend
from aicjax.serving.encoder import after_encoder
from aicjax.serving.load import Load
from aicjax.serving.plan import plan_agg
from aicjax.serving.point import AggCurves, AggGather, agg_points
from tests.oracles import serving as oracle

REFERENCES = Path(__file__).parents[1] / "references"
FLOAT32 = 1e-6  # relative: a handful of float32 operations on float32 inputs
LOAD = ("backend", "isl", "osl", "prefix", "nextn", "accepted", "layers")
BACKENDS = ("trtllm", "vllm", "sglang")


def point_of(load: Load, batch, ctx_tokens, backend: str) -> AggPoint:
    plan = plan_agg(load, batch, ctx_tokens, spread_decode_rows=load_backend(backend).spread_decode_rows)
    counts = ("batch", "prefill_steps", "chunks", "prompts", "room")
    return AggPoint(drains=plan.drains, **{name: getattr(plan, name).astype(np.float32) for name in counts})


def numbers(backend: str) -> oracle.Serving:
    rules, constants = load_backend(backend), load_constants(backend, "reference").serving
    return oracle.Serving(
        rules.spread_decode_rows,
        constants.queue_base,
        constants.queue_per_step,
        constants.queue_per_doubling,
        constants.queue_cap,
        constants.dispatch_ms_per_layer,
        constants.drain_steps,
        rules.littles_law_cap,
    )


def estimate(load: Load, batch, ctx_tokens, mixed_ms, decode_ms, backend: str, layers=0, replicas=1.0):
    setting = AggSetting(float(load.osl), load.progress, float(layers))
    got = _jitted(load_backend(backend).littles_law_cap)(
        np.float32(mixed_ms),
        np.float32(decode_ms),
        point_of(load, batch, ctx_tokens, backend),
        jax.tree.map(np.float32, setting),
        load_constants(backend, "reference").serving,
        np.float32(replicas),
    )
    return AggEstimate(*(np.asarray(x, np.float64) for x in got))


@functools.cache
def _jitted(capped: bool):
    def one(mixed_ms, decode_ms, point, setting, constants, replicas):
        return agg_estimate(mixed_ms, decode_ms, point, setting, constants, replicas=replicas, littles_law_cap=capped)

    return jax.jit(one)


def test_estimates_are_the_stored_ones():
    rows = pq.read_table(REFERENCES / "serving_agg.parquet").to_pylist()
    key = lambda row: tuple(row[name] for name in LOAD)  # noqa: E731
    for facts, group in groupby(sorted(rows, key=key), key):
        backend, *sizes, layers = facts
        load, rows = Load(*sizes), list(group)
        column = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "backend"}
        got = _batched(load_backend(backend).littles_law_cap)(
            column["mix_step_latency_ms"].astype("f4"),
            column["genonly_step_latency_ms"].astype("f4"),
            point_of(load, column["bs"], column["ctx_tokens"], backend),
            *(np.float32(value) for value in (load.osl, load.progress, layers)),
            column["encoder_latency"].astype("f4"),
            load_constants(backend, "reference").serving,
            (column["pp"] * column["dp"]).astype("f4"),
        )
        for name, values in zip(("ttft", "tpot", "request_latency", "seq/s"), got, strict=True):
            np.testing.assert_allclose(values, column[name], rtol=FLOAT32, err_msg=f"{facts} {name}")
        np.testing.assert_allclose(got.seq_per_s * (load.osl - 1), column["tokens/s"], rtol=FLOAT32)


@functools.cache
def _batched(capped: bool):
    def one(mixed_ms, decode_ms, point, osl, progress, layers, encoder_ms, constants, replicas):
        setting = AggSetting(osl, progress, layers)
        alone = agg_estimate(mixed_ms, decode_ms, point, setting, constants, replicas=replicas, littles_law_cap=capped)
        return after_encoder(alone, encoder_ms, point.batch, replicas)

    return jax.jit(jax.vmap(one, (0, 0, 0, None, None, None, 0, None, 0)))


@given(
    st.sampled_from(BACKENDS),
    st.integers(1, 9000),
    st.integers(1, 2000),
    st.integers(0, 3),
    st.integers(1, 300),
    st.integers(1, 9000),
    st.floats(1, 1000),
    st.floats(1, 100),
)
def test_estimate_is_that_of_the_definition(backend, isl, osl, nextn, batch, ctx_tokens, mixed_ms, decode_ms):
    load = Load(isl, osl, 0, nextn, 0.7 * nextn)
    mixed_ms, decode_ms = float(np.float32(mixed_ms)), float(np.float32(decode_ms))
    got = estimate(load, batch, ctx_tokens, mixed_ms, decode_ms, backend, layers=40, replicas=3.0)
    expected = oracle.agg_estimate(
        load, batch, ctx_tokens, mixed_ms, decode_ms, numbers(backend), layers=40, replicas=3
    )
    # Close to S = D the number of decode steps is a small difference of large float32 numbers.
    rounding = 4e-7 * (1 + load.iterations)
    np.testing.assert_allclose(np.array(got), expected, rtol=2e-6 + rounding * 1e-3)


@given(st.sampled_from(BACKENDS), st.integers(1, 300), st.integers(1, 9000), st.floats(0, 5000))
def test_an_encoder_joins_cycle_and_first_token(backend, batch, ctx_tokens, encoder_ms):
    load, known = Load(700, 50), numbers(backend)
    alone = oracle.agg_estimate(load, batch, ctx_tokens, 30.0, 8.0, known, layers=40, replicas=3)
    expected = oracle.agg_estimate(
        load, batch, ctx_tokens, 30.0, 8.0, known, layers=40, replicas=3, encoder_ms=encoder_ms
    )
    got = after_encoder(AggEstimate(*np.array(alone)), np.array(encoder_ms), batch, 3)
    np.testing.assert_allclose(np.array(got), expected, rtol=1e-12)


@given(st.sampled_from(BACKENDS), st.integers(2, 2000), st.integers(1, 300), st.floats(1, 1000), st.floats(1, 100))
def test_rows_obey_their_identities(backend, osl, batch, mixed_ms, decode_ms):
    got = estimate(Load(2000, osl), batch, 2000, mixed_ms, decode_ms, backend)
    assert got.request_latency_ms == pytest.approx(got.ttft_ms + (osl - 1) * got.tpot_ms, rel=FLOAT32)
    if load_backend(backend).littles_law_cap:
        assert got.seq_per_s * got.request_latency_ms / 1000 <= batch * (1 + FLOAT32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_output_token_has_no_tpot_and_counts(backend):
    got = estimate(Load(1000, 1), 4, 1000, 50.0, 5.0, backend)
    assert np.isnan(got.tpot_ms)
    assert got.request_latency_ms == got.ttft_ms
    assert got.seq_per_s > 0


def test_queue_factor_of_a_lone_request():
    lone = estimate(Load(1000, 10), 1, 1000, 100.0, 5.0, "trtllm")
    assert lone.ttft_ms == pytest.approx(190.0, rel=FLOAT32)
    assert estimate(Load(1000, 10), 1, 1000, 100.0, 5.0, "vllm").ttft_ms == pytest.approx(100.0, rel=FLOAT32)


def test_missing_decode_time_matters_only_when_a_decode_step_follows():
    saturated = estimate(Load(4000, 4), 64, 4000, 100.0, np.nan, "trtllm")
    assert np.isfinite(saturated.seq_per_s)
    assert np.isnan(estimate(Load(4000, 400), 4, 4000, 100.0, np.nan, "trtllm").seq_per_s)


def test_drafts_that_are_not_accepted_do_not_help():
    plain = estimate(Load(1000, 100), 8, 1000, 40.0, 8.0, "vllm")
    drafted = estimate(Load(1000, 100, nextn=3, accepted=0.0), 8, 1000, 44.0, 9.0, "vllm")
    assert drafted.tpot_ms > plain.tpot_ms
    accepted = estimate(Load(1000, 100, nextn=5, accepted=5.0), 8, 1000, 44.0, 9.0, "vllm")
    assert accepted.tpot_ms < plain.tpot_ms / 2


def _grid(rng, configs=3, batches=7, budgets=5, tokens=11, rows=6):
    def u(*shape):
        return jnp.asarray(rng.uniform(1, 100, shape).astype("f4"))

    def index(high, *shape):
        return jnp.asarray(rng.integers(0, high, shape).astype("i4"))

    curves = AggCurves(u(configs, tokens), u(configs, budgets), u(configs, rows), u(configs, batches))
    gather = AggGather(
        index(tokens, batches, budgets),
        index(rows, batches, budgets),
        index(rows, batches),
        jnp.arange(1, batches + 1, dtype="float32"),
        1.0 + index(200, batches, budgets).astype("float32"),
        1.0 + index(3, budgets).astype("float32"),
        index(2, batches, budgets) > 0,
        jnp.ones((batches, budgets)),
        jnp.ones(budgets),
    )
    return curves, gather, u(configs)


def test_fused_kernel_is_the_formula_at_every_point():
    curves, gather, replicas = _grid(np.random.default_rng(0))
    setting, constants = AggSetting(50.0, 1.5, 12.0), load_constants("vllm", "reference").serving
    got = agg_points(curves, gather, setting, constants, replicas, littles_law_cap=True)
    for c, b, k in np.ndindex(got.ttft_ms.shape):
        mixed = curves.shared[c, gather.shared[b, k]] + curves.context_attention[c, k] / gather.chunks[k]
        mixed += curves.decode_attention[c, gather.mixed_rows[b, k]] if b > 0 else 0.0
        decode = curves.decode_rest[c, b] + curves.decode_attention[c, gather.decode_rows[b]]
        point = AggPoint(gather.batch[b], gather.prefill_steps[b, k], gather.chunks[k], gather.drains[b, k])
        one = agg_estimate(mixed, decode, point, setting, constants, replicas=replicas[c], littles_law_cap=True)
        np.testing.assert_allclose(np.array([x[c, b, k] for x in got]), np.array(one), rtol=FLOAT32)


def test_cutting_the_grid_changes_nothing():
    curves, gather, replicas = _grid(np.random.default_rng(1))
    run = functools.partial(agg_points, littles_law_cap=False)
    setting, constants = AggSetting(50.0, 1.0, 0.0), load_constants("trtllm", "reference").serving
    whole = run(curves, gather, setting, constants, replicas)
    part = gather._replace(
        **{
            name: getattr(gather, name)[2:5]
            for name in ("shared", "mixed_rows", "decode_rows", "batch", "prefill_steps", "drains", "prompts")
        }
    )
    cut = run(curves._replace(decode_rest=curves.decode_rest[:, 2:5]), part, setting, constants, replicas)
    np.testing.assert_array_equal(cut.tpot_ms, whole.tpot_ms[:, 2:5])


def test_equal_shapes_compile_once():
    traces = []

    @functools.partial(jax.jit, static_argnames="littles_law_cap")
    def kernel(*args, littles_law_cap):
        traces.append(1)
        return agg_points(*args, littles_law_cap=littles_law_cap)

    for seed, backend in ((2, "trtllm"), (3, "sglang"), (4, "trtllm")):
        curves, gather, replicas = _grid(np.random.default_rng(seed))
        constants = load_constants(backend, "reference").serving
        kernel(curves, gather, AggSetting(50.0 + seed, 1.0, 3.0), constants, replicas, littles_law_cap=False)
    assert len(traces) == 1


@pytest.mark.parametrize("batch", [1, 4, 64])
def test_gradients_are_those_of_central_differences(batch):
    load, backend = Load(1000, 40, nextn=2, accepted=1.0), "trtllm"
    point = point_of(load, batch, 1000, backend)

    def latency(theta):
        constants = eqx.tree_at(
            lambda c: (c.queue_base, c.queue_per_step), load_constants(backend, "reference").serving, theta[:2]
        )
        got = agg_estimate(theta[2], theta[3], point, AggSetting(40.0, theta[4], 8.0), constants)
        return got.request_latency_ms + 10 * got.seq_per_s

    theta = jnp.array([1.85, 0.05, 80.0, 9.0, 2.0])
    gradient = jax.grad(latency)(theta)
    step = 1e-2 * np.abs(theta)
    for i in range(5):
        shift = jnp.zeros(5).at[i].set(step[i])
        slope = (latency(theta + shift) - latency(theta - shift)) / (2 * step[i])
        np.testing.assert_allclose(gradient[i], slope, rtol=2e-2, atol=1e-2)
