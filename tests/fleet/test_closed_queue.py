# SPDX-License-Identifier: Apache-2.0
"""Closed loops of clients against the product form summed state by state."""

import functools
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.fleet.closed_queue import closed_loop, closed_wait_law
from aicjax.fleet.waiting import mean_wait_s, survival, wait_quantile_s

WIDTH = 256
loop = jax.jit(functools.partial(closed_loop, width=WIDTH))
wait = jax.jit(functools.partial(closed_wait_law, width=WIDTH))


def by_states(clients: int, think_s: float, mean_s: float, servers: int) -> tuple[float, float]:
    """Throughput and mean number in the system."""
    log_weight = [0.0]
    for k in range(1, clients + 1):
        log_weight.append(log_weight[-1] + math.log((clients - k + 1) * mean_s / (think_s * min(k, servers))))
    weight = np.exp(np.array(log_weight) - max(log_weight))
    share, k = weight / weight.sum(), np.arange(clients + 1)
    return float(share @ np.minimum(k, servers)) / mean_s, float(share @ k)


@given(st.integers(1, WIDTH), st.floats(0.01, 50.0), st.floats(0.05, 5.0), st.integers(1, 80))
def test_states_sum_up_and_little_holds(clients: int, think_s: float, mean_s: float, servers: int):
    found = loop(float(clients), think_s, mean_s, float(servers))
    throughput, in_system = by_states(clients, think_s, mean_s, servers)
    assert float(found.throughput_per_s) == pytest.approx(throughput, rel=1e-4)
    assert float(found.in_system) == pytest.approx(in_system, rel=1e-4)
    assert float(found.throughput_per_s * (think_s + found.response_s)) == pytest.approx(clients, rel=1e-4)
    assert float(found.throughput_per_s * found.response_s) == pytest.approx(in_system, rel=1e-3)


@pytest.mark.parametrize(("clients", "servers"), [(1.0, 1.0), (40.0, 64.0)])
def test_with_a_server_for_each_nobody_waits(clients: float, servers: float):
    found, law = loop(clients, 2.0, 1.0, servers), wait(clients, 2.0, 1.0, servers)
    assert float(found.wait_s) == pytest.approx(0.0, abs=1e-6)
    assert float(found.throughput_per_s) == pytest.approx(clients / 3.0, rel=1e-5)
    assert float(wait_quantile_s(law, 0.999)) == 0.0


def test_without_thinking_all_clients_are_in_the_system():
    found = loop(50.0, 0.0, 2.0, 8.0)
    assert float(found.in_system) == pytest.approx(50.0)
    assert float(found.utilization) == pytest.approx(1.0)
    assert float(found.wait_s) == pytest.approx(50.0 / 4.0 - 2.0, rel=1e-5)


def test_the_law_of_the_wait_has_the_mean_wait():
    for clients, servers in ((20.0, 4.0), (120.0, 10.0), (250.0, 100.0)):
        law, found = wait(clients, 5.0, 1.0, servers), loop(clients, 5.0, 1.0, servers)
        assert float(mean_wait_s(law)) == pytest.approx(float(found.wait_s), rel=0.02)
        assert float(survival(law, wait_quantile_s(law, 0.99))) <= 0.0101


def test_two_clients_one_server_by_hand():
    """A request meets the other client's with probability 1 / (1 + think / mean), and then waits for one service."""
    law = wait(2.0, 3.0, 1.0, 1.0)
    assert float(law.probability) == pytest.approx(0.25)
    assert float(survival(law, 2.0)) == pytest.approx(0.25 * np.exp(-2.0), rel=0.01)


def test_gradients_equal_differences():
    slope = jax.grad(lambda think: loop(30.0, think, 1.0, 6.0).throughput_per_s)(4.0)
    up, down = (by_states(30, 4.0 + x, 1.0, 6)[0] for x in (1e-4, -1e-4))
    assert float(slope) == pytest.approx((up - down) / 2e-4, rel=1e-3)


def test_a_hundred_thousand_clients():
    found = jax.jit(functools.partial(closed_loop, width=100_000))(1e5, 100.0, 1.0, 900.0)
    assert float(found.throughput_per_s) == pytest.approx(900.0, rel=1e-5)
    assert float(found.in_system) == pytest.approx(1e5 - 90_000.0, rel=1e-3)
