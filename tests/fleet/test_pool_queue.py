# SPDX-License-Identifier: Apache-2.0
"""Simulated pools: shapes, common random numbers, laws of service, and what is said of loads that have no long run."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax._results import InputError
from aicjax.fleet.pool_queue import QueueSample, simulate_queues, unit_poisson
from aicjax.fleet.service_times import ServiceLaw

KEY = jax.random.key(0)
LAW = ServiceLaw(jnp.array([1.0, 3.0]), jnp.array([0.1, 0.2]), jnp.array([0.75, 0.25]))
UNIT = ServiceLaw(jnp.ones(2), jnp.full(2, 0.05), jnp.full(2, 0.5))  # as many points as the other: one program


@functools.cache
def _queues() -> QueueSample:
    """Three loads: light, heavier, the same with more servers."""
    return simulate_queues(KEY, LAW, np.array([2.0, 5.0, 5.0]), np.array([8, 8, 40]), requests=3000, seeds=3)


def test_axes_and_utilization():
    sample = _queues()
    assert sample.wait_s.shape == sample.prefill_s.shape == sample.ttft_s.shape == (3, 3, 3000)
    np.testing.assert_allclose(sample.utilization, [2 * 1.5 / 8, 5 * 1.5 / 8, 5 * 1.5 / 40], rtol=1e-6)
    np.testing.assert_allclose(sample.ttft_s, sample.wait_s + sample.prefill_s)


def test_loads_of_a_seed_share_their_random_numbers_and_seeds_do_not():
    sample = _queues()
    np.testing.assert_array_equal(sample.prefill_s[0], sample.prefill_s[2])
    assert np.all(sample.wait_s[1] >= sample.wait_s[0] - 1e-4), "more requests, none waits less"
    assert np.all(sample.wait_s[2] <= sample.wait_s[1] + 1e-4), "more servers, none waits longer"
    assert np.mean(sample.prefill_s[0, 0] != sample.prefill_s[0, 1]) > 0.2


def test_a_load_is_the_same_alone_and_in_a_batch():
    alone = simulate_queues(KEY, LAW, 5.0, np.array([8]), requests=3000, seeds=3)
    np.testing.assert_array_equal(alone.wait_s[0], _queues().wait_s[1])


def test_each_load_may_have_a_law_of_its_own():
    faster = ServiceLaw(LAW.service_s / 2, LAW.prefill_s, LAW.weight)
    both = ServiceLaw(*(jnp.stack(leaves) for leaves in zip(LAW, faster, strict=True)))
    sample = simulate_queues(KEY, both, 5.0, 8, requests=3000, seeds=3)
    np.testing.assert_array_equal(sample.wait_s[0], _queues().wait_s[1])
    assert sample.wait_s[1].mean() < sample.wait_s[0].mean()
    np.testing.assert_allclose(sample.utilization, [5 * 1.5 / 8, 5 * 0.75 / 8], rtol=1e-6)


def test_draws_follow_the_law_of_service():
    prefill = _queues().prefill_s
    assert set(np.unique(prefill)) == set(np.asarray(LAW.prefill_s))
    assert np.mean(prefill == float(LAW.prefill_s[1])) == pytest.approx(0.25, abs=0.02)


def test_bursty_arrivals_wait_longer():
    smooth, burst = (
        simulate_queues(KEY, UNIT, 6.0, np.array([8]), requests=3000, seeds=3, arrivals=kind).wait_s.mean()
        for kind in (unit_poisson, _in_fours)
    )
    assert burst > 2 * smooth


def _in_fours(key, n):
    """Four at once, the groups at random."""
    return jnp.where(jnp.arange(n) % 4 == 0, 4.0 * jax.random.exponential(key, (n,)), 0.0)


def test_a_settled_start_needs_no_time_to_fill():
    rate, servers = 180.0, np.array([300])  # 270 busy in the mean, after some service times of 1.5 s
    empty, settled = (
        simulate_queues(KEY, LAW, rate, servers, requests=3000, seeds=200, settled=start).wait_s[0] > 0
        for start in (False, True)
    )
    assert empty[:, :300].mean() == 0.0
    early, late = settled[:, :300].mean(), settled[:, -300:].mean()
    assert early == pytest.approx(late, abs=0.03), "a little less: the start knows no queue"
    assert early > 0.02


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("servers", {"servers": np.array([8, 0])}),
        ("rate_per_s", {"rate_per_s": 0.0}),
        ("rate_per_s", {"rate_per_s": float("nan")}),
        ("requests", {"requests": 0}),
        ("seeds", {"seeds": 0}),
    ],
)
def test_loads_that_are_none_are_refused(name: str, values: dict):
    with pytest.raises(InputError, match=f"`{name}` must be"):
        simulate_queues(KEY, LAW, **{"rate_per_s": 1.0, "servers": 8, "requests": 3000, **values})
