# SPDX-License-Identifier: Apache-2.0
"""Open loads of in-flight batching: the simulated scheduler, cases by hand, limits and gradients."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.constants import load_constants, traced
from aicjax.serving.closed_loop import ClosedLoop, LoopTimes, LoopWork, closed_loop_estimate
from aicjax.serving.open_loop import OpenEstimate, OpenLoop, open_loop_estimate
from tests.oracles import continuous_batching as oracle

ISL, PLENTY = 1000, 4096.0
DECODE = (5.0, 0.05)  # decode step of b requests: 5 + 0.05 b ms
MIXED, HEAVY = (20.0, 100), (100.0, 50)  # prompt [ms] and output tokens: decode and prefill take most of the time
# Largest errors against the simulated scheduler by utilisation, and some room.
TTFT = {0.02: 0.02, 0.2: 0.04, 0.5: 0.06, 0.7: 0.14, 0.85: 0.18}
TPOT = {0.02: 0.02, 0.2: 0.05, 0.5: 0.06, 0.7: 0.08, 0.85: 0.20}
TPOT_EVEN = 0.15  # of a few requests in flight: how many prompts an answer meets is a whole number


def constants(*, mixes: bool = True, **changed: float):
    return traced(
        dataclasses.replace(load_constants("trtllm", "reference").loop, mixes_prefill=float(mixes), **changed)
    )


@jax.jit
def _estimate(loop, work, decode, prompts_ms, numbers, ranks) -> OpenEstimate:
    added_ms, alone_ms = prompts_ms
    times = lambda running: LoopTimes(decode[0] + decode[1] * running, added_ms, alone_ms, alone_ms)  # noqa: E731
    return open_loop_estimate(loop, work, times, numbers, ranks=ranks)


def estimate(
    rate: float,
    prompt_ms: float,
    osl: float,
    numbers,
    *,
    cv2: float = 1.0,
    prompts: float = 1.0,
    slots: float = PLENTY,
    ranks: float = 1.0,
    alone_ms: float | None = None,
) -> OpenEstimate:
    loop, work = OpenLoop(rate, cv2), LoopWork(osl, prompts=prompts, slots=slots)
    times = prompt_ms, prompt_ms if alone_ms is None else alone_ms
    loop, work, decode, times, ranks = jax.tree.map(np.float32, (loop, work, DECODE, times, ranks))
    return jax.device_get(_estimate(loop, work, decode, times, numbers, ranks))


def simulated(
    rate: float, prompt_ms: float, osl: int, count: int, *, cv2: float, prompts: int, mixes: bool, slots: float
) -> tuple[float, float]:
    """Mean TTFT and TPOT after a warm-up [ms]."""
    random, gap_ms = np.random.default_rng(0), 1000 / rate
    gaps_ms = random.exponential(gap_ms, count) if cv2 else np.full(count, gap_ms)
    sent_ms = np.cumsum(gaps_ms)

    def step_ms(tokens: int, rows: int) -> float:
        return (DECODE[0] + DECODE[1] * rows if rows else 0.0) + prompt_ms * tokens / ISL

    blocks = int(slots) * -(-(ISL + osl) // 16)
    server = oracle.Server(step_ms, mixes, prompts, kv_blocks=blocks)
    run = oracle.open_loop(server, np.full(count, ISL), np.full(count, osl), sent_ms)
    kept = slice(count // 5, count * 9 // 10)
    return float(run.ttft_ms[kept].mean()), float(run.tpot_ms[kept].mean())


@pytest.mark.parametrize("cv2", [1.0, 0.0])
@pytest.mark.parametrize("request_", [MIXED, HEAVY], ids=["decode", "prefill"])
@pytest.mark.parametrize(("mixes", "prompts"), [(True, 1), (True, 8), (False, 1), (False, 2)])
def test_formulas_are_those_of_a_simulated_scheduler(mixes: bool, prompts: int, request_, cv2: float):
    numbers, (prompt_ms, osl) = constants(mixes=mixes), request_
    capacity = float(estimate(1.0, prompt_ms, osl, numbers, cv2=cv2, prompts=prompts).capacity_per_s)
    for share in TTFT:
        got = estimate(share * capacity, prompt_ms, osl, numbers, cv2=cv2, prompts=prompts)
        count = int(1500 + 20 * float(got.running))
        where = {"cv2": cv2, "prompts": prompts, "mixes": mixes, "slots": PLENTY}
        ttft_ms, tpot_ms = simulated(share * capacity, prompt_ms, osl, count, **where)
        assert got.ttft_ms == pytest.approx(ttft_ms, rel=TTFT[share])
        assert got.tpot_ms == pytest.approx(tpot_ms, rel=TPOT[share] if cv2 else TPOT_EVEN)


@pytest.mark.parametrize(("mixes", "prompts", "slots"), [(True, 1, 16), (True, 4, 32), (False, 1, 20)])
def test_wait_for_a_place_is_that_of_a_simulated_scheduler(mixes: bool, prompts: int, slots: int):
    numbers, (prompt_ms, osl) = constants(mixes=mixes), MIXED
    capacity = float(estimate(1.0, prompt_ms, osl, numbers, prompts=prompts, slots=slots).capacity_per_s)
    for share, error in ((0.5, 0.03), (0.7, 0.25), (0.85, 0.4)):
        got = estimate(share * capacity, prompt_ms, osl, numbers, prompts=prompts, slots=slots)
        where = {"cv2": 1.0, "prompts": prompts, "mixes": mixes, "slots": slots}
        ttft_ms, tpot_ms = simulated(share * capacity, prompt_ms, osl, 4000, **where)
        assert got.ttft_ms == pytest.approx(ttft_ms, rel=error)
        assert got.tpot_ms == pytest.approx(tpot_ms, rel=0.05)


@pytest.mark.parametrize("mixes", [True, False])
def test_prompts_alone_are_a_single_server_queue(mixes: bool):
    for busy in (0.1, 0.5, 0.9):
        got = estimate(busy / 0.1, 100.0, 1, constants(mixes=mixes))
        assert got.ttft_ms == pytest.approx(100 * (1 + busy / 2 / (1 - busy)), rel=1e-4)  # M/D/1
        assert (got.tpot_ms, got.running) == (0, pytest.approx(busy, rel=1e-4))
        assert got.capacity_per_s == pytest.approx(10, rel=1e-4)
        assert estimate(busy / 0.1, 100.0, 1, constants(), cv2=0.0).ttft_ms == pytest.approx(100, rel=1e-4)


def test_batch_by_hand():
    """Of 100 steps, with prompts that cost nothing: b = r 100 (5 + 0.05 (1 + b)), that is 20.2 / 0.8."""
    got = estimate(40.0, 1e-6, 100, constants(), prompts=1e6)
    assert got.running == pytest.approx(20.2 / 0.8, rel=1e-3)
    assert got.tpot_ms == pytest.approx(5.05 + 0.05 * got.running, rel=1e-3)


@pytest.mark.parametrize("backend", ["trtllm", "vllm", "sglang"])
@pytest.mark.parametrize("cv2", [1.0, 0.0])
def test_a_small_rate_is_one_request_alone(backend: str, cv2: float):
    numbers = traced(load_constants(backend, "silicon").loop)
    times = LoopTimes(DECODE[0] + DECODE[1], 30.0, 40.0, 40.0)
    want = closed_loop_estimate(ClosedLoop(1.0), LoopWork(200.0, slots=PLENTY), times, numbers)
    got = estimate(1e-4, 30.0, 200.0, numbers, cv2=cv2, alone_ms=40.0)
    for name in ("ttft_ms", "tpot_ms", "request_latency_ms"):
        assert getattr(got, name) == pytest.approx(float(getattr(want, name)), rel=1e-3)


WORKS = st.tuples(
    st.floats(1, 300), st.sampled_from((1.0, 2.0, 60.0, 500.0)), st.sampled_from((0.25, 1.0, 2.0, 16.0)), st.booleans()
)


@given(WORKS, st.floats(0.01, 0.99), st.floats(1.0, 2.0), st.sampled_from((1.0, 0.0)), st.floats(1, 600))
def test_more_requests_wait_longer(work, share: float, more: float, cv2: float, slots: float):
    prompt_ms, osl, prompts, mixes = work
    numbers, where = constants(mixes=mixes), {"cv2": cv2, "prompts": prompts, "slots": slots}
    capacity = float(estimate(1.0, prompt_ms, osl, numbers, **where).capacity_per_s)
    low, high = (
        estimate(rate * capacity, prompt_ms, osl, numbers, **where) for rate in (share, min(0.99, share * more))
    )
    assert low.stable and high.stable
    for name in ("running", "tpot_ms", "request_latency_ms"):
        assert getattr(low, name) <= getattr(high, name) * (1 + 1e-4)
    # Little's law: as many run as arrive while one is held.
    held_ms = low.ttft_ms - low.queue_wait_ms - low.space_wait_ms + (osl - 1) * low.tpot_ms
    arrived = share * capacity * held_ms / 1000
    assert low.running == pytest.approx(min(arrived, low.running_limit), rel=1e-3)


@given(WORKS, st.floats(-12, 9), st.floats(0.5, 600), st.floats(0, 1), st.floats(1, 16))
def test_answers_are_finite_and_the_verdict_is_that_of_the_largest_rate(work, log_rate, slots, cv2, ranks):
    prompt_ms, osl, prompts, mixes = work
    where = {"cv2": cv2, "prompts": prompts, "slots": slots, "ranks": ranks}
    got = estimate(10**log_rate, prompt_ms, osl, constants(mixes=mixes), **where)
    assert all(np.isfinite(part) and part >= 0 for part in got)
    assert got.stable == (10**log_rate < got.capacity_per_s) or 10**log_rate == pytest.approx(got.capacity_per_s)
    assert got.running <= got.running_limit <= max(slots, 1) * (1 + 1e-5)
    alone = estimate(1.0, prompt_ms, osl, constants(mixes=mixes), **where | {"ranks": 1.0})
    assert got.capacity_per_s == pytest.approx(ranks * alone.capacity_per_s, rel=1e-4)


def test_what_limits_the_rate():
    numbers = constants()
    by_steps, by_slots = (estimate(1.0, *HEAVY, numbers, slots=slots) for slots in (PLENTY, 8.0))
    assert by_slots.running_limit == 8 < by_steps.running_limit < 49 * 1.1
    assert by_slots.capacity_per_s < by_steps.capacity_per_s < 1000 / HEAVY[0]


def _outputs(logs: dict, *, numbers, cv2: jax.Array) -> jax.Array:
    """Logarithms of the figures, against those of factors on what they depend on."""
    scaled = jax.tree.map(lambda value: value * jnp.exp(logs["constants"]), numbers)
    loop = OpenLoop(3.0 * jnp.exp(logs["rate"]), cv2)
    work = LoopWork(300 * jnp.exp(logs["osl"]), 60.0, 2 * jnp.exp(logs["prompts"]), 64.0 * jnp.exp(logs["slots"]))

    def times(running: jax.Array) -> LoopTimes:
        ms = ((8.0 + 0.04 * running), 30.0, 35.0, 32.0)
        return LoopTimes(*(value * jnp.exp(logs["times"]) for value in ms))

    got = open_loop_estimate(loop, work, times, scaled)
    return jnp.log(jnp.stack([got.ttft_ms, got.tpot_ms, got.running, got.capacity_per_s]))


def test_gradients_are_those_of_differences():
    names, step = ("rate", "osl", "prompts", "slots", "times", "constants"), 1e-5
    numbers = dataclasses.replace(load_constants("trtllm", "silicon").loop, mixes_prefill=0.5)  # of both engines
    run, slopes = (jax.jit(functools.partial(f, numbers=numbers)) for f in (_outputs, jax.jacfwd(_outputs)))
    with jax.enable_x64(True):
        zero = {name: jnp.zeros(()) for name in names}
        for cv2 in (jnp.asarray(1.0), jnp.asarray(0.0)):
            found = slopes(zero, cv2=cv2)
            for name in names:
                high, low = (run({**zero, name: jnp.asarray(by)}, cv2=cv2) for by in (step, -step))
                np.testing.assert_allclose(found[name], (high - low) / (2 * step), rtol=1e-4, atol=1e-6)


def test_rates_are_mapped_and_have_reverse_gradients():
    rates, work, numbers = np.asarray([0.1, 2.0, 5.0], np.float32), LoopWork(300.0, slots=64.0), constants()

    def ttft(rate: jax.Array) -> jax.Array:
        times = lambda running: LoopTimes(8.0 + 0.04 * running, 30.0, 35.0, 32.0)  # noqa: E731
        return open_loop_estimate(OpenLoop(rate), work, times, numbers).ttft_ms

    mapped, slopes = jax.jit(jax.vmap(jax.value_and_grad(ttft)))(rates)
    assert np.isfinite(slopes).all() and (slopes > 0).all()
    one = jax.jit(ttft)
    np.testing.assert_allclose(mapped, [one(rate) for rate in rates], rtol=1e-5)
