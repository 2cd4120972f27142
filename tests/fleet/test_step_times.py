# SPDX-License-Identifier: Apache-2.0
"""Step times: what a profile and the tables say, and that a step takes no less time for more work."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.fleet.presets import manual_profile, preset
from aicjax.fleet.profile import Profile, iteration_s, prefill_iteration_s
from aicjax.fleet.step_run import profile_limits
from aicjax.fleet.step_times import PromptPart, StepTimes, no_prompts, profile_steps
from tests.fleet.step_cases import tables

COMPUTING = Profile(
    base_s=0.006,
    per_sequence_s=3e-4,
    calibration_tokens=2048.0,
    chunk_tokens=512.0,
    block_tokens=16.0,
    kv_blocks=4096.0,
    price_per_hour=1.0,
    prefill_token_s=4e-5,
    prefill_pair_s=2e-9,
)


def _step_s(times: StepTimes, running: int, mean: int, chunk: int = 0, past: int = 0) -> float:
    return float(_step(times, *map(jnp.int32, (running, running * mean, chunk, past))))


@jax.jit
def _step(times: StepTimes, running: jax.Array, context_sum: jax.Array, chunk: jax.Array, past: jax.Array) -> jax.Array:
    one = PromptPart(chunk, jnp.int32(1), chunk + past, times.chunk_s(chunk, past))
    part = jax.tree.map(lambda some, none: jnp.where(chunk > 0, some, none), one, no_prompts(jnp.float32))
    return times.step_s(running, context_sum, part)


@pytest.mark.parametrize("profile", [preset("h100"), COMPUTING])
@pytest.mark.parametrize(("running", "mean"), [(1, 100), (7, 2048), (300, 9000)])
def test_decode_steps_of_a_profile_are_its_iterations(profile: Profile, running: int, mean: int):
    expected = float(iteration_s(profile, running, mean))
    assert _step_s(profile_steps(profile), running, mean) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("past", [0, 512, 20_000])
@pytest.mark.parametrize("running", [0, 3, 200])
def test_full_chunks_of_a_profile_are_its_prefill_iterations(past: int, running: int):
    """The prompt is one of the running requests, with the tokens that it has after the step."""
    mean = (running * 1000 + 512 + past) / (running + 1)
    expected = float(prefill_iteration_s(COMPUTING, running + 1, mean, past))
    assert _step_s(profile_steps(COMPUTING), running, 1000, 512, past) == pytest.approx(expected, rel=1e-6)


def test_arithmetic_of_parts_of_a_chunk_is_close():
    times = profile_steps(COMPUTING)
    for chunk in (50, 177, 509):
        exact = 4e-5 * chunk + 2e-9 * chunk * (chunk / 2 + 3000)
        found = float(times.chunk_s(jnp.int32(chunk), jnp.int32(3000)))
        assert found == pytest.approx(exact, rel=1e-4)


def test_a_profile_takes_a_chunk_beside_its_slots():
    limits = profile_limits(manual_profile("own", base_s=0.01, per_sequence_s=1e-4, price_per_hour=1.0), 32, 4096)
    assert (int(limits.step_tokens), int(limits.kv_blocks), int(limits.block_tokens)) == (544, 65536, 16)


def test_tables_are_linear_between_knots_and_beyond():
    times = tables(np.random.default_rng(0))
    decode = np.asarray(times.decode_s, float)
    assert _step_s(times, 3, 20) == pytest.approx(decode[2, 1], rel=1e-6)
    assert _step_s(times, 1, 20) == pytest.approx((decode[0, 1] + decode[1, 1]) / 2, rel=1e-6)
    assert _step_s(times, 9, 50) == pytest.approx(2 * decode[3, 2] - decode[2, 2], rel=1e-6)
    assert _step_s(times, 3, 80) == pytest.approx(2 * decode[2, 2] - decode[2, 1], rel=1e-6)
    shared, prompt = np.asarray(times.shared_s, float), np.asarray(times.prompt_s, float)
    added = (shared[1] + (3 + 8 - 10) / 54 * (shared[2] - shared[1])) - (shared[0] + 0.3 * (shared[1] - shared[0]))
    expected = decode[2, 1] + added + prompt[1, 1]
    assert _step_s(times, 3, 20, 8, 16) == pytest.approx(expected, rel=1e-6)
    host = float(times.prompt_host_s)
    assert _step_s(times, 0, 0, 8) == pytest.approx(
        decode[0, 0] + 0.8 * (shared[1] - shared[0]) + prompt[1, 0] + host, rel=1e-6
    )


@given(st.integers(0, 10**6), st.booleans(), st.tuples(*[st.integers(0, n) for n in (12, 80, 90, 90)]))
def test_more_work_never_takes_less_time(seed: int, overlaps: bool, work: tuple[int, int, int, int]):
    times = tables(np.random.default_rng(seed), overlaps=overlaps)
    base = _step_s(times, *work)
    slack = base * 1e-6
    for place in range(0 if not overlaps else 1, 3):  # a short context lowers the mean of overlapping steps
        assert _step_s(times, *(n + 8 * (i == place) for i, n in enumerate(work))) >= base - slack
    if work[2]:
        assert _step_s(times, *work[:3], work[3] + 8) >= base - slack


def test_steps_of_growing_contexts_lie_on_the_line():
    times = tables(np.random.default_rng(4))
    line = times.decode_line(jnp.int32(3), jnp.int32(3 * 5))
    assert float(line.steps) == 15
    for step in range(int(line.steps) + 1):
        expected = _step_s(times, 3, 5 + step)
        assert float(line.first_s + step * line.growth_s) == pytest.approx(expected, rel=1e-6)
    assert float(times.decode_line(jnp.int32(3), jnp.int32(3 * 70)).steps) == np.inf


def test_step_times_have_gradients():
    def total(times: StepTimes) -> jax.Array:
        tokens = jnp.int32(8)
        part = PromptPart(tokens, jnp.int32(1), tokens, times.chunk_s(tokens, jnp.int32(0)))
        return times.step_s(jnp.int32(3), jnp.int32(75), part)

    gradient = jax.grad(total, allow_int=True)(tables(np.random.default_rng(4)))
    assert float(gradient.prompt_host_s) == 1.0
    assert float(gradient.decode_s.sum()) == pytest.approx(1.0)
