# SPDX-License-Identifier: Apache-2.0
"""Pools of replicas under live routing, request by request: each replica a first-come-first-served queue of its slots.

One scan over arrivals and departures in the order of time. An arrival is routed by the load of that moment, and a slot
is free when its request really ends. Every request ends in exactly one state. Times are relative to a base that moves
along, and the stamp of an arrival is a whole number of units and a rest, so that a run may be of any length in float32.
Written for one run; `vmap` adds seeds, rates, fleets and policies.
"""

import enum
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aicjax.fleet.routing import Balance, PoolLoad, ReplicaLoad, Route, least, pool_under_load, replica_of
from aicjax.fleet.rules import SANE, Rules

EVENTS = 128  # between two moves of the base
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


class Times(NamedTuple):
    """How long requests hold a slot.

    Attributes:
        service_s: In each pool [s]; not finite for a request that the pool cannot serve.
        compressed_s: In the pool of the route with the prompt as shortened [s]; read where a route shortens.
    """

    service_s: Float[Array, "n pool"]
    compressed_s: Float[Array, " n"]


class FleetRun(NamedTuple):
    """What became of each request, in order of arrival.

    Attributes:
        outcome: An `Outcome`.
        pool: Pool that it was sent to.
        replica: Number of the replica among all that took it; that of the refusing pool's first otherwise.
        wait_s: Time from its arrival to the start of its prompt, the delay of the route included [s]; NaN unless
            completed.
        service_s: Time from then until it ends and its slot is free [s]; NaN unless completed.
        running: Requests that its replica ran when it started, itself included; 0 unless completed.
    """

    outcome: Int[Array, " n"]
    pool: Int[Array, " n"]
    replica: Int[Array, " n"]
    wait_s: Float[Array, " n"]
    service_s: Float[Array, " n"]
    running: Int[Array, " n"]


def replicas_of(counts: Int[Array, " pool"], slots: Int[Array, " pool"], width: int) -> Replicas:
    """The replicas of pools with `counts` replicas of `slots` slots each; `width` (static) is the most of all pools."""
    last = jnp.cumsum(counts).astype(jnp.int32)
    number = jnp.arange(width, dtype=jnp.int32)
    pool = jnp.searchsorted(last, number, side="right").astype(jnp.int32)
    before = jnp.append(jnp.zeros(1, jnp.int32), last)
    return Replicas(pool, number - before[pool], jnp.append(slots, 0)[pool].astype(jnp.int32))


class _State(NamedTuple):
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


