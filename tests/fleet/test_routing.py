# SPDX-License-Identifier: Apache-2.0
"""Policies: where requests go without load, under load, and to which replica; requests stay as they are."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax.fleet.routing import (
    LEAST_LOADED,
    Balance,
    PoolCounts,
    ReplicaLoad,
    Requests,
    Route,
    compress_route,
    fit_route,
    label_route,
    least_loaded_route,
    length_route,
    pool_under_load,
    random_route,
    replica_of,
    round_robin_route,
    spillover_route,
)
from aicjax.fleet.rules import SANE
from aicjax.fleet.traces import pool_labels

TOKENS = (32768, 2048, 8192)
LIMITS = jnp.asarray(TOKENS)
N = 64


def _requests(seed: int) -> Requests:
    rng = np.random.default_rng(seed)
    isl, osl = (np.round(10 ** rng.uniform(0.0, most, N)).astype(np.int32) for most in (4.7, 3.6))
    return Requests(jnp.asarray(isl), jnp.asarray(osl), jnp.asarray(rng.random(N) < 0.7))


def _entry(route: Route, i: int) -> Route:
    return jax.tree.map(lambda values: values[i], route)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_length_policies_follow_their_definitions(seed: int):
    requests = _requests(seed)
    fit, by_length = (
        np.asarray(route.pool) for route in (fit_route(requests, LIMITS), length_route(requests, LIMITS, 4096))
    )
    for i, total in enumerate((requests.isl + requests.osl).tolist()):
        holding = [pool for pool in (1, 2, 0) if total <= TOKENS[pool]]
        assert fit[i] == (holding[0] if holding else 0)
        assert by_length[i] == (1 if total <= 4096 else 0)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), gamma=st.sampled_from([1.0, 1.5, 3.0]), success=st.sampled_from([0.0, 0.4, 1.0]))
def test_compression_shortens_what_fits_and_costs_its_latency(seed: int, gamma: float, success: float):
    requests = _requests(seed)
    draws = np.random.default_rng(seed).random(N).astype(np.float32)
    route = compress_route(requests, LIMITS, 4096, gamma, success, 0.003, jnp.asarray(draws))
    requests, route = jax.tree.map(np.asarray, (requests, route))
    for i in range(N):
        isl, osl = int(requests.isl[i]), int(requests.osl[i])
        tried = 4096 < isl + osl <= gamma * 4096
        shortened = tried and bool(requests.compressible[i]) and draws[i] < success and osl < 4096
        assert bool(route.compressed[i]) == shortened
        assert route.isl[i] == (4096 - osl if shortened else isl)
        assert route.pool[i] == (1 if shortened or isl + osl <= 4096 else 0)
        assert float(route.delay_s[i]) == (np.float32(0.003) if shortened else 0.0)


def test_policies_leave_the_requests_as_they_are():
    # The fleet reference shortens prompts in place, so that routers compared later see other requests.
    requests = _requests(0)
    before = jax.tree.map(np.array, requests)
    alone = length_route(requests, LIMITS, 4096)
    compressed = compress_route(requests, LIMITS, 4096, 3.0, 1.0, 0.0, jnp.zeros(N))
    again = length_route(requests, LIMITS, 4096)
    assert bool(jnp.any(compressed.isl != requests.isl))
    jax.tree.map(np.testing.assert_array_equal, requests, before)
    jax.tree.map(np.testing.assert_array_equal, again, alone)


def test_spillover_looks_at_the_slots_in_use():
    requests = Requests(jnp.asarray([100, 100, 20000]), jnp.asarray([1, 1, 1]))
    route = spillover_route(requests, LIMITS, 2048, 0.85)
    holds = jnp.ones(3, bool)

    def pool(i: int, active: int, waiting: int, rules=SANE) -> int:
        load = PoolCounts(
            active=jnp.asarray([0, active, 0]),
            waiting=jnp.asarray([0, waiting, 0]),
            slots=jnp.asarray([16, 200, 64]),
            replicas=jnp.asarray([1, 4, 1]),
        )
        return int(pool_under_load(_entry(route, i), load, holds, rules))

    assert [pool(0, active, 0) for active in (0, 4, 169, 170, 200)] == [1, 1, 1, 0, 0]
    assert pool(2, 0, 0) == 0
    # The fleet reference compares requests per replica: four requests on four replicas are over 0.85.
    reference = SANE._replace(spill_by_requests=True)
    assert [pool(0, active, waiting, reference) for active, waiting in ((3, 0), (3, 1), (4, 0))] == [1, 0, 0]


def test_the_least_loaded_pool_is_one_that_can_serve():
    route = _entry(least_loaded_route(_requests(0)), 0)
    load = PoolCounts(
        jnp.asarray([8, 0, 10]), jnp.asarray([0, 0, 2]), jnp.asarray([16, 200, 64]), jnp.asarray([1, 4, 1])
    )
    assert int(route.pool) == LEAST_LOADED
    fits = jnp.asarray([True, False, True])
    assert int(pool_under_load(route, load, fits)) == 2
    assert int(pool_under_load(route, load, fits, SANE._replace(any_context=True))) == 1
    empty = load._replace(slots=jnp.asarray([16, 0, 64]))
    assert int(pool_under_load(route, empty, jnp.ones(3, bool))) == 2


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_and_round_robin_use_all_pools_that_hold_the_request(seed: int):
    requests = _requests(seed)
    draws = np.random.default_rng(seed).random(N).astype(np.float32)
    drawn = np.asarray(random_route(requests, LIMITS, jnp.asarray(draws)).pool)
    dealt = np.asarray(round_robin_route(requests, LIMITS).pool)
    for i, total in enumerate((requests.isl + requests.osl).tolist()):
        holding = [pool for pool in range(3) if total <= TOKENS[pool]] or [0]
        assert drawn[i] == holding[int(np.float32(draws[i] * np.float32(len(holding))))]
        assert dealt[i] == min(holding, key=lambda pool: (pool - i) % 3)


def test_labels_name_pools_and_others_take_the_default():
    labels = pool_labels(["l", "", "m", "zzz", "s"], ["l", "s", "m"])
    requests = Requests(jnp.ones(5, jnp.int32), jnp.ones(5, jnp.int32))
    np.testing.assert_array_equal(label_route(requests, jnp.asarray(labels), 2).pool, [0, 2, 2, 2, 1])


def test_balance_picks_replicas_of_the_pool():
    #          absent replicas have the number of pools
    load = ReplicaLoad(
        pool=jnp.asarray([0, 0, 1, 1, 1, 1, 2, 2]),
        place=jnp.asarray([0, 1, 0, 1, 2, 3, 0, 1]),
        requests=jnp.asarray([0, 0, 7, 3, 3, 9, 0, 0]),
        full=jnp.asarray([False, False, False, False, False, True, False, False]),
    )

    def pick(balance: Balance, turn: int = 0, draws: tuple[float, float] = (0.0, 0.0)) -> int:
        place = replica_of(
            jnp.asarray(1), jnp.asarray(4), load, balance, jnp.asarray(turn, jnp.int32), jnp.asarray(draws)
        )
        return int(place) - 2

    assert pick(Balance.FEWEST) == 1
    assert [pick(Balance.ROUND_ROBIN, turn) for turn in range(4)] == [0, 1, 2, 0]  # the last is full
    assert [pick(Balance.RANDOM, draws=(draw, 0.0)) for draw in (0.1, 0.3, 0.6, 0.9)] == [0, 1, 2, 0]
    # Of the first and the second, of the first and the third, of the third and a full one.
    pairs = [(0.0, 0.0), (0.0, 0.4), (0.6, 0.0)]
    assert [pick(Balance.TWO_CHOICES, draws=draws) for draws in pairs] == [1, 2, 2]
