# SPDX-License-Identifier: Apache-2.0
"""In-flight batching: mean-field TTFT, TPOT and throughput from the latencies of a mixed and a decode step.

Written for one point; `vmap` or `agg_points` adds the axes. Differentiable in the latencies, the constants and the
speculative progress.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

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
    """

    batch: AnyScalar
    prefill_steps: AnyScalar
    chunks: AnyScalar
    drains: Bool[AnyArray, ""] | bool


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


class AggCurves(NamedTuple):
    """Latencies at the distinct coordinates of a sweep, per configuration [ms].

    Attributes:
        shared: Everything of a mixed step but attention, per number of tokens.
        context_attention: Prefill attention of the prompts of a mixed step, per `ctx_tokens`.
        decode_attention: Decode attention, per number of query rows.
        decode_rest: Everything of a decode step but attention, per batch.
    """

    shared: Float[AnyArray, "config token"]
    context_attention: Float[AnyArray, "config ctx"]
    decode_attention: Float[AnyArray, "config row"]
    decode_rest: Float[AnyArray, "config batch"]


class AggGather(NamedTuple):
    """Which curve values and which plan each point of a (batch, ctx_tokens) grid takes, whatever the configuration.

    Attributes:
        shared: Index of the tokens of the mixed step.
        mixed_rows: Index of the decode rows of the mixed step.
        decode_rows: Index of the rows of the decode step.
        batch, prefill_steps, chunks, drains: Fields of `AggPoint`.
    """

    shared: Int[AnyArray, "batch ctx"]
    mixed_rows: Int[AnyArray, "batch ctx"]
    decode_rows: Int[AnyArray, " batch"]
    batch: Float[AnyArray, " batch"]
    prefill_steps: Float[AnyArray, "batch ctx"]
    chunks: Float[AnyArray, " ctx"]
    drains: Bool[AnyArray, "batch ctx"]


class AggSetting(NamedTuple):
    """What all points of a sweep share beside the plan.

    Attributes:
        osl: Output tokens.
        progress: Output tokens of a decode iteration.
        dispatch_layers: Decoder layers, which cost host time per request.
    """

    osl: AnyScalar
    progress: AnyScalar
    dispatch_layers: AnyScalar


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


def agg_points(
    curves: AggCurves,
    gather: AggGather,
    setting: AggSetting,
    constants: ServingConstants,
    replicas: Float[AnyArray, " config"],
    *,
    littles_law_cap: bool,
) -> AggEstimate:
    """Estimates of all configurations at all points of a (batch, ctx_tokens) grid.

    Each point gathers four numbers from the curves of its configuration and applies the formulas. NaN where a latency
    that the point needs is missing.

    Args:
        curves: Latencies of the distinct coordinates.
        gather: Indices and plan.
        setting: What all points share.
        constants: Queue, dispatch and drain numbers of the backend.
        replicas: Pipeline stages times attention ranks of each configuration.
        littles_law_cap: Whether the rate may not exceed b / request latency. Static.

    Returns:
        Arrays of shape [config, batch, ctx], float32.
    """
    return jax.vmap(
        lambda curve, copies: config_points(curve, gather, setting, constants, copies, littles_law_cap=littles_law_cap)
    )(curves, replicas)


def config_points(
    curves: AggCurves,
    gather: AggGather,
    setting: AggSetting,
    constants: ServingConstants,
    replicas: AnyScalar,
    *,
    littles_law_cap: bool,
) -> AggEstimate:
    """Estimates of one configuration at all points of a grid, as `agg_points` has them; curves without `config`."""

    def one(shared, context, mixed_attention, decode_ms, batch, steps, chunks, drains):
        point = AggPoint(batch, steps, chunks, drains)
        mixed_ms = mixed_step_ms(point, shared, context, mixed_attention)
        return agg_estimate(
            mixed_ms, decode_ms, point, setting, constants, replicas=replicas, littles_law_cap=littles_law_cap
        )

    over_ctx = jax.vmap(one, (0, 0, 0, None, None, 0, 0, 0))
    over_batch = jax.vmap(over_ctx, (0, None, 0, 0, 0, 0, None, 0))
    shared, mixed_rows = _take(curves.shared, gather.shared), _take(curves.decode_attention, gather.mixed_rows)
    decode_ms = curves.decode_rest + _take(curves.decode_attention, gather.decode_rows)
    plan = (gather.batch, gather.prefill_steps, gather.chunks, gather.drains)
    return over_batch(shared, curves.context_attention, mixed_rows, decode_ms, *plan)


def _take(curve: Float[AnyArray, " knot"], index: Int[AnyArray, "..."]) -> Float[Array, "..."]:
    return jnp.asarray(curve).at[index].get(mode="promise_in_bounds")