def fleet_run(
    gaps_s: Float[Array, " n"],
    route: Route,
    times: Times,
    replicas: Replicas,
    draws: Float[Array, "n two"],
    *,
    slots_width: int,
    balance: Int[Array, ""] | int = Balance.FEWEST,
    queue_limit: Int[Array, ""] | int | None = None,
    rules: Rules = SANE,
) -> FleetRun:
    """A run of a fleet from empty until its last request has ended.

    A request whose prompt is being shortened may hold a slot, but its service begins when the prompt is ready.

    Args:
        gaps_s: Time before each arrival [s]; >= 0.
        route: Where the requests go.
        times: How long they hold a slot.
        replicas: The replicas.
        draws: Uniform draws in [0, 1) for load balance.
        slots_width: Static: the most slots of any replica.
        balance: Load balance inside pools, a `Balance`.
        queue_limit: Requests that may wait at a replica; no limit where None.
        rules: `spill_by_requests` as in `pool_under_load`.
    """
    n, pools = times.service_s.shape
    limit = n if queue_limit is None else queue_limit
    stamps = _stamps(gaps_s)
    width = replicas.pool.size
    members = replicas.pool[:, None] == jnp.arange(pools)
    pool_slots = jnp.sum(jnp.where(members, replicas.slots[:, None], 0), axis=0, dtype=jnp.int32)
    pool_replicas = jnp.sum(members, axis=0, dtype=jnp.int32)
    last = n - 1

    def routed(state: _State):
        """Pool and replica of the next arrival, and whether its pool can serve it at all."""
        i = jnp.minimum(state.arrivals, last)
        own = jax.tree.map(lambda values: values[i], route)
        pool_load = PoolLoad(state.running, state.queued, pool_slots, pool_replicas)
        pool = pool_under_load(own, pool_load, jnp.isfinite(times.service_s[i]), rules)
        load = ReplicaLoad(replicas.pool, replicas.place, state.active + state.waiting, state.waiting >= limit)
        replica = replica_of(pool, pool_replicas[pool], load, balance, state.turn[pool], draws[i])
        return pool, replica, jnp.isfinite(_service_s(i, pool)) & (pool_slots[pool] > 0)

    def _service_s(i, pool):
        shortened = route.compressed[i] & (pool == route.pool[i])
        return jnp.where(shortened, times.compressed_s[i], times.service_s[i, pool])

    def event(state: _State, _):
        arrival_s = jnp.where(state.arrivals < n, stamps.since(state.arrivals, state.base), jnp.inf)
        end_s, ending = least(state.next_s)
        arrives = arrival_s < end_s
        now_s = jnp.minimum(arrival_s, end_s)
        leaves = ~arrives & jnp.isfinite(end_s)
        pool, taker, possible = routed(state)
        k = jnp.where(arrives, taker, ending)
        has_slot = state.active[k] < replicas.slots[k]
        starts = arrives & possible & has_slot
        queues = arrives & possible & ~has_slot & (state.waiting[k] < limit)
        calls = leaves & (state.waiting[k] > 0)
        request = jnp.minimum(jnp.where(arrives, state.arrivals, state.head[k]), last)
        begins = starts | calls
        where = jnp.where(arrives, pool, jnp.minimum(replicas.pool[k], pools - 1))
        delay_s = jnp.where(route.compressed[request] & (where == route.pool[request]), route.delay_s[request], 0.0)
        waited_s = jnp.maximum(now_s - stamps.since(request, state.base), 0.0)
        wait_s = jnp.maximum(waited_s, delay_s)
        service_s = _service_s(request, where)
        # Who leaves gives its slot to the request that it calls, else to the last one, so that free slots lie behind.
        row, slot, running = state.ends_s[k], jnp.arange(slots_width), state.active[k]
        own_end_s = now_s + (wait_s - waited_s) + service_s
        last_end_s = row[jnp.maximum(running - 1, 0)]
        row = jnp.where((slot == running) & starts | (slot == state.next_slot[k]) & calls, own_end_s, row)
        row = jnp.where((slot == state.next_slot[k]) & leaves & ~calls, last_end_s, row)
        row = jnp.where((slot == running - 1) & leaves & ~calls, jnp.inf, row)
        first_s, first_slot = least(row)
        here = jnp.arange(width) == k
        more_active, more_waiting = _one(starts) - _one(leaves & ~calls), _one(queues) - _one(calls)
        active = state.active + jnp.where(here, more_active, 0)
        here_pool = jnp.arange(pools) == where
        turn = jnp.where(replicas.place[k] + 1 < pool_replicas[pool], replicas.place[k] + 1, 0)
        alone = queues & (state.waiting[k] == 0)
        behind = state.behind.at[jnp.where(queues & ~alone, state.tail[k], n)].set(request)
        head_of_k = jnp.where(calls, behind[request], jnp.where(alone, request, state.head[k]))
        deals = arrives & possible & (starts | queues)
        state = _State(
            arrivals=state.arrivals + _one(arrives),
            base=state.base,
            ends_s=state.ends_s.at[k].set(row),
            next_s=jnp.where(here, first_s, state.next_s),
            next_slot=jnp.where(here, first_slot, state.next_slot),
            active=active,
            waiting=state.waiting + jnp.where(here, more_waiting, 0),
            head=jnp.where(here, head_of_k, state.head),
            tail=jnp.where(here & queues, request, state.tail),
            behind=behind,
            running=state.running + jnp.where(here_pool, more_active, 0),
            queued=state.queued + jnp.where(here_pool, more_waiting, 0),
            turn=jnp.where(deals & here_pool, turn, state.turn),
        )
        outcome = jnp.where(possible, jnp.where(deals, Outcome.COMPLETED, Outcome.REJECTED), Outcome.REFUSED)
        begun = (jnp.where(begins, request, n), wait_s, service_s, active[k])
        arrived = (jnp.where(arrives, request, n), outcome, pool, k)
        return state, (now_s, begun, arrived)

    def events(state: _State, _):
        state, (now_s, *records) = jax.lax.scan(event, state, None, length=EVENTS)
        moved = jnp.floor(jnp.where(jnp.isfinite(now_s[-1]), now_s[-1], 0.0) / stamps.unit_s)
        moved_s = moved * stamps.unit_s
        base = state.base + moved.astype(jnp.int32)
        return state._replace(base=base, ends_s=state.ends_s - moved_s, next_s=state.next_s - moved_s), records

    zero, none = jnp.zeros((), jnp.int32), jnp.zeros(width, jnp.int32)
    idle = jnp.full((width, slots_width), jnp.inf, gaps_s.dtype)
    behind, per_pool = jnp.zeros(n + 1, jnp.int32), jnp.zeros(pools, jnp.int32)
    start = _State(zero, zero, idle, idle[:, 0], none, none, none, none, none, behind, per_pool, per_pool, per_pool)
    records = jax.lax.scan(events, start, None, length=-(-2 * n // EVENTS))[1]
    (begun, *at_start), (arrived, *at_arrival) = jax.tree.map(jnp.ravel, records)
    nan = jnp.full(n, jnp.nan, gaps_s.dtype)
    empty = jnp.zeros(n, jnp.int32)
    wait_s, service_s, running = (
        blank.at[begun].set(values, mode="drop") for blank, values in zip((nan, nan, empty), at_start, strict=True)
    )
    outcome, pool, replica = (empty.at[arrived].set(values, mode="drop") for values in at_arrival)
    return FleetRun(outcome, pool, replica, wait_s, service_s, running)


def _one(event: Bool[Array, ""]) -> Int[Array, ""]:
    return event.astype(jnp.int32)


class _Stamps(NamedTuple):
    """Arrival times as whole units and a rest: differences keep their digits however late they are."""

    units: Int[Array, " n"]
    rest_s: Float[Array, " n"]
    unit_s: Float[Array, ""]

    def since(self, request: Int[Array, ""], base: Int[Array, ""]) -> Float[Array, ""]:
        """Time of an arrival [s], relative to the base."""
        return (self.units[request] - base).astype(self.rest_s.dtype) * self.unit_s + self.rest_s[request]


def _stamps(gaps_s: Float[Array, " n"]) -> _Stamps:
    mean_s = jnp.mean(gaps_s)
    unit_s = jnp.where(mean_s > 0.0, UNIT_GAPS * mean_s, 1.0)

    def stamp(before, gap_s):
        units, rest_s = before
        rest_s = rest_s + gap_s
        whole = jnp.floor(rest_s / unit_s)
        after = (units + whole.astype(jnp.int32), jnp.maximum(rest_s - whole * unit_s, 0.0))
        return after, after

    start = (jnp.zeros((), jnp.int32), jnp.zeros((), gaps_s.dtype))
    return _Stamps(*jax.lax.scan(stamp, start, gaps_s)[1], unit_s)
