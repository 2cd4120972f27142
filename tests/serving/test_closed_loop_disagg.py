# SPDX-License-Identifier: Apache-2.0
"""Closed loops of disaggregated serving: a simulated replica, limits and gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.constants import load_constants, traced
from aicjax.serving.closed_loop import ClosedLoop
from aicjax.serving.closed_loop_disagg import DisaggLoopEstimate, DisaggLoopWork, disagg_loop_estimate
from tests.oracles import disaggregated_loop as oracle

WAVES, LEAST_SHARE, OSL = 10, 0.8, 180
# Largest errors against the simulated replica, and some room.
TPOT = 0.05
TTFT_APART = 0.15  # demand of prefill at most half of what the ranks do, or three times it
TTFT_NEAR = 0.55  # demand near it: a queue of few clients with regular arrivals is shorter than the formula's
UNLOADED, CROWDED, NEAR = 0.1, 3.0, (0.9, 1.3)
LOOP = traced(load_constants("trtllm", "reference").loop)


def step_ms(batch):
    return 1.0 + 0.01 * batch


@jax.jit
def _estimate(loop, work, prefill_ms, numbers) -> DisaggLoopEstimate:
    return disagg_loop_estimate(loop, work, prefill_ms, step_ms, numbers)


def estimate(concurrency, prefill_ms, prefill_ranks=1.0, decode_ranks=1.0, numbers=LOOP, osl=OSL, **work):
    values = (
        ClosedLoop(concurrency, WAVES, LEAST_SHARE),
        DisaggLoopWork(osl, 0.0, prefill_ranks, decode_ranks, **work),
        prefill_ms,
    )
    return jax.device_get(_estimate(*jax.tree.map(np.float32, values), numbers))


@pytest.mark.parametrize(("prefill_ranks", "decode_ranks"), [(1, 1), (2, 1), (4, 2)])
@pytest.mark.parametrize("concurrency", [16, 64])
def test_formulas_are_those_of_a_simulated_replica(prefill_ranks: int, decode_ranks: int, concurrency: int):
    random, count = np.random.default_rng(2), concurrency * WAVES
    shares = LEAST_SHARE + (1 - LEAST_SHARE) * random.random((2, count))
    isl, osl = np.round(shares * np.asarray([[1000], [200]])).astype(int)
    for demand in (UNLOADED, *NEAR, CROWDED):
        prefill_ms = demand * prefill_ranks * OSL * step_ms(concurrency / decode_ranks) / concurrency
        replica = oracle.Replica(lambda n, ms=prefill_ms: ms * n / 900, step_ms, prefill_ranks, decode_ranks)
        ttft_ms, tpot_ms = oracle.closed_loop(replica, isl, osl, concurrency)
        got = estimate(concurrency, prefill_ms, prefill_ranks, decode_ranks)
        assert got.tpot_ms == pytest.approx(tpot_ms.mean(), rel=TPOT)
        assert got.ttft_ms == pytest.approx(ttft_ms.mean(), rel=TTFT_NEAR if demand in NEAR else TTFT_APART)


def test_one_client_measures_one_request():
    numbers = dataclasses.replace(LOOP, disagg_request_ms=np.float32(9), host_ms_per_prefill=np.float32(1))
    got = estimate(1, 50.0, 2.0, 2.0, numbers, osl=11, handover_ms=4.0)
    assert got.ttft_ms == pytest.approx(50 + 1 + 4 + 9)
    assert got.tpot_ms == pytest.approx(1.01)
    assert got.seq_per_s == pytest.approx(1000 / (64 + 10.1), rel=1e-5)


@pytest.mark.parametrize(("concurrency", "prefill_ms"), [(2, 1.0), (4, 30.0), (16, 5.0), (64, 3.0)])
def test_wait_is_that_of_the_utilization(concurrency: int, prefill_ms: float):
    got = estimate(concurrency, prefill_ms, osl=10 * concurrency)
    busy, weight = got.prefill_utilization, 0.25 * (concurrency - 1) / concurrency
    assert got.prefill_wait_ms == pytest.approx(weight * busy / (1 - busy) * prefill_ms, rel=1e-4)


def test_slow_prefill_sets_the_rate_and_the_decode_batch():
    got = estimate(256, 100.0)
    assert got.seq_per_s == pytest.approx(10, rel=0.02)
    assert got.prefill_utilization == pytest.approx(1, abs=0.02)
    assert got.running == pytest.approx(0.01 * (OSL - 1) * got.tpot_ms, rel=0.02)
    assert got.ttft_ms == pytest.approx(256 * 100 - (OSL - 1) * got.tpot_ms, rel=0.1)


@given(st.floats(1, 2000), st.floats(0.01, 1e4), st.floats(1, 32), st.floats(1, 32), st.sampled_from((1.0, 2.0, 180.0)))
def test_answers_are_finite_and_the_clients_add_up(concurrency, prefill_ms, prefill_ranks, decode_ranks, osl):
    got = estimate(concurrency, prefill_ms, prefill_ranks, decode_ranks, osl=osl)
    assert np.isnan(got.tpot_ms) == (osl == 1)
    assert all(np.isfinite(part) and part >= 0 for part in got._replace(tpot_ms=np.float32(0)))
    assert got.prefill_utilization <= 1
    assert got.running * decode_ranks <= concurrency * (1 + 1e-5)
    cycle_ms = prefill_ms + got.prefill_wait_ms + (osl - 1) * np.nan_to_num(got.tpot_ms)
    asked = concurrency / min(prefill_ranks, concurrency)
    assert got.prefill_utilization == pytest.approx(asked * prefill_ms / cycle_ms, rel=2e-3)


def _outputs(logs: dict, prefill_ms: jax.Array) -> jax.Array:
    """Logarithms of the figures, against those of factors on what they depend on."""
    exact = jax.tree.map(np.float64, LOOP)
    got = disagg_loop_estimate(
        ClosedLoop(64 * jnp.exp(logs["concurrency"]), 10.0, 0.8),
        DisaggLoopWork(180 * jnp.exp(logs["osl"]), decode_ranks=2 * jnp.exp(logs["ranks"])),
        prefill_ms * jnp.exp(logs["prefill"]),
        lambda batch: step_ms(batch) * jnp.exp(logs["step"]),
        dataclasses.replace(exact, disagg_queue_weight=0.25 * jnp.exp(logs["queue"])),
    )
    return jnp.log(jnp.stack([got.ttft_ms, got.tpot_ms, got.seq_per_s, got.running]))


def test_gradients_are_those_of_differences():
    names, step = ("concurrency", "osl", "prefill", "step", "ranks", "queue"), 1e-4
    run, slopes = jax.jit(_outputs), jax.jit(jax.jacrev(_outputs))
    with jax.enable_x64(True):
        zero = {name: jnp.zeros(()) for name in names}
        for prefill_ms in map(jnp.asarray, (0.3, 3.0, 30.0)):
            found = slopes(zero, prefill_ms)
            for name in names:
                high, low = (run({**zero, name: jnp.asarray(by)}, prefill_ms) for by in (step, -step))
                np.testing.assert_allclose(found[name], (high - low) / (2 * step), rtol=1e-4, atol=1e-5)
