# SPDX-License-Identifier: Apache-2.0
"""What a step-level simulation takes and gives: limits of a replica, its requests, what became of them."""

import enum
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aicjax.fleet.profile import Profile

NO_LIMIT = 2**30  # counts without a limit


class RequestState(enum.IntEnum):
    """What became of a request; each ends in exactly one state."""

    UNFINISHED = 0  # still to come, waiting or running when the run ended
    COMPLETED = 1
    REJECTED = 2  # came while the queue was full
    REFUSED = 3  # can never run: longer than the context limit or than the whole KV cache


class StepLimits(eqx.Module):
    """How a replica schedules; scalars, or arrays over fleets.

    Attributes:
        slots: Requests that run at once; from 1.
        kv_blocks: Blocks of the KV cache, and `block_tokens` the tokens of each.
        step_tokens: Prompt tokens and decoding requests of a step; above `slots`.
        max_tokens: Context limit of a request.
        queue_cap: Requests that may wait to start; from 1.
        chunked: Whether a prompt may be cut. If not, one longer than the rest of a step waits for the next, and one
            longer than a whole step has it to itself.
        mixes: Whether steps hold prompts and decoding requests; if not, prompts go first, in steps of their own.
        resumes: Whether a preempted request keeps its finished KV cache elsewhere, which takes no time; if not, its
            prompt and all its tokens are prefilled again.
        reserves: Whether a request holds the blocks of its whole answer from the start; nothing is preempted then.
    """

    slots: Any
    kv_blocks: Any
    block_tokens: Any
    step_tokens: Any
    max_tokens: Any = NO_LIMIT
    queue_cap: Any = NO_LIMIT
    chunked: Any = True
    mixes: Any = True
    resumes: Any = False
    reserves: Any = False


class StepLoad(NamedTuple):
    """The requests, in order of arrival; they start in this order.

    Attributes:
        isl, osl: Prompt and output tokens; from 1.
        gaps_s: Time since the arrival before [s]; not read where `clients` is above 0.
        clients: Requests in flight of a closed loop, each sent when another ends; 0 for stated arrivals.
        late: Whether clients send it just after the next step has begun, so that it waits for that step, rather than
            just before.
    """

    isl: Int[Array, "fleet request"]
    osl: Int[Array, "fleet request"]
    gaps_s: Float[Array, "fleet request"]
    clients: Int[Array, " fleet"]
    late: Bool[Array, " fleet"]


class StepRun(NamedTuple):
    """What became of the requests.

    Attributes:
        state: A `RequestState` [fleet, request].
        arrival_s: Time of arrival; NaN for one that has not come [fleet, request].
        ttft_s: From arrival to first token; NaN without one [fleet, request].
        latency_s: From arrival to last token; NaN unless completed [fleet, request].
        preemptions: How often it was preempted [fleet, request].
        output_tokens: Output tokens that it has [fleet, request].
        duration_s: Time at which the run ended [fleet].
        busy_s: Time in steps [fleet].
        steps: Engine steps [fleet].
        prompt_tokens: Prompt tokens computed, those of preempted requests again [fleet].
        kv_peak_blocks: Most KV blocks held in a step [fleet].
        kv_held_blocks: KV blocks held when the run ended [fleet].
        iterations: Iterations of the simulator, and `most_iterations` a bound on them that follows from the work:
            beyond it a run stops [fleet].
    """

    state: Int[Array, "fleet request"]
    arrival_s: Float[Array, "fleet request"]
    ttft_s: Float[Array, "fleet request"]
    latency_s: Float[Array, "fleet request"]
    preemptions: Int[Array, "fleet request"]
    output_tokens: Int[Array, "fleet request"]
    duration_s: Float[Array, " fleet"]
    busy_s: Float[Array, " fleet"]
    steps: Int[Array, " fleet"]
    prompt_tokens: Int[Array, " fleet"]
    kv_peak_blocks: Int[Array, " fleet"]
    kv_held_blocks: Int[Array, " fleet"]
    iterations: Int[Array, " fleet"]
    most_iterations: Int[Array, " fleet"]


