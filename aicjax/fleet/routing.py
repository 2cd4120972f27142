# SPDX-License-Identifier: Apache-2.0
"""Where requests go: the pool by a policy, then a replica of the pool by load balance.

A policy is a pure function of the requests and the context limits of the pools. It answers a `Route`: what can be said
before the load is known, one entry a request, along any leading axes. `pool_under_load` and `replica_of` finish the
choice when the request arrives. A route never changes a request: a shortened prompt is a number of the route. Routes of
several policies stack, and random numbers are arguments, so that policies compare under common random numbers.
"""

import enum
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aicjax._types import FloatScalar
from aicjax.fleet.rules import SANE, Rules

LEAST_LOADED = -1  # pool of a route that the load decides


class Requests(NamedTuple):
    """What a router may look at; the output length is taken as known.

    Attributes:
        isl, osl: Prompt and output tokens.
        compressible: Whether the prompt may be shortened.
    """

    isl: Int[Array, "*axes n"]
    osl: Int[Array, "*axes n"]
    compressible: Bool[Array, "*axes n"] | bool = True

    @property
    def total(self) -> Int[Array, "*axes n"]:
        """Total tokens."""
        return self.isl + self.osl


class Route(NamedTuple):
    """Where requests go.

    Attributes:
        pool: Number of the pool; `LEAST_LOADED` for that of least load.
        compressed: Whether the prompt is shortened for that pool.
        isl: Prompt tokens as that pool sees them.
        delay_s: Time before the pool can start it [s]: that of shortening.
        spill_pool: Pool that takes the request when `pool` is too full.
        spill_utilization: Share of the slots of `pool` in use from which on it is too full; infinite for never.
    """

    pool: Int[Array, "*axes n"]
    compressed: Bool[Array, "*axes n"]
    isl: Int[Array, "*axes n"]
    delay_s: Float[Array, "*axes n"]
    spill_pool: Int[Array, "*axes n"]
    spill_utilization: Float[Array, "*axes n"]


def shortest_pool(max_tokens: Int[Array, " pool"]) -> Int[Array, ""]:
    """The pool of least context; the first of equals."""
    return jnp.argmin(max_tokens).astype(jnp.int32)


def longest_pool(max_tokens: Int[Array, " pool"]) -> Int[Array, ""]:
    """The pool of most context; the last of equals."""
    return (max_tokens.size - 1 - jnp.argmax(max_tokens[::-1])).astype(jnp.int32)


def fit_route(requests: Requests, max_tokens: Int[Array, " pool"]) -> Route:
    """To the pool of least context that holds the request; where none does, to the longest."""
    holds = requests.total[..., None] <= max_tokens
    shortest = jnp.argmin(jnp.where(holds, max_tokens, jnp.iinfo(jnp.int32).max), axis=-1).astype(jnp.int32)
    return _to(requests, jnp.where(jnp.any(holds, axis=-1), shortest, longest_pool(max_tokens)))


def length_route(requests: Requests, max_tokens: Int[Array, " pool"], threshold_tokens: FloatScalar) -> Route:
    """To the shortest pool up to `threshold_tokens` in total, to the longest above."""
    short = requests.total <= jnp.floor(threshold_tokens).astype(jnp.int32)
    return _to(requests, jnp.where(short, shortest_pool(max_tokens), longest_pool(max_tokens)))


def spillover_route(
    requests: Requests, max_tokens: Int[Array, " pool"], threshold_tokens: FloatScalar, utilization: FloatScalar
) -> Route:
    """By length; but to the longest pool too while the shortest has `utilization` (0 to 1) of its slots in use."""
    route = length_route(requests, max_tokens, threshold_tokens)
    may = route.pool == shortest_pool(max_tokens)
    return route._replace(
        spill_pool=jnp.broadcast_to(longest_pool(max_tokens), may.shape),
        spill_utilization=jnp.where(may, utilization, jnp.inf),
    )


