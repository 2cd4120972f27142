# SPDX-License-Identifier: Apache-2.0
"""Least replicas: against a plain search, and what is said when there are none."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax.fleet import lengths
from aicjax.fleet.capacity import MOST_REPLICAS, PoolLoad, Target, Verdict, least_replicas, pool_load
from aicjax.fleet.failures import availability
from aicjax.fleet.least_count import least_count
from aicjax.fleet.presets import preset
from aicjax.fleet.reference_queueing import reference_replicas
from aicjax.fleet.rules import FLEET_REFERENCE, SANE, Rules
from aicjax.fleet.service_times import ServiceLaw, moments, service_law

SLOTS = 16.0
least_of = jax.jit(least_replicas, static_argnames="rules")
load = jax.jit(pool_load, static_argnames="rules")


def least(*stated, availability: float = 1.0, rules: Rules = SANE) -> PoolLoad:
    """`least_replicas` with an availability always, so that one program answers all tests of a pool."""
    return least_of(*stated, availability=availability, rules=rules)


@functools.cache
def pool(name: str) -> ServiceLaw:
    return service_law(preset("a100"), lengths.named(name), 65_536, rules=FLEET_REFERENCE)


def target(limit_s: float, quantile: float = 0.99, rho_max: float = 0.85, wait_limit_s: float = np.inf) -> Target:
    return Target(*(jnp.asarray(x, float) for x in (limit_s, quantile, rho_max, wait_limit_s)))


@settings(max_examples=12)
@given(
    st.sampled_from(["azure", "lmsys", "agent_heavy"]),
    st.floats(0.1, 500.0),
    st.floats(0.6, 20.0),
    st.floats(0.9, 0.995),
    st.floats(0.5, 0.999),
)
def test_one_replica_fewer_would_not_do(name: str, rate: float, limit_s: float, quantile: float, rho_max: float):
    service, wanted = pool(name), target(limit_s, quantile, rho_max)
    found = least(SLOTS, rate, service, wanted)
    assert int(found.verdict) == Verdict.MET
    assert float(found.utilization) <= rho_max * (1.0 + 1e-5)
    assert float(found.ttft_s) <= limit_s * (1.0 + 1e-4)
    fewer = float(found.replicas) - 1.0
    if fewer >= 1.0:
        before = load(fewer, SLOTS, rate, service, wanted)
        assert int(before.verdict) != Verdict.MET or float(before.utilization) > rho_max * (1.0 - 1e-5)


def test_more_requests_and_tighter_limits_need_more():
    service = pool("agent_heavy")
    by_rate = [float(least(SLOTS, rate, service, target(2.0)).replicas) for rate in (1.0, 5.0, 20.0, 100.0)]
    by_limit = [float(least(SLOTS, 2.0, service, target(limit, rho_max=1.0)).replicas) for limit in (30.0, 3.0, 0.6)]
    assert by_rate == sorted(by_rate)
    assert by_limit == sorted(by_limit)
    assert by_limit[0] < by_limit[-1]


def test_a_rate_at_capacity_is_overload():
    """A stated count that cannot keep up is said to be overloaded, with no latency made up for it."""
    service = pool("azure")
    capacity = 3.0 * SLOTS / float(moments(service)[0])
    for rate in (capacity, 2.0 * capacity):
        found = load(3.0, SLOTS, rate, service, target(1e6))
        assert int(found.verdict) == Verdict.OVERLOADED
        assert float(found.utilization) >= 1.0
        assert float(found.ttft_s) == np.inf
    assert int(load(3.0, SLOTS, 0.9 * capacity, service, target(1e6)).verdict) == Verdict.MET


def test_replicas_do_not_help_a_prefill_that_is_too_slow():
    """P99 of the prefill alone is 104 ms: no count meets 50 ms, and none is bought for it."""
    service = pool("azure")
    found = least(SLOTS, 100.0, service, target(0.05))
    assert int(found.verdict) == Verdict.PREFILL_TOO_SLOW
    assert float(found.replicas) == np.ceil(100.0 * float(moments(service)[0]) / SLOTS / 0.85)
    assert float(found.ttft_s) > 0.05
    assert int(least(SLOTS, 100.0, service, target(0.11)).verdict) == Verdict.MET


def test_a_replica_without_room_is_said():
    found = least(0.0, 1.0, pool("azure"), target(1.0))
    assert int(found.verdict) == Verdict.NO_SLOTS
    assert np.isfinite(float(found.replicas))


def test_a_limit_on_the_wait_counts_too():
    service = pool("agent_heavy")
    free = least(SLOTS, 3.0, service, target(1e3, rho_max=0.99))
    tight = least(SLOTS, 3.0, service, target(1e3, rho_max=0.99, wait_limit_s=0.5))
    assert float(free.wait_s) > 0.5 >= float(tight.wait_s)
    assert float(tight.replicas) > float(free.replicas)


def test_no_request_needs_one_replica():
    found = least(SLOTS, 0.0, pool("azure"), target(1.0))
    assert (float(found.replicas), int(found.verdict)) == (1.0, Verdict.MET)


def test_replicas_that_fail_are_bought_on_top():
    service, share = pool("azure"), float(availability(24.0 / 0.0065, 48.0))
    found = least(SLOTS, 300.0, service, target(0.5))
    bought = least(SLOTS, 300.0, service, target(0.5), availability=share)
    assert share == pytest.approx(0.98717, abs=1e-5)
    assert float(bought.replicas) == np.ceil(float(found.replicas) / share)
    assert float(bought.ttft_s) == float(found.ttft_s)


def test_many_pools_at_once_equal_one_by_one():
    service = pool("lmsys")
    rates = jnp.asarray([0.5, 7.0, 80.0, 900.0])
    many = jax.jit(jax.vmap(least_replicas, in_axes=(None, 0, None, None)))
    found = many(SLOTS, rates, service, target(0.2))
    one_by_one = [float(least(SLOTS, rate, service, target(0.2)).replicas) for rate in rates.tolist()]
    assert found.replicas.tolist() == one_by_one


def test_real_counts_have_gradients():
    service = pool("azure")
    slope = jax.jit(jax.grad(lambda n: pool_load(n, SLOTS, 60.0, service, target(1.0)).ttft_s))(15.5)
    step = 0.05
    up, down = (load(15.5 + x, SLOTS, 60.0, service, target(1.0)).ttft_s for x in (step, -step))
    assert float(slope) < 0.0
    assert float(slope) == pytest.approx(float((up - down) / (2.0 * step)), rel=0.03)


def test_the_reference_keeps_a_spare_and_ignores_prefill():
    service = pool("agent_heavy")
    rate, wanted = 5.0, target(0.3, rho_max=1.0)
    theirs = least(SLOTS, rate, service, wanted, rules=FLEET_REFERENCE)
    mean_s, cv2 = moments(service)
    assert float(theirs.replicas) == float(reference_replicas(rate, SLOTS / mean_s, cv2, SLOTS, wanted))
    assert float(theirs.replicas) >= np.ceil(rate * float(mean_s) / SLOTS) + 1.0
    assert int(theirs.verdict) == Verdict.MET  # its wait; the P99 of the prefill alone is 441 ms
    assert int(least(SLOTS, rate, service, wanted).verdict) == Verdict.PREFILL_TOO_SLOW


@jax.jit
def least_from(floor, answer, most):
    return least_count(lambda count: count >= answer, floor, most)


@given(st.integers(1, 5_000), st.integers(1, 400))
def test_least_count_is_the_least(answer: int, floor: int):
    found = least_from(float(floor), float(answer), float(floor + 4_000))
    assert int(found) == min(max(answer, floor), floor + 4_000)


def test_least_count_asks_few_counts():
    asked = []

    def meets(count):
        jax.debug.callback(asked.append, count)
        return count >= 3_777.0

    assert int(least_count(meets, jnp.asarray(10.0), jnp.asarray(1e6))) == 3_777
    jax.effects_barrier()
    assert len(asked) < 30


@pytest.mark.parametrize("rate", [2.0 * MOST_REPLICAS, 1e12])
def test_a_count_beyond_all_that_are_looked_at_is_said(rate: float):
    weight = pool("azure").weight
    service = ServiceLaw(*(jnp.full_like(weight, number) for number in (1.0, 0.1, 1.0 / weight.size)))
    found = least(1.0, rate, service, target(0.5))
    assert int(found.verdict) == Verdict.COUNT_TOO_LARGE
    assert float(found.replicas) == MOST_REPLICAS
