# SPDX-License-Identifier: Apache-2.0
"""Continuous batching step by step, for many fleets at once: KV blocks and slots, chunked prefill, preemption.

All fleets go through one loop, each on its own clock. An iteration of a fleet takes at most one arrival and at most one
admission or preemption, then runs a step if nothing else is left to do at this moment. Steps in which nothing but
contexts grow are run together: their times are a line, which has a closed sum.

Requests start in order of arrival. The newest request is preempted when blocks run out, and comes back before any that
has not started; so the requests that run are always the oldest, and at most one prompt is incomplete. The oldest of all
is never preempted, since it fits alone, and a preempted one cannot come back before another has ended.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from aicjax._results import InputError
from aicjax.fleet.clock import Clock, arrival_clocks, clock_at, since_s, where
from aicjax.fleet.step_admission import admission
from aicjax.fleet.step_advance import advanced
from aicjax.fleet.step_run import NO_LIMIT, RequestState, StepLimits, StepLoad, StepRun
from aicjax.fleet.step_state import Case, Replica, blocks, clock_of, finished, initial, one
from aicjax.fleet.step_times import TABLE_AXES, StepTimes


def simulate_steps(
    times: StepTimes,
    limits: StepLimits,
    load: StepLoad,
    *,
    horizon_s: float | None = None,
    width: int | None = None,
    places: int | None = None,
    jumps: bool = True,
) -> StepRun:
    """Serves the requests of many fleets, each by one replica.

    Args:
        times: Step times; each leaf with a leading fleet axis or without.
        limits: Limits of the replicas; likewise.
        load: Requests.
        horizon_s: Time after which no step begins [s]; None runs until all is done.
        width: Static: most slots of any replica; needed where `limits` are traced.
        places: Static: most requests that wait; needed where `limits` are traced and a queue is capped.
        jumps: Whether steps without events are run together. Static.

    Raises:
        InputError: Limits under which nothing would run, or a `width` or `places` that is too small for them.
    """
    limits = jax.tree.map(_counts, limits)
    width = int(np.max(np.asarray(limits.slots))) if width is None else width
    requests = load.isl.shape[-1]
    places = min(requests, int(np.max(np.asarray(limits.queue_cap)))) if places is None else places
    _check(limits, width, places, requests)
    horizon = jnp.asarray(NO_LIMIT if horizon_s is None else horizon_s, load.gaps_s.dtype)
    return _simulate(times, limits, load, horizon, width=width, places=places, jumps=jumps)


def _counts(leaf: Any) -> Array:
    """A limit as an array: 32 bits for whole numbers."""
    leaf = jnp.asarray(leaf)
    return leaf if leaf.dtype == bool else leaf.astype(jnp.int32)


def _check(limits: StepLimits, width: int, places: int, requests: int) -> None:
    """Refuses limits under which a step may have no room, or that arrays do not hold, where they are not traced."""
    try:
        limits = jax.tree.map(np.asarray, limits)
    except jax.errors.TracerArrayConversionError:
        return
    for name in ("slots", "queue_cap", "block_tokens"):
        if np.min(getattr(limits, name)) < 1:
            raise InputError(name, int(np.min(getattr(limits, name))), "1 or more")
    if np.min(limits.step_tokens - limits.slots) < 1:
        raise InputError(
            "step_tokens", int(np.min(limits.step_tokens)), "more than slots: a step must keep room for a prompt"
        )
    for name, value, least in (
        ("width", width, limits.slots),
        ("places", places, np.minimum(limits.queue_cap, requests)),
    ):
        if value < np.max(least):
            raise InputError(name, value, f"{int(np.max(least))} or more, for these limits")


@functools.partial(jax.jit, static_argnames=("width", "places", "jumps"))
def _simulate(
    times: StepTimes, limits: StepLimits, load: StepLoad, horizon_s: Array, *, width: int, places: int, jumps: bool
) -> StepRun:
    """All fleets in one loop, until the last has nothing left to do."""
    arrivals, horizon = arrival_clocks(load.gaps_s), clock_at(horizon_s)
    axes = _fleet_axes(times, TABLE_AXES), _fleet_axes(limits, jax.tree.map(lambda _: 0, limits))

    def iterate(times: StepTimes, limits: StepLimits, case: Case, replica: Replica) -> Replica:
        return _iteration(times, limits, case, horizon, jumps, replica)

    case = Case(load, arrivals, *jax.vmap(_work, (axes[1], 0))(limits, load))
    start = jax.vmap(lambda load, arrivals: initial(load, arrivals, width, places))(load, arrivals)
    over_fleets = jax.vmap(iterate, (*axes, 0, 0))
    end = jax.lax.while_loop(
        lambda replicas: jnp.any(replicas.active), lambda replicas: over_fleets(times, limits, case, replicas), start
    )
    return jax.vmap(finished, (0, axes[1], 0, 0))(end, limits, load, case.most_iterations)


def _fleet_axes(tree: Any, ranks: Any) -> Any:
    """Axis of the fleets of each leaf: none where it has no more axes than it has for one fleet."""
    return jax.tree.map(lambda leaf, rank: 0 if jnp.ndim(leaf) > rank else None, tree, ranks)


def _work(limits: StepLimits, load: StepLoad) -> tuple[Array, Array]:
    """Requests that can never run, and a bound on iterations.

    Of R requests on S slots no more than S are preempted between two that end, so P <= S (R + 1) in all. An iteration
    takes an arrival (R), an admission (R + P) or a preemption (P), or runs a step: one that advances the oldest
    answer (sum of osl), or one that only fills prompts, of which each admission has as many as its tokens need.
    """
    longest = load.isl + load.osl - 1
    refused = blocks(limits, longest, jnp.ones_like(longest)) > limits.kv_blocks
    refused |= load.isl + load.osl > limits.max_tokens
    slots, count, real = limits.slots, float(load.isl.shape[0]), jnp.result_type(float)
    preempted = slots.astype(real) * (count + 1.0)
    spare = (limits.step_tokens - slots).astype(real)
    prompts = jnp.ceil(jnp.max(longest).astype(real) / spare)
    answers = jnp.sum(load.osl.astype(real))
    most = 1.0 + 2.0 * count + 2.0 * preempted + answers + (count + preempted) * prompts
    return refused, jnp.minimum(most, float(NO_LIMIT)).astype(jnp.int32)


def _iteration(
    times: StepTimes, limits: StepLimits, case: Case, horizon: Clock, jumps: bool, replica: Replica
) -> Replica:
    """An arrival, an admission or a preemption, and a step, each where it is due.

    Requests that come at once all see the same queue where it is capped: none starts before the last of them.
    """
    replica, more_arrive = _arrival(limits, case, horizon, replica)
    runs_on = replica.active & (since_s(horizon, replica.clock) > 0)
    waits = more_arrive & (limits.queue_cap < case.load.isl.shape[0])
    replica, more_start = admission(times, limits, case, replica, runs_on & ~waits)
    goes = runs_on & ~more_arrive & ~more_start & (replica.running > 0)
    replica = advanced(times, limits, case, horizon, jumps, replica, goes)
    totals = replica.totals._replace(iterations=replica.totals.iterations + one(replica.active))
    left = (replica.arrived < case.load.isl.shape[0]) | (replica.head < replica.tail)
    left |= replica.running + replica.preempted > 0
    in_time = (since_s(horizon, replica.clock) > 0) | _due(case, horizon, replica, replica.clock)
    within = totals.iterations < case.most_iterations
    return replica._replace(totals=totals, active=replica.active & left & in_time & within)


def _due(case: Case, horizon: Clock, replica: Replica, clock: Clock) -> Array:
    """Whether the next request has come, at a time up to the horizon."""
    count = case.load.isl.shape[0]
    beyond = since_s(clock, horizon) >= 0
    comes = clock_of(case.arrivals, jnp.minimum(replica.arrived, count - 1))
    stated = since_s(comes, where(beyond, horizon, clock)) <= 0
    return (replica.arrived < count) & jnp.where(case.load.clients > 0, (replica.owed > 0) & ~beyond, stated)


def _arrival(limits: StepLimits, case: Case, horizon: Clock, replica: Replica) -> tuple[Replica, Array]:
    """Takes the next request if it has come, and says whether another one has. A replica without requests waits."""
    load, count, places = case.load, case.load.isl.shape[0], replica.queue.shape[0]
    closed, at = load.clients > 0, replica.arrived
    waiting = replica.tail - replica.head
    index = jnp.minimum(at, count - 1)
    comes = clock_of(case.arrivals, index)
    empty = replica.active & (at < count) & (replica.running + replica.preempted + waiting == 0)
    idle, resent = empty & ~closed, empty & closed & (replica.owed == 0)
    replica = replica._replace(
        owed=jnp.where(resent, replica.late, replica.owed),
        sent=where(resent, replica.clock, replica.sent),
        late=jnp.where(resent, 0, replica.late),
    )
    until = where(since_s(comes, horizon) > 0, horizon, comes)
    clock = where(idle & (since_s(until, replica.clock) > 0), until, replica.clock)

    taken, refused = replica.active & _due(case, horizon, replica, clock), case.refused[index]
    joins = taken & ~refused & (waiting < limits.queue_cap)
    moment = where(closed, replica.sent, comes)
    state = jnp.where(refused, jnp.int32(RequestState.REFUSED), jnp.int32(RequestState.REJECTED))
    to, turned_away = jnp.where(taken, at, count), jnp.where(taken & ~joins, at, count)
    records = replica.records._replace(
        state=replica.records.state.at[turned_away].set(state, mode="drop"),
        whole=replica.records.whole.at[to].set(moment.whole, mode="drop"),
        part=replica.records.part.at[to].set(moment.part, mode="drop"),
    )
    owed = replica.owed - one(joins & closed)
    place = jnp.where(joins, replica.tail % places, places)
    arrived = replica._replace(
        clock=clock,
        arrived=at + one(taken),
        owed=owed,
        queue=replica.queue.at[place].set(at, mode="drop"),
        tail=replica.tail + one(joins),
        records=records,
    )
    return arrived, replica.active & _due(case, horizon, arrived, clock)
