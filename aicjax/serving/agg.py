# SPDX-License-Identifier: Apache-2.0
"""In-flight batching: mean-field TTFT, TPOT and throughput from the latencies of a mixed and a decode step.

Written for one point; `serving.point` adds the axes. Differentiable in the latencies, the constants and the speculative
progress.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from aicjax._types import FloatScalar
from aicjax._units import MS_PER_S
from aicjax.constants import ServingConstants

AnyArray = Array | np.ndarray
AnyScalar = FloatScalar | np.ndarray | np.floating  # 0-d; batched where a function is mapped


class AggPoint(NamedTuple):
    """The plan of one point as the formulas take it; counts as floats.

    Attributes:
        batch: Requests in flight of one attention rank.
        prefill_steps: Steps that it takes to put the prompts of a batch in.
        chunks: Steps over which one prompt is spread.
        drains: Whether the cycle also has steps without prompts.
        prompts: Prompts that a mixed step of a closed loop takes.
        room: Prompts that it has room for; a fraction where a prompt is spread.
    """

    batch: AnyScalar
    prefill_steps: AnyScalar
    chunks: AnyScalar
    drains: Bool[AnyArray, ""] | bool
    prompts: AnyScalar = 1.0
    room: AnyScalar = 1.0


class AggEstimate(NamedTuple):
    """Serving estimate of one worker: one model copy with all its pipeline stages and attention ranks.

    Attributes:
        ttft_ms: Time to first token.
        tpot_ms: Time per output token after the first; NaN for a single output token.
        request_latency_ms: Time from arrival to the last token.
        seq_per_s: Requests finished per second.
    """

    ttft_ms: Float[AnyArray, "..."]
    tpot_ms: Float[AnyArray, "..."]
    request_latency_ms: Float[AnyArray, "..."]
    seq_per_s: Float[AnyArray, "..."]


class FirstWave(NamedTuple):
    """A closed loop that starts with all its requests at once.

    Attributes:
        waves: Requests of the run, relative to those in flight.
        least_share: Lengths are uniform from this share of the nominal ones to all of them.
    """

    waves: AnyScalar
    least_share: AnyScalar


class AggSetting(NamedTuple):
    """What all points of a sweep share beside the plan.

    Attributes:
        osl: Output tokens.
        progress: Output tokens of a decode iteration.
        dispatch_layers: Decoder layers, which cost host time per request.
        first_wave: How a closed loop starts; None for one that runs steadily.
    """

    osl: AnyScalar
    progress: AnyScalar
    dispatch_layers: AnyScalar
    first_wave: FirstWave | None = None


def mixed_step_ms(
    point: AggPoint, shared_ms: AnyScalar, context_attention_ms: AnyScalar, decode_attention_ms: AnyScalar
) -> Float[Array, ""]:
    """Latency of a step with prompts and decode rows [ms].

    Prompts longer than the budget take several steps, each with its share of their attention. A batch of one has no
    decode rows beside its prompt.
    """
    decode_ms = jnp.where(jnp.asarray(point.batch) > 1, decode_attention_ms, 0.0)
    return jnp.asarray(shared_ms + context_attention_ms / point.chunks + decode_ms)


def agg_estimate(
    mixed_ms: AnyScalar,
    decode_ms: AnyScalar,
    point: AggPoint,
    setting: AggSetting,
    constants: ServingConstants,
    *,
    replicas: AnyScalar = 1.0,
    littles_law_cap: bool = False,
) -> AggEstimate:
    """Serving estimate of one point.

    A cycle of S mixed and D - S decode steps serves a batch b, with D = 1 + (osl - 1) / progress iterations a request:

        queue = min(base + per_step S + per_doubling log2 b, cap)
        ttft  = (chunks mixed + dispatch layers) queue
        w     = max(1, S - drain) if decode steps follow, else S
        tpot  = (w mixed + (D - S) decode) / (w + D - S) / progress
        rate  = 1000 b / (S mixed + (D - S) decode)

    A single request (b = 1) prefills in one step, which its TPOT does not count.

    Args:
        mixed_ms: Latency of a mixed step [ms].
        decode_ms: Latency of a decode step [ms]; not read when no decode step follows, so NaN is fine there.
        point: Plan of the point.
        setting: Answer length, progress and layers.
        constants: Queue, dispatch and drain numbers of the backend.
        replicas: Batches in flight in one worker: pipeline stages times attention ranks.
        littles_law_cap: Whether the rate may not exceed b / request latency. Static.

    Returns:
        The estimate; with one output token the rate counts it and TPOT is NaN.
    """
    batch, steps = jnp.asarray(point.batch), jnp.asarray(point.prefill_steps)
    single = batch <= 1
    follow_up = jnp.maximum(setting.osl - 1.0, 0.0)
    mixed_steps = jnp.where(single, 1.0, steps)
    decode_steps = jnp.maximum(1.0 + follow_up / setting.progress - mixed_steps, 0.0)
    decode_total_ms = jnp.where(decode_steps > 0, decode_steps * decode_ms, 0.0)

    drained = jnp.where(jnp.asarray(point.drains), jnp.maximum(steps - constants.drain_steps, 1.0), steps)
    counted = jnp.where(single, 0.0, drained)
    counted_steps = counted + decode_steps
    per_step = (counted * mixed_ms + decode_total_ms) / jnp.where(counted_steps > 0, counted_steps, 1.0)
    tpot_ms = per_step / setting.progress

    growth = constants.queue_per_step * steps + constants.queue_per_doubling * jnp.log2(batch)
    queue = jnp.minimum(constants.queue_base + growth, constants.queue_cap)
    dispatch_ms = constants.dispatch_ms_per_layer * setting.dispatch_layers
    ttft_ms = (mixed_ms * point.chunks + dispatch_ms) * queue

    request_latency_ms = ttft_ms + jnp.where(follow_up > 0, follow_up * tpot_ms, 0.0)
    cycle_ms = mixed_steps * mixed_ms + decode_total_ms
    slowest_ms = jnp.maximum(cycle_ms, request_latency_ms) if littles_law_cap else cycle_ms
    seq_per_s = MS_PER_S * batch / slowest_ms * replicas
    return AggEstimate(ttft_ms, jnp.where(follow_up > 0, tpot_ms, jnp.nan), request_latency_ms, seq_per_s)
