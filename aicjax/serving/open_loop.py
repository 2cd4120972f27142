# SPDX-License-Identifier: Apache-2.0
"""In-flight batching under an open load: requests arrive at a stated rate, whatever the server does.

The batch is not given but found: as many requests run as arrive while one is held. Written for one point; `vmap` adds
the axes. Differentiable; the derivation and its errors are in docs/modelling.md.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from aicjax._units import MS_PER_S
from aicjax.constants import LoopConstants
from aicjax.serving.agg import AnyScalar
from aicjax.serving.closed_loop import LoopTimes, LoopWork, with_host_time
from aicjax.serving.fixed_point import fixed_point

_LEAST = 1e-6  # of what is divided by: differences that vanish at the largest stable rate


class OpenLoop(NamedTuple):
    """The load.

    Attributes:
        request_rate: Requests per second, of all ranks; > 0.
        arrival_cv2: Squared coefficient of variation of the times between arrivals of a rank: 1 at random (Poisson),
            0 evenly spaced.
    """

    request_rate: AnyScalar
    arrival_cv2: AnyScalar = 1.0


class OpenEstimate(NamedTuple):
    """What the clients measure; means over requests. Latencies belong to no steady state where `stable` is false.

    Attributes:
        ttft_ms: Time to first token.
        tpot_ms: Time per output token after the first; 0 for a single output token.
        request_latency_ms: Time from arrival to the last token.
        running: Requests that a rank holds at once, prompts in progress included.
        stable: Whether the rate is below `capacity_per_s`.
        capacity_per_s: Rate up to which queues stay finite, of all ranks.
        running_limit: Requests that a rank holds at that rate.
        prefill_utilization: Share of the time of a rank that prompts add.
        queue_wait_ms: Wait for the step that takes the prompt.
        space_wait_ms: Wait for a place in the batch.
    """

    ttft_ms: Float[Array, "..."]
    tpot_ms: Float[Array, "..."]
    request_latency_ms: Float[Array, "..."]
    running: Float[Array, "..."]
    stable: Bool[Array, "..."]
    capacity_per_s: Float[Array, "..."]
    running_limit: Float[Array, "..."]
    prefill_utilization: Float[Array, "..."]
    queue_wait_ms: Float[Array, "..."]
    space_wait_ms: Float[Array, "..."]


class _Steps(NamedTuple):
    """Steps of a rank that holds a number of requests [ms].

    Attributes:
        decode_ms: A decode step, as a request sees it; 0 for a single output token.
        met_ms: What a prompt adds to the steps of a request that decodes.
        added_ms: What a prompt costs at a random time: beside decode rows, or in a step of its own where nothing runs.
        company: Share of the time in which a request decodes.
        overlap: Share of the prompts that arrive while a request is held, of those at random.
    """

    decode_ms: Float[Array, ""]
    met_ms: Float[Array, ""]
    added_ms: Float[Array, ""]
    company: Float[Array, ""]
    overlap: Float[Array, ""]


class _Turn(NamedTuple):
    """How a prompt is taken [ms].

    Attributes:
        wait_ms: From its arrival to its step.
        step_ms: From there to its first token.
        left: Prompts that wait when it has its first token, beyond those of a step that its answer ends with.
    """

    wait_ms: Float[Array, ""]
    step_ms: Float[Array, ""]
    left: Float[Array, ""]


class _Room(NamedTuple):
    """Steps of a prompt and prompts of a step, each 1 or more, and whether steps mix."""

    chunks: Float[Array, ""]
    prompts: Float[Array, ""]
    mixes: Float[Array, ""]


def open_loop_estimate(
    loop: OpenLoop,
    work: LoopWork,
    times: Callable[[Float[Array, ""]], LoopTimes],
    constants: LoopConstants,
    *,
    ranks: AnyScalar = 1.0,
) -> OpenEstimate:
    """Serving estimate of one open load.

    With r arrivals per ms and rank, O output tokens, decode steps of s, prompts that add p, i = interference weight,
    and `left` prompts that wait when a request has its first token:

        tpot = s(b) + i (r tpot + left / (O - 1)) p,      held = (O - 1) tpot + p + s,      b = r held
        ttft = request + wait for a place + wait for the step + the step

    Args:
        loop: The load; requests spread evenly over the ranks.
        work: Lengths and limits; `slots` finite, `osl` in decode steps plus one. How prompts are held back is not read.
        times: Kernel times with a real number of requests running: JAX, differentiable, decode steps increasing.
        constants: Host times, levels and weights of the backend.
        ranks: Attention ranks times pipeline stages that share the load.
    """
    per_ms = jnp.asarray(loop.request_rate) / ranks / MS_PER_S
    slots, follow_up = jnp.maximum(jnp.asarray(work.slots), 1.0), jnp.maximum(jnp.asarray(work.osl) - 1.0, 0.0)
    prompts, mixes = jnp.asarray(work.prompts), jnp.asarray(constants.mixes_prefill)
    room, random = (
        _Room(jnp.maximum(1.0 / prompts, 1.0), jnp.maximum(prompts, 1.0), mixes),
        jnp.asarray(loop.arrival_cv2),
    )

    def steps(running: Float[Array, ""]) -> _Steps:
        rows = jnp.maximum(running, 1.0) + random * jnp.minimum(running, 1.0)
        at = with_host_time(times(rows), rows, work, constants)
        overlap = random + (1.0 - random) * jnp.clip(running - 1.0, 0.0, 1.0)
        decodes = jnp.where(follow_up > 0, 1.0, 0.0)
        company = decodes * (overlap - random * jnp.exp(-running))
        beside = mixes * company
        met_ms = constants.interference_weight * (mixes * at.increment_ms + (1.0 - mixes) * at.prefill_ms)
        added_ms = beside * at.increment_ms + (1.0 - beside) * at.prefill_ms
        return _Steps(decodes * at.decode_ms, decodes * overlap * met_ms, added_ms, company, overlap)

    def held_ms(running: Float[Array, ""]) -> Float[Array, ""]:
        """Time for which a request is held at the rate that makes so many run, were there no queues."""
        at = steps(running)
        own_ms = at.added_ms + mixes * room.chunks * at.company * at.decode_ms
        met_ms = running * at.met_ms
        both = constants.tpot_level * follow_up * at.decode_ms + own_ms + met_ms
        return (both + jnp.sqrt(both**2 - 4.0 * own_ms * met_ms)) / 2.0

    def turn_ms(running: Float[Array, ""]) -> Float[Array, ""]:
        """Time from a prompt to the next where prompts queue."""
        at = steps(running)
        return at.added_ms + mixes * at.company * at.decode_ms * (room.chunks - 1.0 + 1.0 / room.prompts)

    def served(running: Float[Array, ""]) -> tuple[Float[Array, ""], _Turn, Float[Array, ""]]:
        """TPOT, how a prompt is taken, and the time for which a request is held [ms]."""
        at = steps(running)
        turn = _turn(per_ms, at, room, random)
        answer_steps = jnp.maximum(follow_up, 1.0)
        step_ms = (at.decode_ms + random * turn.left / answer_steps * at.met_ms) / _not_below(1.0 - per_ms * at.met_ms)
        full_ms = at.decode_ms + prompts * at.met_ms
        step_ms = mixes * jnp.minimum(step_ms, full_ms) + (1.0 - mixes) * step_ms
        tpot_ms = constants.tpot_level * step_ms
        return tpot_ms, turn, follow_up * tpot_ms + turn.step_ms

    limit = _bounded(lambda running: held_ms(running) / turn_ms(running), slots)
    capacity = limit / held_ms(limit)
    running = _bounded(lambda running: per_ms * served(running)[2], limit)
    tpot_ms, turn, holding_ms = served(running)
    at = steps(running)
    wait_ms = jnp.maximum(turn.wait_ms + (constants.steps_waited - 1.0) * at.company * at.decode_ms, 0.0)
    space_wait_ms = random / 2.0 * holding_ms * _queued(jnp.clip(running / slots, _LEAST, 1.0), slots)
    ttft_ms = constants.ttft_level * (constants.request_ms + space_wait_ms + wait_ms + turn.step_ms)
    return OpenEstimate(
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
        request_latency_ms=ttft_ms + follow_up * tpot_ms,
        running=running,
        stable=per_ms < capacity,
        capacity_per_s=capacity * ranks * MS_PER_S,
        running_limit=limit,
        prefill_utilization=per_ms * at.added_ms,
        queue_wait_ms=wait_ms,
        space_wait_ms=space_wait_ms,
    )


def _bounded(after: Callable[[Float[Array, ""]], Float[Array, ""]], most: Float[Array, ""]) -> Float[Array, ""]:
    """The fixed point, or `most` where it is beyond."""
    return fixed_point(lambda x: jnp.minimum(after(x), most), most)


def _not_below(difference: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.maximum(difference, _LEAST)


def _queued(busy: Float[Array, ""], servers: Float[Array, ""]) -> Float[Array, ""]:
    """Wait for one of several servers, in services, at squared coefficients of variation of 2 in all (Sakasegawa)."""
    return busy ** (jnp.sqrt(2.0 * (servers + 1.0)) - 1.0) / servers / _not_below(1.0 - busy)


def _turn(per_ms: Float[Array, ""], at: _Steps, room: _Room, random: Float[Array, ""]) -> _Turn:
    """How a prompt is taken by an engine that mixes steps to some degree."""
    mixed, apart = _mixed_turn(per_ms, at, room, random), _apart_turn(per_ms, at, room, random)
    return _Turn(*(room.mixes * x + (1.0 - room.mixes) * y for x, y in zip(mixed, apart, strict=True)))


def _mixed_turn(per_ms: Float[Array, ""], at: _Steps, room: _Room, random: Float[Array, ""]) -> _Turn:
    """How a prompt is taken where steps hold prompts and decode rows."""
    decode_ms, prompts = at.company * at.decode_ms, room.prompts
    longer_ms = at.added_ms + (room.chunks - 1.0) * decode_ms
    step_ms = decode_ms / _not_below(1.0 - per_ms * longer_ms)
    come = per_ms * step_ms
    filled = jnp.clip(come / prompts, _LEAST, 1.0)
    varied = per_ms * (1.0 - filled) / _not_below(1.0 - (per_ms * longer_ms) ** 2 * (1.0 - 1.0 / prompts))
    left_ms = (step_ms + longer_ms**2 * varied) / 2.0  # of the step in progress
    turns = per_ms * (longer_ms + decode_ms / prompts) * filled ** (jnp.sqrt(2.0 * (prompts + 1.0)) - 2.0)
    more = jnp.maximum(come - 1.0, 0.0)
    evenly_ms = (decode_ms + jnp.minimum(more, prompts) * longer_ms) / 2.0
    wait_ms = evenly_ms + random * (left_ms / _not_below(1.0 - turns) - evenly_ms)
    beside = jnp.minimum(more + random * (2.0 * per_ms * left_ms - more), prompts - 1.0)
    own_ms = room.chunks * decode_ms + at.added_ms * (1.0 + beside)
    left = per_ms * (wait_ms + own_ms - decode_ms) - beside / 2.0
    return _Turn(wait_ms, own_ms, jnp.maximum(left, 0.0) * (1.0 - jnp.minimum(come, 1.0)))


def _apart_turn(per_ms: Float[Array, ""], at: _Steps, room: _Room, random: Float[Array, ""]) -> _Turn:
    """How a prompt is taken where prompts have steps of their own, which decode steps wait for."""
    decode_ms, prompt_ms = at.company * at.decode_ms, at.added_ms
    busy = per_ms * prompt_ms
    wait_ms = decode_ms / 2.0 + random * busy * prompt_ms / 2.0 / _not_below(1.0 - busy)
    behind = jnp.minimum(per_ms * wait_ms / (1.0 + busy), (room.prompts - 1.0) / 2.0)
    own_ms = prompt_ms * (1.0 + behind)
    return _Turn(wait_ms, own_ms, jnp.maximum(per_ms * (wait_ms + own_ms - decode_ms) - behind, 0.0))
