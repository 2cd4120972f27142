# SPDX-License-Identifier: Apache-2.0
"""The state of a step-level simulation of one replica, and what is read off it."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aicjax.fleet.clock import Clock, clock_at, seconds
from aicjax.fleet.step_run import RequestState, StepLimits, StepLoad, StepRun
from aicjax.fleet.step_times import PromptPart, no_prompts

FREE, DECODE, PROMPT, PREEMPTED = range(4)  # what a slot is in
NONE = 2**31 - 1  # beyond every request


class Slots(NamedTuple):
    """The requests that have been admitted; a free slot still holds what became of its last one.

    Attributes:
        phase: `FREE`, `DECODE`, `PROMPT` (its prompt is in the coming step) or `PREEMPTED`.
        request: Number of the request; -1 before the first.
        tokens: Tokens of its KV cache after its next step; that of a prompt once it is whole.
        left: Output tokens to come.
        whole, part: Time of its arrival, as in `Clock`.
        ttft_s: Time to its first token; negative before.
        latency_s: Time to its last token.
        preemptions: How often it was preempted.
    """

    phase: Int[Array, " slot"]
    request: Int[Array, " slot"]
    tokens: Int[Array, " slot"]
    left: Int[Array, " slot"]
    whole: Int[Array, " slot"]
    part: Float[Array, " slot"]
    ttft_s: Float[Array, " slot"]
    latency_s: Float[Array, " slot"]
    preemptions: Int[Array, " slot"]


class Records(NamedTuple):
    """What is known of each request once it has left its slot, and its time of arrival once it has come.

    Attributes as in `Slots` and `StepRun`.
    """

    state: Int[Array, " request"]
    whole: Int[Array, " request"]
    part: Float[Array, " request"]
    ttft_s: Float[Array, " request"]
    latency_s: Float[Array, " request"]
    left: Int[Array, " request"]
    preemptions: Int[Array, " request"]


class Totals(NamedTuple):
    """Sums of a run; see `StepRun`."""

    steps: Int[Array, ""]
    prompt_tokens: Int[Array, ""]
    kv_peak: Int[Array, ""]
    busy: Clock
    iterations: Int[Array, ""]


class Replica(NamedTuple):
    """One replica between two events.

    Attributes:
        clock: Now.
        arrived: Requests that have come.
        owed: Requests that clients of a closed loop have sent at `sent`; all of them come before the next step.
        late: Requests that they send once the next step has begun.
        queue: Ring of the requests that wait to start; `head` have left it and `tail` have joined it.
        running: Slots in `DECODE` or `PROMPT`; `preempted` those in `PREEMPTED`.
        part: Prompts of the coming step.
        filling: Slot whose prompt the coming step leaves incomplete; the number of slots if there is none.
        filled: Tokens of that prompt in the cache after the coming step.
        active: Whether something is left to do.
    """

    clock: Clock
    arrived: Int[Array, ""]
    owed: Int[Array, ""]
    sent: Clock
    late: Int[Array, ""]
    queue: Int[Array, " place"]
    head: Int[Array, ""]
    tail: Int[Array, ""]
    running: Int[Array, ""]
    preempted: Int[Array, ""]
    part: PromptPart
    filling: Int[Array, ""]
    filled: Int[Array, ""]
    slots: Slots
    records: Records
    totals: Totals
    active: Bool[Array, ""]


class Case(NamedTuple):
    """What a replica has to do.

    Attributes:
        load: Its requests.
        arrivals: When they come.
        refused: Which of them can never run [request].
        most_iterations: Bound on the iterations that they take.
    """

    load: StepLoad
    arrivals: Clock
    refused: Bool[Array, " request"]
    most_iterations: Array


def initial(load: StepLoad, arrivals: Clock, width: int, places: int) -> Replica:
    """A replica without requests.

    Args:
        load: Its requests; no fleet axis.
        arrivals: Times of their arrival.
        width: Slots that there may be.
        places: Requests that may wait.
    """
    dtype, count = load.gaps_s.dtype, load.isl.shape[0]
    zero, start = jnp.int32(0), clock_at(jnp.zeros((), dtype))
    whole = jnp.zeros(width, jnp.int32)
    real = jnp.zeros(width, dtype)
    unset = jnp.full(count, jnp.nan, dtype)
    records = Records(
        state=jnp.full(count, RequestState.UNFINISHED, jnp.int32),
        whole=arrivals.whole,
        part=arrivals.part,
        ttft_s=unset,
        latency_s=unset,
        left=load.osl,
        preemptions=jnp.zeros(count, jnp.int32),
    )
    return Replica(
        clock=start,
        arrived=zero,
        owed=load.clients,
        sent=start,
        late=zero,
        queue=jnp.zeros(places, jnp.int32),
        head=zero,
        tail=zero,
        running=zero,
        preempted=zero,
        part=no_prompts(dtype),
        filling=jnp.int32(width),
        filled=zero,
        slots=Slots(whole, whole - 1, whole, whole, whole, real, real, real, whole),
        records=records,
        totals=Totals(zero, zero, zero, start, zero),
        active=jnp.asarray(count > 0),
    )


def runs(slots: Slots) -> Bool[Array, " slot"]:
    """Slots whose requests take part in steps."""
    return (slots.phase == DECODE) | (slots.phase == PROMPT)


def blocks(limits: StepLimits, tokens: Array, left: Array) -> Int[Array, "..."]:
    """KV blocks of requests for their next step, or for all their steps where blocks are reserved.

    Exact below 2^24 tokens: a quotient of such whole numbers is rounded to a whole one only if it is one.
    """
    most = tokens + jnp.where(jnp.asarray(limits.reserves), left - 1, 0)
    size, real = jnp.asarray(limits.block_tokens), jnp.result_type(float)
    return jnp.floor((most + size - 1).astype(real) / size.astype(real)).astype(jnp.int32)


def one(happens: Array) -> Int[Array, "..."]:
    """1 where something happens, else 0."""
    return happens.astype(jnp.int32)


def clock_of(arrivals: Clock, request: Array) -> Clock:
    """Time of arrival of one request."""
    return Clock(arrivals.whole[request], arrivals.part[request], arrivals.lost[request])


def recorded(records: Records, chosen: Slots, left_out: Array) -> Records:
    """The records with what became of the requests of some slots, or of one slot.

    Args:
        records: The records.
        chosen: The slots.
        left_out: Which of them to leave out; those that never had a request are left out, too.
    """
    index = jnp.where((chosen.request < 0) | left_out, records.state.shape[0], chosen.request)
    done = chosen.phase == FREE
    nan = jnp.full_like(chosen.ttft_s, jnp.nan)
    values = {
        "state": jnp.where(done, jnp.int32(RequestState.COMPLETED), jnp.int32(RequestState.UNFINISHED)),
        "ttft_s": jnp.where(chosen.ttft_s < 0, nan, chosen.ttft_s),
        "latency_s": jnp.where(done, chosen.latency_s, nan),
        "left": chosen.left,
        "preemptions": chosen.preemptions,
    }
    return records._replace(**{n: getattr(records, n).at[index].set(v, mode="drop") for n, v in values.items()})


def finished(replica: Replica, limits: StepLimits, load: StepLoad, most_iterations: Array) -> StepRun:
    """What became of the requests of one replica."""
    slots, totals = replica.slots, replica.totals
    records = recorded(replica.records, slots, jnp.zeros(slots.phase.shape, bool))
    came = jnp.arange(load.isl.shape[0], dtype=jnp.int32) < replica.arrived
    held = jnp.sum(jnp.where(runs(slots), blocks(limits, slots.tokens, slots.left), 0), dtype=jnp.int32)
    at = Clock(records.whole, records.part, jnp.zeros_like(records.part))
    return StepRun(
        state=records.state,
        arrival_s=jnp.where(came, seconds(at), jnp.nan),
        ttft_s=records.ttft_s,
        latency_s=records.latency_s,
        preemptions=records.preemptions,
        output_tokens=load.osl - records.left,
        duration_s=seconds(replica.clock),
        busy_s=seconds(totals.busy),
        steps=totals.steps,
        prompt_tokens=totals.prompt_tokens,
        kv_peak_blocks=totals.kv_peak,
        kv_held_blocks=held,
        iterations=totals.iterations,
        most_iterations=most_iterations,
    )
