# SPDX-License-Identifier: Apache-2.0
"""Waits before many servers: equal to a heap's, for any number of servers; monotone; exact over long runs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.fleet.slot_queue import slot_waits
from aicjax.fleet.statistics import nearest_rank
from tests.oracles.slot_queue import heap_waits

ARRIVALS = 300
ROUNDING = 1e-9  # of times up to some thousand seconds in float64
WIDTHS = (8, 64, 128)  # all servers at every arrival; as many as the block; a merge after every block
SEEDS = st.integers(0, 2**32 - 1)
UTILIZATIONS = st.floats(0.05, 1.5)


@functools.cache
def _compiled(width: int):
    return jax.jit(functools.partial(slot_waits, width=width))


def _waits(gaps: np.ndarray, service: np.ndarray, servers: np.ndarray | int, width: int) -> np.ndarray:
    with jax.enable_x64(True):
        counts = jnp.asarray(np.broadcast_to(servers, gaps.shape[:-1]), jnp.int32)
        return np.asarray(_compiled(width)(jnp.asarray(gaps), jnp.asarray(service), counts))


def _load(seed: int, servers: int, utilization: float, fleets: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Gaps and services with ties: groups that arrive at once, services of zero and of equal length."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1.0 / (utilization * servers), (fleets, ARRIVALS)) * rng.integers(0, 3, (fleets, ARRIVALS))
    service = rng.lognormal(-0.5, 1.0, (fleets, ARRIVALS))
    return gaps, np.where(rng.random(service.shape) < 0.2, rng.integers(0, 2, service.shape), service)


@pytest.mark.parametrize("width", WIDTHS)
@given(seed=SEEDS, utilization=UTILIZATIONS, used=st.floats(0.0, 1.0))
def test_waits_are_those_of_a_heap(width: int, seed: int, utilization: float, used: float):
    counts = np.array([max(1, round(used * width)), width])
    gaps, service = _load(seed, width, utilization)
    waits = _waits(gaps, service, counts, width)
    for fleet, count in enumerate(counts):
        np.testing.assert_allclose(waits[fleet], heap_waits(gaps[fleet], service[fleet], count), atol=ROUNDING)


@pytest.mark.parametrize("servers", [65, 300, 1280])
def test_waits_before_many_servers_are_those_of_a_heap(servers: int):
    rng = np.random.default_rng(servers)
    count = 6 * servers
    gaps, service = rng.exponential(1.0 / (1.1 * servers), (1, count)), rng.lognormal(0.0, 1.0, (1, count)) / 1.65
    waits = _waits(gaps, service, servers, servers)
    expected = heap_waits(gaps[0], service[0], servers)
    assert expected.max() > 0.1
    np.testing.assert_allclose(waits[0], expected, atol=ROUNDING)


@given(seed=SEEDS, utilization=UTILIZATIONS, servers=st.integers(1, 63))
def test_no_request_waits_longer_when_a_server_is_added(seed: int, utilization: float, servers: int):
    gaps, service = _load(seed, servers, utilization)
    fewer, more = (_waits(gaps, service, count, 64) for count in (servers, servers + 1))
    assert np.all(more <= fewer + ROUNDING)


@given(seed=SEEDS, utilization=UTILIZATIONS, servers=st.integers(1, 64), slower=st.integers(0, ARRIVALS - 1))
def test_no_request_waits_less_when_one_takes_longer(seed: int, utilization: float, servers: int, slower: int):
    gaps, service = _load(seed, servers, utilization)
    longer = service.copy()
    longer[:, slower] += 1.0
    before, after = (_waits(gaps, times, servers, 64) for times in (service, longer))
    assert np.all(after >= before - ROUNDING)
    np.testing.assert_array_equal(after[:, : slower + 1], before[:, : slower + 1])


@given(seed=SEEDS, utilization=UTILIZATIONS, servers=st.integers(1, 64))
def test_no_server_idles_while_a_request_waits(seed: int, utilization: float, servers: int):
    gaps, service = _load(seed, servers, utilization, fleets=1)
    arrival = np.cumsum(gaps[0])
    start = arrival + _waits(gaps, service, servers, 64)[0]
    assert np.all(np.diff(start) >= -ROUNDING), "first come, first served"
    for number in np.flatnonzero(start > arrival + ROUNDING):
        others = np.arange(ARRIVALS) != number
        just_before = start[number] - ROUNDING
        busy = np.sum((start <= just_before) & (start + service[0] >= just_before) & others)
        assert busy >= servers


@pytest.mark.parametrize("width", [8, 128])
def test_servers_may_be_busy_at_first(width: int):
    gaps, service = _load(2, width, 0.9)
    counts = np.array([width // 2, width])
    busy = np.random.default_rng(5).exponential(2.0, (2, width))
    with jax.enable_x64(True):
        waits = np.asarray(
            slot_waits(*map(jnp.asarray, (gaps, service, counts)), width=width, busy_s=jnp.asarray(busy))
        )
    for fleet, count in enumerate(counts):
        first = np.zeros(count)  # requests that arrive before all others and leave when the servers are free
        expected = heap_waits([*first, *gaps[fleet]], [*busy[fleet, :count], *service[fleet]], int(count))[count:]
        np.testing.assert_allclose(waits[fleet], expected, atol=ROUNDING)
        assert expected.max() > 0


def test_axes_of_fleets_come_back():
    gaps, service = _load(1, 4, 0.9, fleets=6)
    counts = np.array([[4], [7]])
    folded = _waits(gaps.reshape(2, 3, -1), service.reshape(2, 3, -1), counts, 8)
    for (row, column), count in np.ndenumerate(np.broadcast_to(counts, (2, 3))):
        fleet = 3 * row + column
        np.testing.assert_allclose(
            folded[row, column], heap_waits(gaps[fleet], service[fleet], int(count)), atol=ROUNDING
        )


def test_float32_keeps_its_precision_after_a_million_requests():
    rng = np.random.default_rng(3)
    gaps = rng.exponential(1.0 / 14.0, 1_000_000).astype(np.float32)
    service = rng.exponential(1.0, gaps.shape).astype(np.float32)
    single = np.asarray(_compiled(16)(gaps, service, 16))
    double = _waits(gaps.astype(float), service.astype(float), 16, 16)
    assert np.abs(single - double).max() < 1e-5 * double.max()


def test_a_request_that_stays_for_days_does_not_blur_the_times_of_others():
    rng = np.random.default_rng(6)
    gaps = rng.exponential(1.0, 50_000).astype(np.float32)
    service = rng.exponential(0.8, gaps.shape).astype(np.float32)
    service[0] = 1e6  # float32 knows such times to a sixteenth of a second
    single = np.asarray(_compiled(8)(gaps, service, 2))
    double = _waits(gaps.astype(float), service.astype(float), 2, 8)
    assert double.max() > 10.0
    assert np.abs(single - double).max() < 1e-3


def test_derivative_of_the_mean_wait_is_that_of_differences():
    rng = np.random.default_rng(4)
    gaps, service = rng.exponential(1.0 / 80.0, (1, 200)), rng.exponential(1.0, (1, 200))

    def mean_wait(scale):
        return jnp.mean(slot_waits(jnp.asarray(gaps), jnp.asarray(service) * scale, 65))

    with jax.enable_x64(True):
        value_and_slope = jax.jit(jax.value_and_grad(mean_wait))
        (below, _), (_, slope), (above, _) = (value_and_slope(1.0 + step) for step in (-1e-6, 0.0, 1e-6))
        difference = (above - below) / 2e-6
    assert float(slope) == pytest.approx(float(difference), rel=1e-6)
    assert float(slope) > 0


@pytest.mark.parametrize(("at_once", "mean_s", "most_s", "median_s"), [(8, 0.45, 0.8, 0.4), (1, 0.1, 0.1, 0.1)])
def test_requests_that_arrive_at_once_are_served_one_by_one(at_once: int, mean_s, most_s, median_s):
    prefill_s = np.full(at_once, 0.1, np.float32)
    ttft_s = np.asarray(_compiled(8)(np.zeros_like(prefill_s), prefill_s, 1)) + prefill_s
    assert ttft_s.mean() == pytest.approx(mean_s)
    assert ttft_s.max() == pytest.approx(most_s)
    assert nearest_rank(ttft_s, 0.5) == pytest.approx(median_s)
