# SPDX-License-Identifier: Apache-2.0
"""Arrival streams: rate, burstiness, rates that change in time, traces, conversations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax.fleet.arrivals import (
    RatePattern,
    even_gaps,
    gamma_gaps,
    patterned_gaps,
    poisson_gaps,
    session_stream,
    sine_pattern,
    trace_gaps,
)

N = 20_000
patterned = jax.jit(patterned_gaps)
gamma = jax.jit(gamma_gaps, static_argnames="n")
streamed = jax.jit(session_stream)


@pytest.mark.parametrize("cv2", [0.25, 1.0, 4.0, 13.0])
def test_gaps_have_their_rate_and_burstiness(cv2: float):
    key = jax.random.key(1)
    gaps = np.asarray(poisson_gaps(key, 50.0, N) if cv2 == 1.0 else gamma(key, 50.0, cv2, n=N), np.float64)
    # Gamma: the relative error of the mean is sqrt(cv2 / n), that of the variance sqrt((2 + 6 cv2) / n).
    assert abs(gaps.mean() * 50.0 - 1.0) < 4.0 * np.sqrt(cv2 / N)
    assert abs(gaps.var() / gaps.mean() ** 2 / cv2 - 1.0) < 4.0 * np.sqrt((2.0 + 10.0 * cv2) / N)
    assert gaps.min() >= 0.0


def test_even_gaps_are_even():
    np.testing.assert_allclose(even_gaps(4.0, 5), 0.25)


@settings(max_examples=30)
@given(
    pieces=st.lists(st.tuples(st.floats(0.1, 20.0), st.sampled_from([0.0, 0.3, 2.0, 40.0])), min_size=4, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_changing_rate_is_a_change_of_time(pieces: list[tuple[float, float]], seed: int):
    durations, rates = np.array(pieces).T
    if not rates.any():
        rates[0] = 1.0
    unit = np.random.default_rng(seed).exponential(1.0, 200)
    cycles = int(np.ceil(unit.sum() / (durations @ rates))) + 1
    edges_s = np.concatenate([[0.0], np.cumsum(np.tile(durations, cycles))])
    units = np.concatenate([[0.0], np.cumsum(np.tile(durations * rates, cycles))])
    moving = np.append(np.diff(units) > 0, True)  # where no one arrives, the clock jumps to the end of the piece
    with jax.enable_x64(True):
        gaps = np.asarray(patterned(jnp.asarray(unit), RatePattern(jnp.asarray(durations), jnp.asarray(rates))))
    assert (gaps >= 0).all()
    place = np.searchsorted(units, np.cumsum(unit), side="right") - 1
    times = edges_s[place] + (np.cumsum(unit) - units[place]) / np.tile(rates, cycles)[place]
    assert moving[place].all()
    np.testing.assert_allclose(np.cumsum(gaps), times, rtol=1e-9)


def test_gaps_below_the_last_digit_of_the_time_left_count():
    # 0.2 s in gaps of 1e-5 s, below half the last digit of 300 s in float32; then 299.7 s; 0.1 s of the piece is left.
    unit = jnp.asarray(np.concatenate([np.ones(20_000), [299.7e5, 0.2e5]]), jnp.float32)
    gaps = patterned(unit, RatePattern(jnp.asarray([300.0, 1e6]), jnp.asarray([1e5, 1.0])))
    assert float(gaps[-1]) == pytest.approx(0.1 + 1e4, rel=2e-3)


def test_gradients_in_the_rates_are_those_of_differences():
    unit = np.random.default_rng(0).exponential(1.0, 50)
    with jax.enable_x64(True):
        durations, rates = jnp.asarray([2.0, 3.0, 1.0]), jnp.asarray([4.0, 0.5, 9.0])

        def last_s(rates):
            return jnp.sum(patterned(jnp.asarray(unit), RatePattern(durations, rates)))

        gradient = jax.jit(jax.grad(last_s))(rates)
        slopes = [(last_s(rates + step) - last_s(rates - step)) / 2e-6 for step in 1e-6 * np.eye(3)]
        np.testing.assert_allclose(gradient, np.array(slopes), rtol=1e-5)


def test_a_wave_has_its_mean_and_its_extremes():
    durations, rates = sine_pattern(100.0, 0.6, 86_400.0)
    assert float(jnp.sum(durations)) == pytest.approx(86_400.0, rel=1e-6)
    assert float(jnp.mean(rates)) == pytest.approx(100.0, rel=1e-5)
    np.testing.assert_allclose([jnp.max(rates), jnp.min(rates)], [160.0, 40.0], rtol=2e-3)
    assert int(jnp.argmax(rates)) in (23, 24)  # a quarter of the period


def test_a_trace_keeps_its_shape_at_another_rate():
    measured = jnp.asarray([0.1, 0.0, 2.0, 0.3])
    gaps = trace_gaps(measured, 5.0, 10)
    np.testing.assert_allclose(gaps[:4] * 5.0, measured / jnp.mean(measured), rtol=1e-6)
    np.testing.assert_allclose(gaps[4:8], gaps[:4])
    assert gaps.shape == (10,)


def test_seeds_and_rates_are_axes():
    keys, rates = jax.random.split(jax.random.key(0), 2), jnp.asarray([10.0, 1000.0])
    gaps = jax.vmap(jax.vmap(lambda key, rate: poisson_gaps(key, rate, 100), (None, 0)), (0, None))(keys, rates)
    assert gaps.shape == (2, 2, 100)
    np.testing.assert_allclose(gaps[:, 0], 100.0 * gaps[:, 1], rtol=1e-6)  # the same draws at each rate


def test_turns_of_a_conversation_carry_its_history():
    sessions, turns = 3000, 4
    rng = np.random.default_rng(2)
    message, answer = (jnp.asarray(rng.integers(1, 500, (sessions, turns)), jnp.int32) for _ in range(2))
    weights = jnp.asarray([0.4, 0.1, 0.2, 0.3])
    stream = streamed(jax.random.key(4), 8.0, weights, message, answer, jnp.full((sessions, turns), 2.0), think_s=10.0)
    stream = jax.tree.map(np.asarray, stream)
    assert (stream.gaps_s >= 0).all()
    assert stream.isl.size == sessions
    assert sessions / stream.gaps_s.sum() == pytest.approx(8.0, rel=0.1)
    times = np.cumsum(stream.gaps_s)
    for session in np.unique(stream.session)[:200]:
        own = np.flatnonzero(stream.session == session)
        np.testing.assert_array_equal(stream.turn[own], np.arange(own.size))
        np.testing.assert_array_equal(stream.past[own], np.append(0, (stream.isl + stream.osl)[own[:-1]]))
        np.testing.assert_array_equal((stream.isl - stream.past)[own], np.asarray(message)[session, : own.size])
        assert (np.diff(times[own]) >= 2.0 - 1e-3).all()  # no turn before the answer to the one before
    # Turns per session, where all turns of a session lie in the run.
    early = stream.session < 1500
    counts = np.bincount(np.bincount(stream.session[early])[np.unique(stream.session[early])], minlength=5)[1:]
    np.testing.assert_allclose(counts / counts.sum(), weights, atol=0.05)
