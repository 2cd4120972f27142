# SPDX-License-Identifier: Apache-2.0
"""Replicas of pools with what they do at one moment, and arrival times that keep their digits."""

import enum
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aicjax.fleet.routing import Route

UNIT_GAPS = 64  # mean gaps in a unit of time stamps


class Outcome(enum.IntEnum):
    """How a request ends."""

    COMPLETED = 0
    REJECTED = 1  # every queue that it could join was full
    REFUSED = 2  # longer than its pool's context, or its pool has no slot


class Replicas(NamedTuple):
    """The replicas of all pools, those of a pool side by side.

    Attributes:
        pool: Pool of each; the number of pools for one that is absent.
        place: Place of each in its pool, from zero.
        slots: Slots of each.
    """

    pool: Int[Array, " replica"]
    place: Int[Array, " replica"]
    slots: Int[Array, " replica"]


def replicas_of(counts: Int[Array, " pool"], slots: Int[Array, " pool"], width: int) -> Replicas:
    """The replicas of pools with `counts` replicas of `slots` slots each; `width` (static) is the most of all pools."""
    last = jnp.cumsum(counts).astype(jnp.int32)
    number = jnp.arange(width, dtype=jnp.int32)
    pool = jnp.searchsorted(last, number, side="right").astype(jnp.int32)
    before = jnp.append(jnp.zeros(1, jnp.int32), last)
    return Replicas(pool, number - before[pool], jnp.append(slots, 0)[pool].astype(jnp.int32))


class Times(NamedTuple):
    """How long requests hold a slot.

    Attributes:
        service_s: In each pool [s]; not finite for a request that the pool cannot serve.
        compressed_s: In the pool of the route with the prompt as shortened [s]; read where a route shortens.
    """

    service_s: Float[Array, "n pool"]
    compressed_s: Float[Array, " n"]


class Stamps(NamedTuple):
    """Arrival times as whole units and a rest: differences keep their digits however late they are."""

    units: Int[Array, " n"]
    rest_s: Float[Array, " n"]
    unit_s: Float[Array, ""]

    def since(self, request: Int[Array, ""], base: Int[Array, ""]) -> Float[Array, ""]:
        """Time of an arrival [s], relative to the base."""
        return (self.units[request] - base).astype(self.rest_s.dtype) * self.unit_s + self.rest_s[request]


def stamps_of(gaps_s: Float[Array, " n"]) -> Stamps:
    """The stamps of a stream of arrivals."""
    mean_s = jnp.mean(gaps_s)
    unit_s = jnp.where(mean_s > 0.0, UNIT_GAPS * mean_s, 1.0)

    def stamp(before, gap_s):
        units, rest_s = before
        rest_s = rest_s + gap_s
        whole = jnp.floor(rest_s / unit_s)
        after = (units + whole.astype(jnp.int32), jnp.maximum(rest_s - whole * unit_s, 0.0))
        return after, after

    start = (jnp.zeros((), jnp.int32), jnp.zeros((), gaps_s.dtype))
    return Stamps(*jax.lax.scan(stamp, start, gaps_s)[1], unit_s)


class Fleet(NamedTuple):
    """What does not change in a run: the arguments of `fleet_run`, and slots and replicas of each pool."""

    route: Route
    times: Times
    replicas: Replicas
    pool_slots: Int[Array, " pool"]
    pool_replicas: Int[Array, " pool"]
    draws: Float[Array, "n two"]
    stamps: Stamps
    balance: Int[Array, ""]
    limit: Int[Array, ""]

    def shortens(self, request: Int[Array, ""], pool: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the pool gets the request with a shorter prompt."""
        return self.route.compressed[request] & (pool == self.route.pool[request])

    def service_s(self, request: Int[Array, ""], pool: Int[Array, ""]) -> Float[Array, ""]:
        """Time of the request in the pool [s]."""
        compressed_s, own_s = self.times.compressed_s[request], self.times.service_s[request, pool]
        return jnp.where(self.shortens(request, pool), compressed_s, own_s)


class State(NamedTuple):
    """A moment of a run: times [s] are relative to the base.

    Attributes:
        arrivals: Requests that have arrived.
        base: Units from the start of the run to the base.
        ends_s: End of each running request, in the first slots of its replica; infinite for a free slot.
        next_s, next_slot: First end of each replica, and its slot.
        active, waiting: Requests of each replica.
        head, tail: First and last of those that wait at each replica.
        behind: The request that waits behind each other one.
        running, queued: Requests of each pool that run and that wait.
        turn: Place of the replica whose turn it is in each pool.
    """

    arrivals: Int[Array, ""]
    base: Int[Array, ""]
    ends_s: Float[Array, "replica slot"]
    next_s: Float[Array, " replica"]
    next_slot: Int[Array, " replica"]
    active: Int[Array, " replica"]
    waiting: Int[Array, " replica"]
    head: Int[Array, " replica"]
    tail: Int[Array, " replica"]
    behind: Int[Array, " n_and_one"]
    running: Int[Array, " pool"]
    queued: Int[Array, " pool"]
    turn: Int[Array, " pool"]


def moved(state: State, now_s: Float[Array, ""], stamps: Stamps) -> State:
    """The same moment with the base moved to the last whole unit."""
    units = jnp.floor(jnp.where(jnp.isfinite(now_s), now_s, 0.0) / stamps.unit_s)
    moved_s = units * stamps.unit_s
    base = state.base + units.astype(jnp.int32)
    return state._replace(base=base, ends_s=state.ends_s - moved_s, next_s=state.next_s - moved_s)


def places(count: int) -> Int[Array, " place"]:
    """Zero to `count - 1`, in 32 bits whatever the dtype of the run."""
    return jnp.arange(count, dtype=jnp.int32)
