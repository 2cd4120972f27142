# SPDX-License-Identifier: Apache-2.0
"""The step-level simulation equals a plain one, loses nothing, always ends, and gains by capacity."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import InputError
from aicjax.fleet.step_queue import simulate_steps
from aicjax.fleet.step_run import RequestState, StepLimits, conserved, open_load
from tests.compiles import counted
from tests.fleet.step_cases import (
    FLEETS,
    REQUESTS,
    WIDTH,
    alone,
    even_times,
    fleets,
    lengths,
    plain,
    served,
    tables,
)
from tests.oracles.step_queue import Limits, Run

TOLERANCE: dict[str, Any] = {
    "rtol": 2e-5,
    "atol": 2e-6,
}  # float32: each step time and each sum is rounded by 6e-8 of itself
ROOMY = Limits(slots=WIDTH, kv_blocks=10_000, block_tokens=16, step_tokens=2000)
COMPLETED, REFUSED = RequestState.COMPLETED, RequestState.REFUSED


def _assert_equal(run, fleet: int, expected: Run) -> None:
    requests = expected.requests
    exact = {name: getattr(expected, name) for name in ("steps", "prompt_tokens")} | {"kv_peak_blocks": expected.peak}
    exact |= {name: [getattr(r, name) for r in requests] for name in ("state", "preemptions")}
    for name, value in (exact | {"output_tokens": [r.made for r in requests]}).items():
        np.testing.assert_array_equal(getattr(run, name)[fleet], value, name)
    arrival, first, end = (np.array([getattr(r, name) for r in requests]) for name in ("arrival", "first", "end"))
    times = {"arrival_s": arrival, "ttft_s": first - arrival, "latency_s": end - arrival}
    for name, value in (times | {"duration_s": expected.now, "busy_s": expected.busy}).items():
        np.testing.assert_allclose(getattr(run, name)[fleet], value, err_msg=name, **TOLERANCE)


@settings(max_examples=40)
@given(fleets, st.integers(0, 10**6), st.booleans(), st.sampled_from([1e6, 0.4]), st.sampled_from([0.0, 0.02, 0.2]))
def test_equals_the_plain_simulation(cases, seed, overlaps, horizon_s, gap_s):
    rng = np.random.default_rng(seed)
    times, (isl, osl) = tables(rng, overlaps=overlaps), lengths(rng)
    gaps_s = rng.exponential(gap_s, isl.shape).astype(np.float32)
    run, load, limits = served(times, cases, isl, osl, gaps_s, horizon_s)
    for fleet, expected in enumerate(plain(times, cases, isl, osl, gaps_s, horizon_s)):
        _assert_equal(run, fleet, expected)
    for name, holds in conserved(run, load, limits)._asdict().items():
        assert holds.all(), name


def test_float64_equals_the_plain_simulation_to_rounding():
    rng = np.random.default_rng(13)
    with jax.enable_x64(True):
        times = jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else leaf.astype(float), tables(rng))
        isl, osl = lengths(rng)
        gaps_s = rng.exponential(0.02, isl.shape)
        case = Limits(slots=4, kv_blocks=20, block_tokens=8, step_tokens=32)
        cases = [(case, clients, clients > 0) for clients in (0, 1, 3, 10)]
        run, _, _ = served(times, cases, isl, osl, gaps_s)
    for fleet, expected in enumerate(plain(times, cases, isl, osl, gaps_s)):
        latency_s = [request.end - request.arrival for request in expected.requests]
        np.testing.assert_allclose(run.latency_s[fleet], latency_s, rtol=1e-13, atol=1e-13)


@settings(max_examples=20)
@given(fleets, st.integers(0, 10**6), st.sampled_from([1e6, 0.4]), st.sampled_from([0.0, 0.02, 0.2]))
def test_steps_run_together_equal_steps_one_by_one(cases, seed, horizon_s, gap_s):
    rng = np.random.default_rng(seed)
    times, (isl, osl) = tables(rng), lengths(rng, osl=60)
    gaps_s = rng.exponential(gap_s, isl.shape).astype(np.float32)
    together, _, _ = served(times, cases, isl, osl, gaps_s, horizon_s)
    singly, _, _ = served(times, cases, isl, osl, gaps_s, horizon_s, jumps=False)
    for name in ("state", "preemptions", "output_tokens", "steps", "prompt_tokens", "kv_peak_blocks"):
        np.testing.assert_array_equal(getattr(together, name), getattr(singly, name), name)
    for name in ("arrival_s", "ttft_s", "latency_s", "duration_s", "busy_s"):
        np.testing.assert_allclose(getattr(together, name), getattr(singly, name), err_msg=name, **TOLERANCE)
    assert (together.iterations <= singly.iterations).all()


def test_preemption_ends_and_leaves_older_requests_alone():
    """Requests of 1 + 9 tokens on 12 blocks of a token; the third is preempted when each holds six, for the seventh."""
    case = Limits(slots=3, kv_blocks=12, block_tokens=1, step_tokens=1000)
    run = alone(even_times(1.0), case, [1, 1, 1], [9, 1, 9], [0, 0, 0])
    assert run.state.tolist() == [COMPLETED] * 3
    assert run.preemptions.tolist() == [0, 0, 1]
    np.testing.assert_allclose(run.latency_s, [9.0, 1.0, 12.0])
    assert run.prompt_tokens == 3 + 7
    assert run.kv_peak_blocks == 12
    kept = alone(even_times(1.0), dataclasses.replace(case, resumes=True), [1, 1, 1], [9, 1, 9], [0, 0, 0])
    np.testing.assert_allclose(kept.latency_s, [9.0, 1.0, 12.0])
    assert kept.prompt_tokens == 3


def test_blocks_reserved_for_the_answer_preempt_nobody():
    case = Limits(slots=3, kv_blocks=12, block_tokens=1, step_tokens=1000, reserves=True)
    run = alone(even_times(1.0), case, [1, 1, 1], [9, 1, 9], [0, 0, 0])
    assert run.preemptions.sum() == 0
    np.testing.assert_allclose(run.latency_s, [9.0, 1.0, 18.0])
    assert run.kv_peak_blocks == 9 + 1


def test_requests_that_can_never_run_are_refused_and_hold_up_nobody():
    case = Limits(slots=3, kv_blocks=12, block_tokens=1, step_tokens=1000, max_tokens=11)
    run = alone(even_times(1.0), case, [5, 4, 10, 3], [9, 9, 1, 2], [0, 0, 0, 0])
    assert run.state.tolist() == [REFUSED, REFUSED, COMPLETED, COMPLETED]
    assert np.isnan(run.ttft_s[:2]).all()
    assert run.latency_s[2:].tolist() == [1.0, 3.0]


def test_a_full_queue_rejects_and_every_request_is_counted():
    case = Limits(slots=1, kv_blocks=100, block_tokens=16, step_tokens=1000, queue_cap=2)
    run = alone(even_times(1.0), case, [10] * 6, [4] * 6, [0, 0.5, 0.1, 0.1, 0.1, 8])
    assert [RequestState(state).name for state in run.state] == ["COMPLETED"] * 3 + ["REJECTED"] * 2 + ["COMPLETED"]
    np.testing.assert_allclose(run.latency_s[[0, 1, 2, 5]], [4, 7.5, 11.4, 7.2], rtol=1e-6)


def test_one_output_token_has_no_decode_step():
    run = alone(even_times(0.01, 1e-3), ROOMY, [40, 60], [1, 1], [0, 1])
    np.testing.assert_allclose(run.ttft_s, [0.05, 0.07], rtol=1e-6)
    np.testing.assert_array_equal(run.ttft_s, run.latency_s)
    assert run.steps == run.output_tokens.sum() == 2


@pytest.mark.parametrize(("count", "mean_s", "most_s"), [(8, 0.45, 0.8), (1, 0.1, 0.1)])
def test_prompts_that_come_at_once_are_prefilled_one_by_one(count, mean_s, most_s):
    """Eight prompts of 100 ms, one to a step."""
    case = dataclasses.replace(ROOMY, step_tokens=80, chunked=False)
    run = alone(even_times(0.0, 0.1 / 80), case, [80] * count, [1] * count, [0] * count)
    assert run.ttft_s.mean() == pytest.approx(mean_s)
    assert run.ttft_s.max() == pytest.approx(most_s)


def test_times_stay_exact_over_months():
    """Gaps of days between short bursts: in float32 a clock of 1e7 s would step by whole seconds."""
    rng = np.random.default_rng(3)
    times, (isl, osl) = tables(rng), lengths(rng)
    gaps_s = np.where(np.arange(REQUESTS) % 6, rng.exponential(0.02, isl.shape), 3e6).astype(np.float32)
    cases = [(Limits(slots=4, kv_blocks=20, block_tokens=8, step_tokens=32), 0, False)] * FLEETS
    run, _, _ = served(times, cases, isl, osl, gaps_s)
    late, _, _ = served(times, cases, isl, osl, gaps_s, 1e9)
    for fleet, expected in enumerate(plain(times, cases, isl, osl, gaps_s, 1e9)):
        _assert_equal(late, fleet, expected)
    assert (run.state == RequestState.UNFINISHED).any()  # beyond the horizon of the first run


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, WIDTH - 1))
def test_slots_make_no_request_later(seed, slots):
    """With steps of one length, which take every prompt, more slots start each request no later."""
    rng = np.random.default_rng(seed)
    isl, osl = lengths(rng)
    gaps_s = rng.exponential(0.05, isl.shape).astype(np.float32)
    cases = [(dataclasses.replace(ROOMY, slots=count), 0, False) for count in (slots, slots + 1, WIDTH, WIDTH)]
    isl, osl, gaps_s = (np.broadcast_to(values[:1], values.shape) for values in (isl, osl, gaps_s))
    run, _, _ = served(even_times(0.01), cases, isl, osl, gaps_s)
    assert (run.latency_s[1:] <= run.latency_s[:-1] + 0.01 + 1e-6).all()  # a step may begin later for others


def test_blocks_lower_the_mean_latency():
    rng = np.random.default_rng(5)
    times = tables(rng)
    means = []
    for _ in range(10):
        isl, osl = (np.broadcast_to(values[:1], values.shape) for values in lengths(rng))
        gaps_s = np.broadcast_to(rng.exponential(0.05, (1, REQUESTS)).astype(np.float32), isl.shape)
        case = Limits(slots=WIDTH, kv_blocks=0, block_tokens=4, step_tokens=64)
        cases = [(dataclasses.replace(case, kv_blocks=count), 0, False) for count in (25, 35, 60, 200)]
        run, _, _ = served(times, cases, isl, osl, gaps_s)
        assert (run.state == COMPLETED).all()
        means.append(run.latency_s.mean(axis=1))
    assert (np.diff(np.mean(means, axis=0)) < 0).all()


def test_fleets_do_not_see_each_other():
    rng = np.random.default_rng(7)
    times, (isl, osl) = tables(rng), lengths(rng)
    gaps_s = rng.exponential(0.02, isl.shape).astype(np.float32)
    cases = [(Limits(slots=n, kv_blocks=30, block_tokens=4, step_tokens=20 + n), 0, False) for n in (1, 2, 4, 8)]
    run, _, _ = served(times, cases, isl, osl, gaps_s)
    mixed, _, _ = served(times, cases[::-1], isl[::-1], osl[::-1], gaps_s[::-1])
    for a, b in zip(run, mixed, strict=True):
        np.testing.assert_array_equal(a, b[::-1])


def test_tables_and_limits_may_belong_to_fleets_or_to_all():
    rng = np.random.default_rng(9)
    times, (isl, osl) = tables(rng), lengths(rng)
    gaps_s = rng.exponential(0.02, isl.shape).astype(np.float32)
    case = Limits(slots=4, kv_blocks=30, block_tokens=4, step_tokens=20)
    own = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (FLEETS, *leaf.shape)), times)
    run = simulate_steps(own, StepLimits(**dataclasses.asdict(case)), open_load(*map(jnp.asarray, (isl, osl, gaps_s))))
    expected, _, _ = served(times, [(case, 0, False)] * FLEETS, isl, osl, gaps_s)
    for a, b in zip(run, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_other_loads_and_limits_do_not_compile_again():
    rng = np.random.default_rng(11)
    isl, osl = lengths(rng)
    gaps_s = np.zeros(isl.shape, np.float32)
    served(tables(rng), [(ROOMY, 0, False)] * FLEETS, isl, osl, gaps_s)
    with counted() as counts:
        cases = [(Limits(slots=2, kv_blocks=90, block_tokens=3, step_tokens=30, mixes=False), 3, True)] * FLEETS
        served(tables(rng), cases, osl, isl, gaps_s, 0.3)
    assert counts.compiled == 0


@pytest.mark.parametrize(
    ("changed", "argument"),
    [({"slots": 0}, "slots"), ({"queue_cap": 0}, "queue_cap"), ({"step_tokens": 8}, "step_tokens")],
)
def test_limits_without_room_are_refused(changed, argument):
    case = StepLimits(**(dataclasses.asdict(ROOMY) | changed))
    with pytest.raises(InputError) as refusal:
        simulate_steps(even_times(1.0), case, open_load(*(jnp.ones((1, 2), kind) for kind in ("i4", "i4", "f4"))))
    assert refusal.value.argument == argument


@pytest.mark.parametrize("sizes", [{"width": WIDTH - 1}, {"width": WIDTH, "places": 1}])
def test_arrays_too_small_for_the_limits_are_refused(sizes):
    load = open_load(*(jnp.ones((1, 2), kind) for kind in ("i4", "i4", "f4")))
    with pytest.raises(InputError, match=list(sizes)[-1]):
        simulate_steps(even_times(1.0), StepLimits(**dataclasses.asdict(ROOMY)), load, **sizes)