class Conservation(NamedTuple):
    """What a run must not lose or invent; True where it holds [fleet].

    Attributes:
        requests: Every request is in one state, and has times exactly as its state says.
        tokens: Completed requests have their output, others less, those turned away none. The prompt of every first
            token was computed, and only once where all is done and nothing was preempted.
        blocks: No more blocks were held than there are, and none when all is done.
        times: No time is negative, and no last token precedes its first.
        ends: The run ended by itself, not by the bound on its iterations.
    """

    requests: Bool[Array, " fleet"]
    tokens: Bool[Array, " fleet"]
    blocks: Bool[Array, " fleet"]
    times: Bool[Array, " fleet"]
    ends: Bool[Array, " fleet"]


def profile_limits(profile: Profile, slots: Any, max_tokens: Any) -> StepLimits:
    """Limits of a profile: a chunk of prompts beside the decoding requests in each step."""
    return StepLimits(
        slots=slots,
        kv_blocks=jnp.asarray(profile.kv_blocks, jnp.int32),
        block_tokens=jnp.asarray(profile.block_tokens, jnp.int32),
        step_tokens=jnp.asarray(profile.chunk_tokens, jnp.int32) + slots,
        max_tokens=max_tokens,
    )


def open_load(isl: Array, osl: Array, gaps_s: Array) -> StepLoad:
    """Requests that come at stated times; [fleet, request] each."""
    fleets = isl.shape[0]
    return StepLoad(isl, osl, gaps_s, jnp.zeros(fleets, jnp.int32), jnp.zeros(fleets, bool))


def closed_load(isl: Array, osl: Array, clients: Array | int, *, late: bool = True) -> StepLoad:
    """Requests of clients that send the next one when an answer ends.

    Args:
        isl, osl: Prompt and output tokens [fleet, request].
        clients: Clients of each fleet, or of all.
        late: As of `StepLoad`.
    """
    fleets, dtype = isl.shape[0], jnp.result_type(float)
    counts = jnp.broadcast_to(jnp.asarray(clients, jnp.int32), fleets)
    return StepLoad(isl, osl, jnp.zeros(isl.shape, dtype), counts, jnp.full(fleets, late))


def conserved(run: StepRun, load: StepLoad, limits: StepLimits) -> Conservation:
    """Checks of a run against its requests."""
    done, started = run.state == RequestState.COMPLETED, run.output_tokens > 0
    turned_away = (run.state == RequestState.REJECTED) | (run.state == RequestState.REFUSED)
    settled = jnp.all(run.state != RequestState.UNFINISHED, axis=-1)
    known = (run.state >= 0) & (run.state <= max(RequestState))
    stated = (jnp.isfinite(run.latency_s) == done) & (jnp.isfinite(run.ttft_s) == started)
    output = jnp.where(done, run.output_tokens == load.osl, run.output_tokens < load.osl) & ~(turned_away & started)
    prompts = jnp.sum(jnp.where(started, load.isl, 0), axis=-1, dtype=jnp.int32)
    once = ~(settled & (jnp.sum(run.preemptions, axis=-1) == 0)) | (run.prompt_tokens == prompts)
    ordered = ~done | ((run.ttft_s >= 0) & (run.latency_s >= run.ttft_s))
    return Conservation(
        requests=jnp.all(known & stated, axis=-1),
        tokens=jnp.all(output, axis=-1) & (run.prompt_tokens >= prompts) & once,
        blocks=(run.kv_peak_blocks <= limits.kv_blocks) & (~settled | (run.kv_held_blocks == 0)),
        times=jnp.all(ordered, axis=-1) & (run.busy_s >= 0) & (run.duration_s >= 0),
        ends=run.iterations < run.most_iterations,
    )
