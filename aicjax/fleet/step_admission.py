# SPDX-License-Identifier: Apache-2.0
"""Which request starts or is preempted next, in a step-level simulation of one replica."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from aicjax.fleet.step_run import StepLimits
from aicjax.fleet.step_state import (
    DECODE,
    FREE,
    NONE,
    PREEMPTED,
    PROMPT,
    Case,
    Records,
    Replica,
    Slots,
    blocks,
    one,
    recorded,
    runs,
)
from aicjax.fleet.step_times import PromptPart, StepTimes, no_prompts


class Room(NamedTuple):
    """What a step still has room for.

    Attributes:
        running: Requests that run.
        used: KV blocks that they hold in it.
        tokens: Prompt tokens that fit.
        empty: Whether it has no prompt yet.
    """

    running: Array
    used: Array
    tokens: Array
    empty: Array

    def holds(self, limits: StepLimits, need: Array, work: Array) -> Array:
        """Whether a request that needs so many blocks, and computes so many prompt tokens, may start."""
        starts = jnp.where(jnp.asarray(limits.chunked), self.tokens > 0, (work <= self.tokens) | self.empty)
        return (self.running < limits.slots) & (self.used + need <= limits.kv_blocks) & starts

    def after(self, need: Array, chunk: Array) -> "Room":
        """The room beside one more such request, of whose prompt it takes a chunk."""
        decodes = chunk == 0
        tokens = self.tokens - jnp.where(decodes, 1, chunk)
        return Room(self.running + 1, self.used + need, tokens, self.empty & decodes)


def admission(times: StepTimes, limits: StepLimits, case: Case, replica: Replica, may: Array) -> tuple[Replica, Array]:
    """Preempts the newest request if blocks run out, else starts the next one if there is room for it.

    Args:
        times, limits, case: The replica and its requests.
        replica: Its state.
        may: Whether it may do either.

    Returns:
        The replica, and whether more may be preempted or started in the same step.
    """
    slots, load, part = replica.slots, case.load, replica.part
    width = slots.phase.shape[0]
    running = runs(slots)
    used = jnp.sum(jnp.where(running, blocks(limits, slots.tokens, slots.left), 0), dtype=jnp.int32)
    over = may & (used > limits.kv_blocks)
    newest = jnp.max(jnp.where(running, slots.request, -1))

    out = slots.phase == PREEMPTED
    oldest = jnp.min(jnp.where(out, slots.request, NONE))
    back = replica.preempted > 0
    wanted = jnp.where(back, out & (slots.request == oldest), slots.phase == FREE)
    place = jnp.min(jnp.where(wanted, jnp.arange(width, dtype=jnp.int32), width))
    held = jnp.minimum(place, width - 1)
    request, after_it = _queued(replica, 0), _queued(replica, 1)
    tokens = jnp.where(back, slots.tokens[held], load.isl[request])
    left = jnp.where(back, slots.left[held], load.osl[request])
    kept = back & jnp.asarray(limits.resumes) & (slots.ttft_s[held] >= 0)
    work = jnp.where(kept, 0, tokens)
    need = blocks(limits, tokens, left)

    beside = jnp.where(jnp.asarray(limits.mixes), replica.running - part.prompts, 0)
    room = Room(replica.running, used, limits.step_tokens - part.tokens - beside, part.tokens == 0)
    starts = may & ~over & (back | (replica.tail > replica.head))
    starts &= room.holds(limits, need, work)
    new = starts & ~back
    chunk = jnp.where(jnp.asarray(limits.chunked), jnp.minimum(work, room.tokens), work)

    next_need = blocks(limits, load.isl[after_it], load.osl[after_it])
    next_starts = room.after(need, chunk).holds(limits, next_need, load.isl[after_it])
    next_starts &= replica.tail - replica.head > 1
    more = jnp.where(back, (replica.preempted > 1) | (replica.tail > replica.head), next_starts)

    old = Slots(*(values[held] for values in slots))
    records = recorded(replica.records, old, ~new)
    slots = _started(slots, jnp.where(starts, place, width), jnp.where(work > 0, PROMPT, DECODE))
    slots = _placed(slots, jnp.where(new, place, width), request, case, records)
    slots = _preempted(slots, over & running & (slots.request == newest))
    prompt = starts & (chunk > 0)
    added = PromptPart(chunk, jnp.int32(1), chunk, times.chunk_s(chunk, jnp.zeros_like(chunk)))
    part = jax.tree.map(lambda old, plus: old + jnp.where(prompt, plus, 0), part, added)
    part = jax.tree.map(lambda none, old: jnp.where(over, none, old), no_prompts(part.work_s.dtype), part)
    filling = jnp.where(over, width, jnp.where(starts & (chunk < work), place, replica.filling))
    admitted = replica._replace(
        running=replica.running + one(starts) - one(over),
        preempted=replica.preempted + one(over) - one(starts & back),
        head=replica.head + one(new),
        part=part,
        filling=filling,
        filled=jnp.where(starts & (chunk < work), chunk, replica.filled),
        slots=slots,
        records=records,
    )
    return admitted, over | (starts & more)


def _queued(replica: Replica, position: int) -> Array:
    """Number of the request at a position of the queue; any where there is none."""
    return replica.queue[(replica.head + position) % replica.queue.shape[0]]


def _started(slots: Slots, place: Array, phase: Array) -> Slots:
    """A slot in a phase; none where `place` is beyond the last."""
    return slots._replace(phase=slots.phase.at[place].set(phase.astype(jnp.int32), mode="drop"))


def _placed(slots: Slots, place: Array, request: Array, case: Case, records: Records) -> Slots:
    """A request that has not run before, in a slot; none where `place` is beyond the last."""
    values = {
        "request": request,
        "tokens": case.load.isl[request],
        "left": case.load.osl[request],
        "whole": records.whole[request],
        "part": records.part[request],
        "ttft_s": -1.0,
        "preemptions": 0,
    }
    return slots._replace(**{n: getattr(slots, n).at[place].set(v, mode="drop") for n, v in values.items()})


def _preempted(slots: Slots, which: Array) -> Slots:
    """The slots with some preempted."""
    return slots._replace(phase=jnp.where(which, PREEMPTED, slots.phase), preemptions=slots.preemptions + one(which))
