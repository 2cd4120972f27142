# SPDX-License-Identifier: Apache-2.0
"""Fleets under live routing: equal to a plain event simulation; every request ends once; exact over long runs."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax.fleet.fleet_queue import FleetRun, fleet_run
from aicjax.fleet.fleet_state import Outcome, Times, replicas_of
from aicjax.fleet.routing import LEAST_LOADED, Balance, Requests, Route, fit_route
from aicjax.fleet.slot_queue import slot_waits
from tests.oracles.fleet_events import Ended, Replica, run
from tests.oracles.slot_queue import erlang_c, heap_waits

N, POOLS, WIDTH, SLOTS = 60, 2, 5, 3
LONG = 4000

simulate = jax.jit(fleet_run, static_argnames=("slots_width", "rules"))
queue_waits = jax.jit(functools.partial(slot_waits, width=33))


@functools.partial(jax.jit, static_argnames=("width",))
def _small(gaps_s, route, times, counts, slots, draws, balance, queue_limit, width=WIDTH):
    replicas = replicas_of(counts, slots, width)
    return fleet_run(gaps_s, route, times, replicas, draws, slots_width=SLOTS, balance=balance, queue_limit=queue_limit)


def _one_pool(service_s, counts: int, slots: int, gaps_s, queue_limit: int | None = None) -> FleetRun:
    """A pool of equal replicas without limits of context."""
    n = len(service_s)
    route = fit_route(Requests(jnp.ones(n, jnp.int32), jnp.ones(n, jnp.int32)), jnp.asarray([10], jnp.int32))
    service_s = jnp.asarray(service_s)
    return simulate(
        jnp.asarray(gaps_s),
        route,
        Times(service_s[:, None], service_s),
        replicas_of(jnp.asarray([counts]), jnp.asarray([slots]), 4),
        jnp.zeros((n, 2)),
        slots_width=33,
        queue_limit=n if queue_limit is None else queue_limit,
    )


@st.composite
def _cases(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    return {
        "rng": np.random.default_rng(seed),
        "counts": draw(st.tuples(st.integers(0, 3), st.integers(1, 2))),
        "slots": draw(st.tuples(st.integers(0, SLOTS), st.integers(1, SLOTS))),
        "load": draw(st.sampled_from([0.3, 1.0, 3.0])),
        "balance": draw(st.sampled_from(list(Balance))),
        "queue_limit": draw(st.sampled_from([0, 1, 3, N])),
    }


@settings(max_examples=40)
@given(case=_cases())
def test_a_run_equals_a_plain_event_simulation(case):
    rng, counts, slots = case["rng"], case["counts"], case["slots"]
    servers = max(int(np.dot(counts, slots)), 1)
    gaps_s = rng.exponential(1.0 / (servers * case["load"]), N)
    service_s = rng.lognormal(-0.5, 1.0, (N, POOLS))
    service_s[rng.random((N, POOLS)) < 0.1] = np.inf
    short_s = rng.lognormal(-1.0, 1.0, N)
    compressed = rng.random(N) < 0.2
    pool = np.where(compressed, 0, rng.integers(-1, POOLS, N))
    spills = (rng.random(N) < 0.3) & (pool >= 0)
    at = np.where(spills, rng.choice([0.0, 0.5, 1.0], N), np.inf)
    delay_s = np.where(compressed, rng.exponential(0.5, N), 0.0)
    draws = rng.random((N, 2))

    def pool_of(request: int, pools: Sequence[Sequence[Replica]]) -> int:
        room = [sum(one.slots for one in replicas) for replicas in pools]
        load = [sum(one.load for one in replicas) for replicas in pools]
        if pool[request] == LEAST_LOADED:
            may = [i for i in range(POOLS) if room[i] and np.isfinite(service_s[request, i])]
            return min(may or [0], key=lambda i: load[i] / max(room[i], 1))
        own = int(pool[request])
        in_use = sum(len(one.ends) for one in pools[own]) / max(room[own], 1)
        return 1 if in_use >= at[request] else own

    def shortened(request: int, to: int) -> bool:
        return bool(compressed[request]) and to == pool[request]

    def time_of(request: int, to: int) -> float | None:
        value = float(short_s[request] if shortened(request, to) else service_s[request, to])
        return value if np.isfinite(value) else None

    def place_of(request: int, replicas: Sequence[Replica], turn: int) -> int:
        count = len(replicas)
        first = int(draws[request, 0] * count)
        second = (first + 1 + int(draws[request, 1] * (count - 1))) % count
        free = [i for i, one in enumerate(replicas) if len(one.ends) < one.slots or len(one.waiting) < limit]
        match case["balance"]:
            case Balance.FEWEST:
                return min(free, key=lambda i: replicas[i].load)
            case Balance.ROUND_ROBIN:
                return turn % count
            case Balance.RANDOM:
                return first
        pair = sorted({first, second} & set(free)) or free[:1]
        return min(pair, key=lambda i: replicas[i].load)

    limit = case["queue_limit"]
    expected = run(
        np.cumsum(gaps_s).tolist(),
        counts,
        slots,
        limit,
        pool_of,
        place_of,
        time_of,
        lambda request, to: float(delay_s[request]) if shortened(request, to) else 0.0,
    )
    with jax.enable_x64(True):
        route = Route(
            pool=jnp.asarray(pool, jnp.int32),
            compressed=jnp.asarray(compressed),
            isl=jnp.ones(N, jnp.int32),
            delay_s=jnp.asarray(delay_s),
            spill_pool=jnp.ones(N, jnp.int32),
            spill_utilization=jnp.asarray(at),
        )
        times = Times(jnp.asarray(service_s), jnp.asarray(short_s))
        facts = (jnp.asarray(counts), jnp.asarray(slots), jnp.asarray(draws), int(case["balance"]), limit)
        found = _small(jnp.asarray(gaps_s), route, times, *facts)
        _check(found, expected)


def _check(found: FleetRun, expected: list[Ended]):
    found = jax.tree.map(np.asarray, found)
    names = [Outcome(int(value)).name.lower() for value in found.outcome]
    assert names == [one.outcome for one in expected]
    np.testing.assert_array_equal(found.pool, [one.pool for one in expected])
    done = found.outcome == Outcome.COMPLETED
    np.testing.assert_array_equal(found.replica[done], [one.replica for one in expected if one.replica >= 0])
    np.testing.assert_array_equal(found.running, [one.running for one in expected])
    waits = np.array([np.nan if one.wait_s is None else one.wait_s for one in expected])
    np.testing.assert_allclose(found.wait_s, waits, atol=1e-12)
    assert np.isfinite(found.service_s[done]).all() and np.isnan(found.service_s[~done]).all()


@pytest.mark.parametrize("slots", [1, 4, 33])
def test_one_replica_is_a_slot_queue_however_long_it_runs(slots: int):
    rng = np.random.default_rng(slots)
    gaps_s, service_s = rng.exponential(1.0, LONG), rng.lognormal(np.log(0.9 * slots) - 0.5, 1.0, LONG)
    gaps_s, service_s = gaps_s.astype(np.float32), service_s.astype(np.float32)
    waits_s = _one_pool(service_s, 1, slots, gaps_s).wait_s
    np.testing.assert_allclose(waits_s, queue_waits(gaps_s, service_s, jnp.asarray(slots)), atol=1e-4)
    # After 2000 s the last digit of a time in float32 is 1.2e-4 s.
    exact_s = heap_waits(gaps_s.astype(float), service_s.astype(float), slots)
    np.testing.assert_allclose(waits_s[LONG // 2 :], exact_s[LONG // 2 :], atol=1e-4)  # 6e-4 and more otherwise
    assert exact_s.max() > 5.0


def test_the_chance_of_waiting_is_erlangs():
    # One replica of c slots with exponential service is M/M/c; a slot is held for the whole service time.
    servers, rho, n, seeds = 6, 0.8, LONG, 12
    rng = np.random.default_rng(3)
    gaps_s = rng.exponential(1.0 / (servers * rho), (seeds, n)).astype(np.float32)
    service_s = rng.exponential(1.0, (seeds, n)).astype(np.float32)
    waited = np.array(
        [
            float(np.mean(_one_pool(s, 1, servers, g).wait_s[n // 5 :] > 0))
            for g, s in zip(gaps_s, service_s, strict=True)
        ]
    )
    error = waited.std(ddof=1) / np.sqrt(seeds)
    assert abs(waited.mean() - erlang_c(servers, servers * rho)) < 3.0 * error
    assert error < 0.02


def test_an_overloaded_replica_serves_its_slots_and_no_more():
    # Twice the load of 4 slots with 1 s each: 4 requests a second end, whatever waits.
    n = LONG
    found = _one_pool(np.ones(n, np.float32), 1, 4, np.full(n, 1.0 / 8.0, np.float32))
    ends = np.cumsum(np.full(n, 1.0 / 8.0)) + np.asarray(found.wait_s + found.service_s)
    assert n / (ends.max() - ends.min()) == pytest.approx(4.0, rel=0.01)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), more=st.sampled_from(["slots", "gaps", "service"]))
def test_one_replica_is_monotone(seed: int, more: str):
    rng = np.random.default_rng(seed)
    gaps_s, service_s = (rng.exponential(mean, LONG).astype(np.float32) for mean in (0.55, 1.0))
    base = _one_pool(service_s, 1, 2, gaps_s).wait_s
    less = {
        "slots": lambda: _one_pool(service_s, 1, 3, gaps_s),
        "gaps": lambda: _one_pool(service_s, 1, 2, 1.5 * gaps_s),
        "service": lambda: _one_pool(0.8 * service_s, 1, 2, gaps_s),
    }[more]().wait_s
    assert np.all(less <= base + 1e-4)


def test_free_replicas_share_the_load():
    # The fleet reference's shortest queue counts those that wait alone: all of these would go to the first replica.
    found = _one_pool(np.full(LONG, 100.0, np.float32), 4, 16, np.full(LONG, 0.01, np.float32))
    np.testing.assert_array_equal(np.bincount(found.replica[:60], minlength=4), [15, 15, 15, 15])


def test_a_full_queue_rejects_and_an_impossible_request_is_refused():
    service_s = np.full(LONG, 1e3, np.float32)
    service_s[::4] = np.inf
    found = _one_pool(service_s, 2, 2, np.full(LONG, 0.1, np.float32), queue_limit=3)
    counts = np.bincount(found.outcome, minlength=3)
    np.testing.assert_array_equal(counts, [2 * (2 + 3), 3 * LONG // 4 - 10, LONG // 4])


def test_runs_of_many_seeds_and_fleets_are_those_of_each():
    rng = np.random.default_rng(5)
    gaps_s = jnp.asarray(rng.exponential(0.2, (2, N)), jnp.float32)
    service_s = jnp.asarray(rng.exponential(1.0, (2, N, POOLS)), jnp.float32)
    route = fit_route(Requests(jnp.asarray(rng.integers(1, 30, N)), jnp.ones(N, jnp.int32)), jnp.asarray([10, 100]))
    draws = jnp.asarray(rng.random((N, 2)), jnp.float32)
    counts = jnp.asarray([[2, 1], [1, 3]])

    def one(gaps, service, count):
        times = Times(service, service[:, 0])
        return _small(gaps, route, times, count, jnp.asarray([2, 3]), draws, 0, N)

    together = jax.vmap(one)(gaps_s, service_s, counts)
    for i in range(2):
        alone = one(gaps_s[i], service_s[i], counts[i])
        jax.tree.map(lambda many, single: np.testing.assert_allclose(many[i], single, atol=1e-5), together, alone)  # noqa: B023
