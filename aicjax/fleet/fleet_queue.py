# SPDX-License-Identifier: Apache-2.0
"""Pools of replicas under live routing, request by request: each replica a first-come-first-served queue of its slots.

One scan over arrivals and departures in the order of time. An arrival is routed by the load of that moment, and a slot
is free when its request really ends. Every request ends in exactly one state. Times are relative to a base that moves
along, and the stamp of an arrival is a whole number of units and a rest, so that a run may be of any length in float32.
Written for one run; `vmap` adds seeds, rates, fleets and policies.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from aicjax.fleet.fleet_event import after, next_event
from aicjax.fleet.fleet_state import Fleet, Replicas, State, Times, moved, places, stamps_of
from aicjax.fleet.routing import Balance, Route
from aicjax.fleet.rules import SANE, Rules

EVENTS = 128  # between two moves of the base


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
    width = replicas.pool.size
    members = replicas.pool[:, None] == places(pools)
    fleet = Fleet(
        route,
        times,
        replicas,
        jnp.sum(jnp.where(members, replicas.slots[:, None], 0), axis=0, dtype=jnp.int32),
        jnp.sum(members, axis=0, dtype=jnp.int32),
        draws,
        stamps_of(gaps_s),
        jnp.asarray(balance, jnp.int32),
        jnp.asarray(n if queue_limit is None else queue_limit, jnp.int32),
    )

    def step(state: State, _: None):
        event = next_event(state, fleet, rules)
        state = after(state, event, fleet)
        started = jnp.where(event.starts | event.calls, event.request, n)
        arrived = jnp.where(event.arrives, event.request, n)
        begun = (started, event.wait_s, event.service_s, state.active[event.replica])
        return state, (event.now_s, begun, (arrived, event.outcome, event.pool, event.replica))

    def steps(state: State, _: None):
        state, (now_s, *records) = jax.lax.scan(step, state, None, length=EVENTS)
        return moved(state, now_s[-1], fleet.stamps), records

    zero, none = jnp.zeros((), jnp.int32), jnp.zeros(width, jnp.int32)
    free = jnp.full((width, slots_width), jnp.inf, gaps_s.dtype)
    behind, per_pool = jnp.zeros(n + 1, jnp.int32), jnp.zeros(pools, jnp.int32)
    empty = State(zero, zero, free, free[:, 0], none, none, none, none, none, behind, per_pool, per_pool, per_pool)
    # Every request arrives once and leaves at most once.
    records = jax.lax.scan(steps, empty, None, length=-(-2 * n // EVENTS))[1]
    (started, *at_start), (arrived, *at_arrival) = jax.tree.map(jnp.ravel, records)
    blanks = (jnp.full(n, jnp.nan, gaps_s.dtype), jnp.full(n, jnp.nan, gaps_s.dtype), jnp.zeros(n, jnp.int32))
    wait_s, service_s, running = (
        blank.at[started].set(values, mode="drop") for blank, values in zip(blanks, at_start, strict=True)
    )
    outcome, pool, replica = (blanks[2].at[arrived].set(values, mode="drop") for values in at_arrival)
    return FleetRun(outcome, pool, replica, wait_s, service_s, running)