def compress_route(
    requests: Requests,
    max_tokens: Int[Array, " pool"],
    threshold_tokens: int | Int[Array, ""],
    gamma: FloatScalar,
    success: FloatScalar,
    latency_s: FloatScalar,
    draws: Float[Array, "*axes n"],
) -> Route:
    """By length; but a request up to `gamma` times the threshold is shortened to fit the shortest pool.

    Args:
        requests: The requests.
        max_tokens: Context limit of each pool.
        threshold_tokens: Total tokens up to which a request is short.
        gamma: Longest request that is tried, as a multiple of the threshold.
        success: Probability that a prompt which may be shortened is.
        latency_s: Time that shortening takes.
        draws: Uniform draws in [0, 1), one a request.
    """
    route = length_route(requests, max_tokens, threshold_tokens)
    within = requests.total <= jnp.floor(gamma * threshold_tokens).astype(jnp.int32)
    borderline = within & (requests.total > threshold_tokens)
    left = threshold_tokens - requests.osl
    compressed = borderline & requests.compressible & (draws < success) & (left > 0)
    return route._replace(
        pool=jnp.where(compressed, shortest_pool(max_tokens), route.pool),
        compressed=compressed,
        isl=jnp.where(compressed, left, requests.isl),
        delay_s=jnp.where(compressed, latency_s, 0.0),
    )


def least_loaded_route(requests: Requests) -> Route:
    """To the pool with the fewest requests, running or waiting, for its slots, of those that can hold the request."""
    return _to(requests, jnp.full(requests.isl.shape, LEAST_LOADED, jnp.int32))


def round_robin_route(requests: Requests, max_tokens: Int[Array, " pool"]) -> Route:
    """To the pools in turn; past those that cannot hold the request."""
    pools = max_tokens.size
    turn = jnp.arange(requests.isl.shape[-1], dtype=jnp.int32)[:, None] % pools
    steps = (jnp.arange(pools, dtype=jnp.int32) - turn) % pools
    holds = requests.total[..., None] <= max_tokens
    next_pool = jnp.argmin(jnp.where(holds, steps, pools), axis=-1).astype(jnp.int32)
    return _to(requests, jnp.where(jnp.any(holds, axis=-1), next_pool, longest_pool(max_tokens)))


def random_route(
    requests: Requests, max_tokens: Int[Array, " pool"], draws: Float[Array, "*axes n"], rules: Rules = SANE
) -> Route:
    """To any pool that can hold the request, by uniform draws in [0, 1), one a request.

    `rules.any_context` draws from all pools.
    """
    holds = requests.total[..., None] <= (jnp.iinfo(jnp.int32).max if rules.any_context else max_tokens)
    holds = jnp.broadcast_to(holds, (*requests.isl.shape, max_tokens.size))
    rank = jnp.cumsum(holds.astype(jnp.int32), axis=-1)
    wanted = jnp.floor(draws * rank[..., -1].astype(draws.dtype)).astype(jnp.int32) + 1
    drawn = jnp.argmax(rank == wanted[..., None], axis=-1).astype(jnp.int32)
    return _to(requests, jnp.where(rank[..., -1] > 0, drawn, longest_pool(max_tokens)))


def label_route(requests: Requests, labels: Int[Array, "*axes n"], default_pool: int | Int[Array, ""]) -> Route:
    """To the pool that a model name or a classifier gives, as pool numbers; negative ones to `default_pool`."""
    return _to(requests, jnp.where(labels >= 0, labels, default_pool).astype(jnp.int32))


def _to(requests: Requests, pool: Int[Array, "*axes n"]) -> Route:
    never = jnp.full(pool.shape, jnp.inf)
    return Route(pool, jnp.zeros(pool.shape, bool), requests.isl, jnp.zeros_like(never), pool, never)


class PoolCounts(NamedTuple):
    """What the pools do at one moment.

    Attributes:
        active, waiting: Requests that run and that wait.
        slots: Slots of all replicas.
        replicas: Replicas.
    """

    active: Int[Array, " pool"]
    waiting: Int[Array, " pool"]
    slots: Int[Array, " pool"]
    replicas: Int[Array, " pool"]


