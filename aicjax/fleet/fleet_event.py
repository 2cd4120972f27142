# SPDX-License-Identifier: Apache-2.0
"""One event in a fleet: what happens next, and the moment after it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aicjax.fleet.fleet_state import Fleet, Outcome, State, places
from aicjax.fleet.routing import PoolCounts, ReplicaLoad, least, pool_under_load, replica_of
from aicjax.fleet.rules import Rules


class Event(NamedTuple):
    """What happens next: an arrival, or the end of a request; nothing once all have ended.

    Attributes:
        now_s: When, relative to the base [s]; infinite for nothing.
        arrives, leaves: Which of the two.
        starts, queues: What the arrival does: it starts at once, or it waits.
        calls: Whether the slot of the request that leaves goes to one that waits.
        replica, pool: Where.
        request: The one that arrives, or that is called.
        outcome: Of an arrival, if it is served at all.
        wait_s, service_s: Of the request if it starts now [s].
        end_s: End of the request if it starts now, relative to the base [s].
    """

    now_s: Float[Array, ""]
    arrives: Bool[Array, ""]
    leaves: Bool[Array, ""]
    starts: Bool[Array, ""]
    queues: Bool[Array, ""]
    calls: Bool[Array, ""]
    replica: Int[Array, ""]
    pool: Int[Array, ""]
    request: Int[Array, ""]
    outcome: Int[Array, ""]
    wait_s: Float[Array, ""]
    service_s: Float[Array, ""]
    end_s: Float[Array, ""]


def next_event(state: State, fleet: Fleet, rules: Rules) -> Event:
    """The next arrival or end, whichever comes first, with what it leads to."""
    last = fleet.draws.shape[0] - 1
    arrival_s = jnp.where(state.arrivals <= last, fleet.stamps.since(state.arrivals, state.base), jnp.inf)
    leaving_s, leaver = least(state.next_s)
    arrives = arrival_s < leaving_s  # a slot that is freed at this moment is free
    leaves = ~arrives & jnp.isfinite(leaving_s)
    now_s = jnp.minimum(arrival_s, leaving_s)
    arrival = jnp.minimum(state.arrivals, last)
    chosen, taker = _chosen(state, arrival, fleet, rules)
    possible = jnp.isfinite(fleet.service_s(arrival, chosen)) & (fleet.pool_slots[chosen] > 0)
    replica = jnp.where(arrives, taker, leaver)
    pool = jnp.where(arrives, chosen, fleet.replicas.pool[replica])
    waiting = state.waiting[replica]
    has_slot = state.active[replica] < fleet.replicas.slots[replica]
    starts = arrives & possible & has_slot
    queues = arrives & possible & ~has_slot & (waiting < fleet.limit)
    request = jnp.where(arrives, arrival, state.head[replica])
    delay_s = jnp.where(fleet.shortens(request, pool), fleet.route.delay_s[request], 0.0)
    waited_s = jnp.maximum(now_s - fleet.stamps.since(request, state.base), 0.0)
    service_s = fleet.service_s(request, pool)
    accepted = jnp.where(starts | queues, Outcome.COMPLETED, Outcome.REJECTED)
    return Event(
        now_s=now_s,
        arrives=arrives,
        leaves=leaves,
        starts=starts,
        queues=queues,
        calls=leaves & (waiting > 0),
        replica=replica,
        pool=pool,
        request=request,
        outcome=jnp.where(possible, accepted, Outcome.REFUSED),
        wait_s=jnp.maximum(waited_s, delay_s),
        service_s=service_s,
        end_s=now_s + jnp.maximum(delay_s - waited_s, 0.0) + service_s,
    )


def _chosen(state: State, arrival: Int[Array, ""], fleet: Fleet, rules: Rules) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Pool and replica of an arrival."""
    route = jax.tree.map(lambda values: values[arrival], fleet.route)
    pool_load = PoolCounts(state.running, state.queued, fleet.pool_slots, fleet.pool_replicas)
    pool = pool_under_load(route, pool_load, jnp.isfinite(fleet.times.service_s[arrival]), rules)
    replicas = fleet.replicas
    full = (state.active >= replicas.slots) & (state.waiting >= fleet.limit)
    load = ReplicaLoad(replicas.pool, replicas.place, state.active + state.waiting, full)
    count, turn = fleet.pool_replicas[pool], state.turn[pool]
    return pool, replica_of(pool, count, load, fleet.balance, turn, fleet.draws[arrival])


def after(state: State, event: Event, fleet: Fleet) -> State:
    """The moment after an event."""
    k, frees = event.replica, event.leaves & ~event.calls
    row, slot = state.ends_s[k], places(state.ends_s.shape[1])
    running, leaving = state.active[k], state.next_slot[k]
    # Who leaves gives its slot to the request that it calls, else to the last one, so that free slots lie behind.
    last_s = row[jnp.maximum(running - 1, 0)]
    row = jnp.where((slot == running) & event.starts | (slot == leaving) & event.calls, event.end_s, row)
    row = jnp.where((slot == leaving) & frees, last_s, row)
    row = jnp.where((slot == running - 1) & frees, jnp.inf, row)
    next_s, next_slot = least(row)
    here, here_pool = places(state.active.size) == k, places(state.turn.size) == event.pool
    more_active = event.starts.astype(jnp.int32) - frees.astype(jnp.int32)
    more_waiting = event.queues.astype(jnp.int32) - event.calls.astype(jnp.int32)
    alone = event.queues & (state.waiting[k] == 0)
    nobody = state.behind.size - 1
    behind = state.behind.at[jnp.where(event.queues & ~alone, state.tail[k], nobody)].set(event.request)
    called = jnp.where(event.calls, behind[event.request], state.head[k])
    place = fleet.replicas.place[k] + 1
    turn = jnp.where(place < fleet.pool_replicas[event.pool], place, 0)
    return State(
        arrivals=state.arrivals + event.arrives.astype(jnp.int32),
        base=state.base,
        ends_s=state.ends_s.at[k].set(row),
        next_s=jnp.where(here, next_s, state.next_s),
        next_slot=jnp.where(here, next_slot, state.next_slot),
        active=state.active + jnp.where(here, more_active, 0),
        waiting=state.waiting + jnp.where(here, more_waiting, 0),
        head=jnp.where(here, jnp.where(alone, event.request, called), state.head),
        tail=jnp.where(here & event.queues, event.request, state.tail),
        behind=behind,
        running=state.running + jnp.where(here_pool, more_active, 0),
        queued=state.queued + jnp.where(here_pool, more_waiting, 0),
        turn=jnp.where(here_pool & (event.starts | event.queues), turn, state.turn),
    )
