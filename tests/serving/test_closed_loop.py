# SPDX-License-Identifier: Apache-2.0
"""Closed loops of in-flight batching: the simulated scheduler, cases by hand, limits and gradients."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.constants import load_constants, traced
from aicjax.serving.closed_loop import (
    ClosedLoop,
    LoopEstimate,
    LoopTimes,
    LoopWork,
    burst_place_ms,
    closed_loop_estimate,
    kv_slots,
    prompts_per_step,
    running_requests,
)
from tests.oracles import continuous_batching as oracle

WAVES, LEAST_SHARE, ISL, DECODE_MS = 10, 0.8, 1000, 1.0
# Largest errors over the grid of `CONCURRENCY` and `RATIOS`, measured against the simulated scheduler, and some room.
TTFT, BURST, TPOT, RATE = 0.06, 0.04, 0.02, 0.05
TPOT_FEW = 0.07  # prompts of 4 clients meet in one step more often than the mean field has it
STEADY = {1: 0.32, 2: 0.22}  # by prompts a step: one a step fills up in bunches
SPACE_TTFT, SPACE_TPOT = 0.06, 0.02  # space reserved for whole answers
EVICTED_TTFT, EVICTED_TPOT = 0.10, 0.17  # space taken as it fills: prompts are prefilled again
CONCURRENCY = {4: 400, 16: 400, 64: 400, 256: 800}  # to nominal output tokens: fewer prompts than steps
RATIOS = (0.1, 1.0, 3.0)  # prefill time of all clients relative to the decode time of one answer

_estimate = jax.jit(closed_loop_estimate)
_place_ms = jax.jit(burst_place_ms)
_MOST = 256  # places of a burst


def constants(*, mixes: bool = True, **changed: float):
    return traced(
        dataclasses.replace(load_constants("trtllm", "reference").loop, mixes_prefill=float(mixes), **changed)
    )


def estimate(loop: ClosedLoop, work: LoopWork, times: LoopTimes, numbers, ranks: float = 1.0) -> LoopEstimate:
    loop, work, times = jax.tree.map(np.float32, (loop, work, times))
    return jax.device_get(_estimate(loop, work, times, numbers, ranks=np.float32(ranks)))


def simulated(concurrency: int, ratio: float, prompts: int, mixes: bool, **server) -> oracle.Served:
    random, osl = np.random.default_rng(1), CONCURRENCY[concurrency]
    count = concurrency * WAVES
    isl = oracle.uniform_lengths(ISL, LEAST_SHARE, count, random)
    prefill_ms, mean_isl = ratio * 0.9 * osl / concurrency * DECODE_MS, 0.9 * ISL

    def step_ms(tokens: int, rows: int) -> float:
        return (DECODE_MS if rows else 0.0) + prefill_ms * tokens / mean_isl

    engine = oracle.Server(step_ms, mixes, prompts, **server)
    return oracle.closed_loop(engine, isl, oracle.uniform_lengths(osl, LEAST_SHARE, count, random), concurrency)


def predicted(concurrency: int, ratio: float, prompts: int, numbers, slots: float = math.inf) -> LoopEstimate:
    loop = ClosedLoop(concurrency, WAVES, LEAST_SHARE)
    osl = CONCURRENCY[concurrency] * loop.mean_share
    prefill_ms = ratio * osl / concurrency * DECODE_MS
    work = LoopWork(osl, prompts=prompts, slots=slots)
    return estimate(loop, work, LoopTimes(DECODE_MS, prefill_ms, prefill_ms, prefill_ms), numbers)


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize("prompts", [1, 2])
@pytest.mark.parametrize("concurrency", CONCURRENCY)
def test_formulas_are_those_of_a_simulated_scheduler(concurrency: int, prompts: int, mixes: bool):
    for ratio in RATIOS if concurrency < max(CONCURRENCY) else RATIOS[1:2]:
        run = simulated(concurrency, ratio, prompts, mixes)
        got = predicted(concurrency, ratio, prompts, constants(mixes=mixes))
        assert got.ttft_ms == pytest.approx(run.ttft_ms.mean(), rel=TTFT)
        assert got.tpot_ms == pytest.approx(run.tpot_ms.mean(), rel=TPOT if concurrency > 4 else TPOT_FEW)
        assert got.burst_ms == pytest.approx(run.ttft_ms[:concurrency].mean(), rel=BURST)
        assert got.steady_ms == pytest.approx(run.ttft_ms[concurrency:].mean(), rel=STEADY[prompts])
        rate = 1000 * concurrency * WAVES / run.end_ms.max()
        assert got.seq_per_s == pytest.approx(rate, rel=RATE)


@pytest.mark.parametrize("mixes", [False, True])
def test_after_warm_up_the_loop_without_a_first_wave(mixes: bool):
    clients, osl = 16, 90
    random = np.random.default_rng(0)
    isl = oracle.uniform_lengths(ISL, LEAST_SHARE, clients * 60, random)
    answers = oracle.uniform_lengths(100, LEAST_SHARE, clients * 60, random)
    prefill_ms = osl / clients

    def step_ms(tokens: int, rows: int) -> float:
        return (DECODE_MS if rows else 0.0) + prefill_ms * tokens / (0.9 * ISL)

    run = oracle.closed_loop(oracle.Server(step_ms, mixes), isl, answers, clients)
    kept = slice(30 * clients, 58 * clients)
    times = LoopTimes(DECODE_MS, prefill_ms, prefill_ms, prefill_ms)
    got = estimate(ClosedLoop(clients, math.inf, LEAST_SHARE), LoopWork(osl), times, constants(mixes=mixes))
    assert got.ttft_ms == got.steady_ms == pytest.approx(run.ttft_ms[kept].mean(), rel=0.08)
    assert got.tpot_ms == pytest.approx(run.tpot_ms[kept].mean(), rel=TPOT)


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize(("osl", "prompts"), [(1, 1), (2, 1), (10, 1), (10, 4), (60, 1)])
def test_prompts_that_outrun_the_steps_wait_as_in_a_simulated_scheduler(osl: int, prompts: int, mixes: bool):
    clients, random = 64, np.random.default_rng(0)
    isl = oracle.uniform_lengths(ISL, LEAST_SHARE, clients * 30, random)
    answers = oracle.uniform_lengths(osl, LEAST_SHARE if osl > 2 else 1.0, clients * 30, random)

    def step_ms(tokens: int, rows: int) -> float:
        return (DECODE_MS if rows else 0.0) + tokens / (0.9 * ISL)

    run = oracle.closed_loop(oracle.Server(step_ms, mixes, prompts), isl, answers, clients)
    kept = slice(12 * clients, 28 * clients)
    ended = np.sort(run.end_ms)
    work, times = LoopWork(answers.mean(), prompts=prompts), LoopTimes(DECODE_MS, 1.0, 1.0, 1.0)
    got = estimate(ClosedLoop(clients, math.inf, LEAST_SHARE), work, times, constants(mixes=mixes))
    rate = 1000 * 16 * clients / (ended[28 * clients] - ended[12 * clients])
    assert got.seq_per_s == pytest.approx(rate, rel=0.01 if mixes else 0.04)
    assert np.isnan(got.tpot_ms) or got.tpot_ms == pytest.approx(run.tpot_ms[kept].mean(), rel=0.05)
    if mixes or osl == 1:
        assert got.ttft_ms == pytest.approx(run.ttft_ms[kept].mean(), rel=0.02)


@pytest.mark.parametrize("held", [8, 24, 48])
def test_wait_for_reserved_space_is_that_of_a_simulated_scheduler(held: int):
    tokens = int(held * 0.9 * (ISL + CONCURRENCY[64]))
    run = simulated(64, 1.0, 1, True, kv_blocks=tokens // 16)
    numbers = constants(kv_answer_share=1.0)
    slots = float(kv_slots(np.float32(tokens), np.float32(0.9 * ISL), np.float32(0.9 * CONCURRENCY[64]), numbers))
    got = predicted(64, 1.0, 1, numbers, slots)
    assert got.running == pytest.approx(slots) and slots == pytest.approx(held - 0.5, rel=0.01)
    assert got.ttft_ms == pytest.approx(run.ttft_ms.mean(), rel=SPACE_TTFT)
    assert got.tpot_ms == pytest.approx(run.tpot_ms.mean(), rel=SPACE_TPOT)


def test_wait_for_space_that_fills_up_and_is_taken_back():
    tokens = int(24 * 0.9 * (ISL + CONCURRENCY[64]))
    run = simulated(64, 1.0, 1, False, kv_blocks=tokens // 16, reserves=False)
    numbers = constants(mixes=False, kv_answer_share=0.5)
    slots = float(kv_slots(np.float32(tokens), np.float32(0.9 * ISL), np.float32(0.9 * CONCURRENCY[64]), numbers))
    got = predicted(64, 1.0, 1, numbers, slots)
    assert got.ttft_ms == pytest.approx(run.ttft_ms.mean(), rel=EVICTED_TTFT)
    assert got.tpot_ms == pytest.approx(run.tpot_ms.mean(), rel=EVICTED_TPOT)


def test_long_prompts_take_several_steps():
    clients, chunks = 16, 4
    random = np.random.default_rng(0)
    isl = np.full(clients * WAVES, chunks * 256)
    osl = oracle.uniform_lengths(400, LEAST_SHARE, len(isl), random)
    engine = oracle.Server(lambda tokens, rows: (DECODE_MS if rows else 0.0) + tokens / 256, True, 1, 256 + clients)
    run = oracle.closed_loop(engine, isl, osl, clients)
    work = LoopWork(360, prompts=1 / chunks)
    got = estimate(ClosedLoop(clients, WAVES, LEAST_SHARE), work, LoopTimes(1, 4, 4, 4), constants())
    assert got.burst_ms == pytest.approx(run.ttft_ms[:clients].mean(), rel=0.05)
    assert got.ttft_ms == pytest.approx(run.ttft_ms.mean(), rel=0.10)
    assert got.tpot_ms == pytest.approx(run.tpot_ms.mean(), rel=TPOT)


@pytest.mark.parametrize(("batch", "mean", "places"), [(8, 450, {8: 800, 4: 400}), (1, 100, {1: 100})])
def test_simultaneous_arrivals_queue_for_prefill(batch: int, mean: float, places: dict[int, float]):
    times = LoopTimes(1.0, 100.0, 100.0, 100.0)
    numbers = constants(mixes=False)
    assert estimate(ClosedLoop(batch, 1), LoopWork(1), times, numbers).ttft_ms == pytest.approx(mean)
    for place, expected in places.items():  # the last, and the nearest rank of the median
        assert burst_place_ms(place, batch, times, 1.0, numbers) == pytest.approx(expected)
    engine = oracle.Server(lambda tokens, rows: tokens * 1.0, mixes=False)
    run = oracle.closed_loop(engine, np.full(batch, 100), np.ones(batch, np.int64), batch)
    np.testing.assert_allclose(run.ttft_ms, 100 * np.arange(1, batch + 1))


@given(st.integers(1, 64), st.sampled_from((1, 2, 4)), st.booleans())
def test_mean_of_the_places_is_the_mean_of_the_burst(groups: int, prompts: int, mixes: bool):
    batch, times, numbers = groups * prompts, LoopTimes(2.0, 30.0, 30.0, 30.0), constants(mixes=mixes)
    every, *rest = jax.tree.map(np.float32, (np.arange(1, _MOST + 1), batch, times, prompts))
    places = np.asarray(_place_ms(every, *rest, numbers))[:batch]
    got = estimate(ClosedLoop(batch, 1), LoopWork(100, prompts=prompts), times, numbers)
    assert got.burst_ms == pytest.approx(places.mean(), rel=1e-5)


def test_one_client_measures_one_request():
    numbers = constants(request_ms=7.0, host_ms_per_step=0.5, host_ms_per_prefill=3.0, host_ms_per_prefill_layer=0.1)
    for waves in (1, 10, math.inf):
        got = estimate(ClosedLoop(1, waves), LoopWork(11, layers=20), LoopTimes(2, 90, 100, 100), numbers)
        assert got.ttft_ms == pytest.approx(7 + 100 + 3 + 2)
        assert got.tpot_ms == pytest.approx(2.5)
        assert got.request_latency_ms == pytest.approx(112 + 25)
        assert got.tokens_per_s == pytest.approx(11 * 1000 / 137)


@given(st.floats(1, 512), st.floats(1, 100), st.floats(0.1, 1), st.floats(1, 600), st.sampled_from((1.0, 2.0, 300.0)))
def test_answers_are_finite_and_rates_follow_littles_law(concurrency, waves, least_share, slots, osl):
    loop, work = ClosedLoop(concurrency, waves, least_share), LoopWork(osl, slots=slots)
    got = estimate(loop, work, LoopTimes(5, 40, 50, 45), constants(), ranks=2)
    assert np.isnan(got.tpot_ms) == (osl == 1)
    assert all(np.isfinite(part) and part >= 0 for part in got._replace(tpot_ms=np.float32(0)))
    in_flight = got.seq_per_s * got.request_latency_ms / 1000
    assert in_flight <= concurrency * (1 + 1e-5)
    if slots >= concurrency:
        assert in_flight == pytest.approx(concurrency, rel=0.5 if waves < 2 else 0.1)


def test_slots_and_prompts_of_a_step():
    trtllm, vllm, sglang = (load_constants(backend, "reference").loop for backend in ("trtllm", "vllm", "sglang"))
    assert kv_slots(12000.0, 1000.0, 200.0, trtllm) == pytest.approx(9.5)
    assert kv_slots(12100.0, 1000.0, 200.0, vllm) == pytest.approx(10.5)
    assert [float(prompts_per_step(2048.0, numbers)) for numbers in (trtllm, vllm, sglang)] == [1, 2, 8]
    assert running_requests(ClosedLoop(64.0), 5.0) == 5
    assert running_requests(ClosedLoop(64.0), 0.2, 4.0) == 1
    assert running_requests(ClosedLoop(64.0), math.inf, 4.0) == 16


def _outputs(logs: dict, slots: jax.Array) -> jax.Array:
    """Logarithms of the figures, against those of factors on what they depend on."""
    numbers = constants(host_ms_per_step=0.3, host_ms_per_prefill=1.0, request_ms=5.0, collisions_per_request=0.01)
    scaled = jax.tree.map(lambda value: np.float64(value) * jnp.exp(logs["constants"]), numbers)
    loop = ClosedLoop(32 * jnp.exp(logs["concurrency"]), 10 * jnp.exp(logs["waves"]), 0.8 * jnp.exp(logs["share"]))
    work = LoopWork(300 * jnp.exp(logs["osl"]), 60.0, 2 * jnp.exp(logs["prompts"]), slots * jnp.exp(logs["slots"]))
    times = LoopTimes(*(value * jnp.exp(logs["times"]) for value in (8.0, 30.0, 35.0, 32.0)))
    got = closed_loop_estimate(loop, work, times, scaled)
    return jnp.log(jnp.stack([got.ttft_ms, got.tpot_ms, got.tokens_per_s]))


def test_gradients_are_those_of_differences():
    names, step = ("concurrency", "waves", "share", "osl", "prompts", "slots", "times", "constants"), 1e-5
    run, slopes = jax.jit(_outputs), jax.jit(jax.jacrev(_outputs))
    with jax.enable_x64(True):
        zero = {name: jnp.zeros(()) for name in names}
        for slots in (jnp.asarray(20.0), jnp.asarray(64.0)):
            found = slopes(zero, slots)
            for name in names:
                high, low = (run({**zero, name: jnp.asarray(by)}, slots) for by in (step, -step))
                np.testing.assert_allclose(found[name], (high - low) / (2 * step), rtol=1e-5, atol=1e-7)


def test_gradient_of_a_loop_without_a_first_wave_is_finite():
    def ttft(share: jax.Array, concurrency: jax.Array) -> jax.Array:
        loop = ClosedLoop(concurrency, math.inf, share)
        return closed_loop_estimate(loop, LoopWork(300.0), LoopTimes(8.0, 30.0, 35.0, 32.0), constants()).ttft_ms

    for share in (0.8, 1.0):
        slopes = jax.jit(jax.grad(ttft, (0, 1)))(jnp.asarray(share), jnp.asarray(16.0))
        assert np.isfinite(slopes).all() and slopes[0] == 0 < slopes[1]


def test_concurrencies_are_mapped():
    clients = np.asarray([1, 8, 64], np.float32)
    work, times, numbers = LoopWork(np.float32(300)), LoopTimes(*np.asarray([8, 30, 35, 32], np.float32)), constants()
    mapped = jax.vmap(lambda c: closed_loop_estimate(ClosedLoop(c, 10.0, 0.8), work, times, numbers))(clients)
    for i, concurrency in enumerate(clients):
        alone = estimate(ClosedLoop(concurrency, 10, 0.8), work, times, numbers)
        np.testing.assert_allclose([part[i] for part in mapped], alone, rtol=1e-6)