def pool_under_load(route: Route, load: PoolCounts, holds: Bool[Array, " pool"], rules: Rules = SANE) -> Int[Array, ""]:
    """The pool of one request; the first of equally loaded pools.

    Args:
        route: Its own entry.
        load: Of the pools.
        holds: Whether each pool can serve the request.
        rules: `spill_by_requests` compares requests per replica, those that wait included, with the limit of
            spillover; `any_context` gives the least loaded pool a request whether or not it can serve it.
    """
    kind = route.spill_utilization.dtype
    active, waiting, slots, replicas = (x.astype(kind) for x in load)
    may = (slots > 0) & (holds | rules.any_context)
    load_per_slot = jnp.where(may, (active + waiting) / jnp.maximum(slots, 1.0), jnp.inf)
    pool = jnp.where(route.pool == LEAST_LOADED, jnp.argmin(load_per_slot).astype(jnp.int32), route.pool)
    in_use = active / jnp.maximum(slots, 1.0)
    if rules.spill_by_requests:
        in_use = (active + waiting) / jnp.maximum(replicas, 1.0)
    return jnp.where(in_use[pool] >= route.spill_utilization, route.spill_pool, pool)


class Balance(enum.IntEnum):
    """How a pool picks one of its replicas; one that is full is passed over while another is not."""

    FEWEST = 0  # fewest requests that run or wait; the first of equals
    ROUND_ROBIN = 1  # in turn
    RANDOM = 2
    TWO_CHOICES = 3  # the better of two random ones


class ReplicaLoad(NamedTuple):
    """What the replicas of all pools do at one moment.

    Attributes:
        pool: Pool of each replica; replicas of a pool lie side by side. The number of pools for one that is absent.
        place: Place of each replica in its pool, from zero.
        requests: Requests that run or wait.
        full: Whether it can neither start another one nor let it wait.
    """

    pool: Int[Array, " replica"]
    place: Int[Array, " replica"]
    requests: Int[Array, " replica"]
    full: Bool[Array, " replica"]


def replica_of(
    pool: Int[Array, ""],
    count: Int[Array, ""],
    load: ReplicaLoad,
    balance: Int[Array, ""] | int,
    turn: Int[Array, ""],
    draws: Float[Array, " two"],
) -> Int[Array, ""]:
    """The replica of `pool`, by its number among all, that takes a request.

    Args:
        pool, count: The pool and its replicas.
        load: Of the replicas of all pools.
        balance: A `Balance`; may be traced.
        turn: Place of the replica whose turn it is, for `ROUND_ROBIN`.
        draws: Two uniform draws in [0, 1).
    """
    first = _uniform(draws[0], count)
    second = first + 1 + _uniform(draws[1], count - 1)  # another one, where there is another
    second = jnp.where(second < count, second, second - count)
    worst = jnp.iinfo(jnp.int32).max // 4
    scores = (
        load.requests,
        _steps_from(turn, load.place, count),
        _steps_from(first, load.place, count),
        jnp.where((load.place == first) | (load.place == second), load.requests, worst),
    )
    score = jax.lax.select_n(jnp.asarray(balance, jnp.int32), *scores)
    score = score + jnp.where(load.full, worst, 0) + jnp.where(load.pool == pool, 0, 2 * worst)
    return least(score)[1]


def least(values: Array) -> tuple[Array, Int[Array, ""]]:
    """The least of a vector and its first place; two plain reductions are much faster on a CPU than `argmin`."""
    value = jnp.min(values)
    places = jnp.arange(values.size, dtype=jnp.int32)
    return value, jnp.min(jnp.where(values == value, places, values.size - 1))


def _steps_from(start: Int[Array, ""], place: Int[Array, " replica"], count: Int[Array, ""]) -> Int[Array, " replica"]:
    """Steps forward in a circle of `count` places."""
    return jnp.where(place >= start, place - start, place - start + count)


def _uniform(draw: Float[Array, ""], count: Int[Array, ""]) -> Int[Array, ""]:
    return jnp.floor(draw * count.astype(draw.dtype)).astype(jnp.int32)
