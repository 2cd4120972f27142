# SPDX-License-Identifier: Apache-2.0
"""Queues through time: closed forms, and Kolmogorov's equations of every state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.fleet.arrivals import RatePattern, sine_pattern
from aicjax.fleet.transient import Transient, transient_queue

law = jax.jit(transient_queue, static_argnames=("cycles", "steps"))
SERVERS, MEAN_S = 40.0, 2.0
SWING = sine_pattern(18.0, 0.4, 60.0, pieces=24)  # from 0.54 to 1.26 of the capacity


def steady(rate_per_s: float, seconds: float) -> RatePattern:
    return RatePattern(jnp.full(100, seconds / 100), jnp.full(100, rate_per_s))


def kolmogorov(pattern: RatePattern, cycles: int, states: int = 400, steps: int = 400) -> np.ndarray:
    """Probability of each number of requests at the end of each piece, by small steps [piece state]."""
    k = np.arange(states)
    leave = np.minimum(k, SERVERS) / MEAN_S
    share = np.zeros(states)
    share[0] = 1.0
    ends = []
    for duration, rate in zip(*(np.tile(np.asarray(leaf, float), cycles) for leaf in pattern), strict=True):
        for _ in range(steps):
            up, down = rate * share, leave * share
            up[-1] = 0.0
            share = share + duration / steps * (np.append(0, up[:-1]) - up + np.append(down[1:], 0) - down)
        ends.append(share)
    return np.array(ends)


@pytest.fixture(scope="module")
def swinging() -> Transient:
    return law(SWING, MEAN_S, SERVERS, cycles=2)


def test_many_servers_fill_as_a_poisson_number():
    found = law(steady(3.0, 20.0), MEAN_S, 1e4)
    expected = 3.0 * MEAN_S * -np.expm1(-np.asarray(found.time_s) / MEAN_S)
    np.testing.assert_allclose(found.in_system, expected, rtol=1e-3)
    np.testing.assert_allclose(found.deviation**2, expected, rtol=2e-3, atol=1e-4)
    assert float(found.wait_s.max()) == 0


def test_overload_grows_by_what_the_servers_do_not_take():
    found = law(steady(2 * SERVERS / MEAN_S, 100.0), MEAN_S, SERVERS, in_system=SERVERS)
    growth = (found.in_system[-1] - found.in_system[-401]) / (found.time_s[-1] - found.time_s[-401])
    assert growth == pytest.approx(SERVERS / MEAN_S, rel=1e-3)
    assert found.wait_s[-1] == pytest.approx(100.0, rel=0.05)


def test_follows_the_equations_of_every_state(swinging: Transient):
    share = kolmogorov(SWING, 2)
    k = np.arange(share.shape[1])
    mean = share @ k
    late = share @ (k >= SERVERS)
    wait_s = share @ np.maximum(k - SERVERS + 1, 0) * MEAN_S / SERVERS
    rises = slice(15)  # of the first period: until the queue has drained
    np.testing.assert_allclose(swinging.in_system[7::8][rises], mean[rises], rtol=0.015)
    np.testing.assert_allclose(swinging.later_than(0.0)[7::8][rises], late[rises], atol=0.04)
    np.testing.assert_allclose(swinging.wait_s[7::8][rises], wait_s[rises], rtol=0.03, atol=0.01)
    np.testing.assert_allclose(swinging.in_system[7::8], mean, rtol=0.11)
    np.testing.assert_allclose(swinging.wait_s[7::8], wait_s, atol=0.05 * wait_s.max())
    np.testing.assert_allclose(swinging.utilization[7::8], share @ np.minimum(k, SERVERS) / SERVERS, rtol=0.065)


def test_bursty_arrivals_spread_the_queue(swinging: Transient):
    bursty = law(SWING, MEAN_S, SERVERS, arrival_cv2=4.0, cycles=2)
    assert np.all(np.asarray(bursty.deviation) > np.asarray(swinging.deviation))


def test_slope_in_the_servers_is_that_of_differences():
    def worst_s(servers: jax.Array | float) -> jax.Array:
        return jnp.max(law(SWING, MEAN_S, servers, cycles=2).wait_s)

    slope = jax.grad(worst_s)(SERVERS)
    assert slope == pytest.approx((worst_s(SERVERS + 0.5) - worst_s(SERVERS - 0.5)).item(), rel=0.02)
    assert slope < 0
