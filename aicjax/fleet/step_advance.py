# SPDX-License-Identifier: Apache-2.0
"""Steps of one replica in a step-level simulation: one, or as many as nothing but contexts grow in."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from aicjax.fleet.clock import Clock, later, since_s, where
from aicjax.fleet.step_run import StepLimits
from aicjax.fleet.step_state import DECODE, FREE, NONE, PROMPT, Case, Replica, blocks, clock_of, runs
from aicjax.fleet.step_times import DecodeLine, PromptPart, StepTimes, no_prompts

CERTAIN = 1.0 - 1e-5  # share of the steps to a moment that are taken at once: rounding must not pass it
MOST_STEPS = 2.0**20  # taken at once


class _Steps(NamedTuple):
    """What is run at once.

    Attributes:
        number: Steps.
        passed_s: Time that they take.
        peak: Most KV blocks held in one of them.
    """

    number: Array
    passed_s: Array
    peak: Array


def advanced(
    times: StepTimes, limits: StepLimits, case: Case, horizon: Clock, jumps: bool, replica: Replica, goes: Array
) -> Replica:
    """The replica after its next step, or after the next steps if nothing happens before the last of them ends.

    Args:
        times, limits, case: The replica and its requests.
        horizon: Time after which no step begins.
        jumps: Whether more than one step may be run at once. Static.
        replica: Its state; blocks and prompts of the step are settled.
        goes: Whether it runs one at all.
    """
    slots, part = replica.slots, replica.part
    width = slots.phase.shape[0]
    decoding = slots.phase == DECODE
    prompts_alone = (part.tokens > 0) & ~jnp.asarray(limits.mixes)
    rows = jnp.where(prompts_alone, 0, replica.running - part.prompts)
    context = jnp.where(prompts_alone, 0, jnp.sum(jnp.where(decoding, slots.tokens, 0), dtype=jnp.int32))
    line = times.line(rows, context, part)
    steps = _steps(limits, case, horizon, line, replica) if jumps else _first(limits, line, replica)
    count = jnp.where(goes, steps.number, 0)

    filled_up = (slots.phase == PROMPT) & (jnp.arange(width, dtype=jnp.int32) != replica.filling)
    moved = goes & (filled_up | (decoding & ~prompts_alone))
    moved_by = jnp.where(moved, count, 0)
    left = slots.left - moved_by
    ended = moved & (left == 0)
    clock = where(goes, later(replica.clock, steps.passed_s), replica.clock)
    age_s = since_s(clock, Clock(slots.whole, slots.part, slots.part))
    slots = slots._replace(
        phase=jnp.where(ended, FREE, jnp.where(moved, DECODE, slots.phase)),
        tokens=slots.tokens + moved_by,
        left=left,
        ttft_s=jnp.where(moved & (slots.ttft_s < 0), age_s, slots.ttft_s),
        latency_s=jnp.where(ended, age_s, slots.latency_s),
    )
    done, closed, late = jnp.sum(ended, dtype=jnp.int32), case.load.clients > 0, case.load.late
    running = replica.running - done
    replica = replica._replace(
        clock=clock,
        owed=replica.owed + jnp.where(goes & late, replica.late, 0) + jnp.where(closed & ~late, done, 0),
        sent=where(goes, where(late, replica.clock, clock), replica.sent),
        late=jnp.where(goes & closed & late, done, jnp.where(goes, 0, replica.late)),
        running=running,
        slots=slots,
        totals=replica.totals._replace(
            steps=replica.totals.steps + count,
            prompt_tokens=replica.totals.prompt_tokens + jnp.where(goes, part.tokens, 0),
            kv_peak=jnp.where(goes, jnp.maximum(replica.totals.kv_peak, steps.peak), replica.totals.kv_peak),
            busy=where(goes, later(replica.totals.busy, steps.passed_s), replica.totals.busy),
        ),
    )
    return _next_chunk(times, limits, replica, goes)


def _first(limits: StepLimits, line: DecodeLine, replica: Replica) -> _Steps:
    """The next step alone."""
    return _Steps(jnp.int32(1), line.first_s, _held(limits, replica, jnp.int32(0)))


def _steps(limits: StepLimits, case: Case, horizon: Clock, line: DecodeLine, replica: Replica) -> _Steps:
    """The next step, and those after it up to the next event.

    Events are the end of an answer, an arrival that may start, the horizon, blocks that run out, and a knot of the step
    times. A step with prompts, or in which clients send requests, is taken alone. An arrival that has to wait is no
    event: while nothing ends, room only shrinks.
    """
    slots = replica.slots
    answer = jnp.min(jnp.where(slots.phase == DECODE, slots.left, NONE)).astype(line.first_s.dtype)
    count = case.load.isl.shape[0]
    comes = clock_of(case.arrivals, jnp.minimum(replica.arrived, count - 1))
    free = (replica.tail == replica.head) & (replica.preempted == 0) & (replica.running < limits.slots)
    expected = free & (replica.arrived < count) & (case.load.clients == 0)
    gap_s = jnp.where(expected, since_s(comes, replica.clock), jnp.inf)
    gap_s = jnp.minimum(gap_s, since_s(horizon, replica.clock))
    first, growth = line.first_s - line.growth_s / 2.0, line.growth_s
    whole = 2.0 * gap_s / (first + jnp.sqrt(first**2 + 2.0 * growth * gap_s))
    more = jnp.minimum(jnp.floor(whole * CERTAIN), jnp.floor(line.steps))
    most = jnp.clip(jnp.minimum(answer, 1.0 + more), 1.0, MOST_STEPS)
    alone = (replica.part.tokens > 0) | (replica.late > 0)
    most = jnp.where(alone, 1.0, most).astype(jnp.int32)
    peak = _held(limits, replica, most - 1)
    fits = peak <= limits.kv_blocks
    steps = jnp.where(fits, most, 1)
    real = steps.astype(first.dtype)
    passed_s = real * (line.first_s + line.growth_s * (real - 1.0) / 2.0)
    return _Steps(steps, passed_s, jnp.where(fits, peak, _held(limits, replica, jnp.int32(0))))


def _held(limits: StepLimits, replica: Replica, steps: Array) -> Array:
    """KV blocks that the running requests hold in the step after so many."""
    slots = replica.slots
    return jnp.sum(jnp.where(runs(slots), blocks(limits, slots.tokens + steps, slots.left - steps), 0), dtype=jnp.int32)


def _next_chunk(times: StepTimes, limits: StepLimits, replica: Replica, goes: Array) -> Replica:
    """After a step, the next chunk of a prompt that it left incomplete is part of the coming step."""
    width = replica.slots.phase.shape[0]
    goes_on = goes & (replica.filling < width)
    tokens = replica.slots.tokens[jnp.minimum(replica.filling, width - 1)]
    beside = jnp.where(jnp.asarray(limits.mixes), replica.running - 1, 0)
    chunk = jnp.minimum(tokens - replica.filled, limits.step_tokens - beside)
    filled = replica.filled + chunk
    part = PromptPart(chunk, jnp.int32(1), filled, times.chunk_s(chunk, replica.filled))
    chosen = jax.tree.map(lambda a, b: jnp.where(goes_on, a, b), part, no_prompts(part.work_s.dtype))
    return replica._replace(
        part=jax.tree.map(lambda a, b: jnp.where(goes, a, b), chosen, replica.part),
        filling=jnp.where(goes_on & (filled < tokens), replica.filling, jnp.where(goes, width, replica.filling)),
        filled=jnp.where(goes_on, filled, replica.filled),
    )
