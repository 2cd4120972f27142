# SPDX-License-Identifier: Apache-2.0
"""In-flight batching by the formulas that the constants belong to: one point, and grids of them from step times.

The mean field (`serving.agg`) and the closed loop (`serving.closed_loop`) take the same parts of steps; which of them
is used follows from the kind of constants, so that each is a compiled kernel of its own.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike, NDArray

from aicjax.constants import Constants, LoopConstants, ServingConstants
from aicjax.interp.counts import point_bucket
from aicjax.serving.agg import (
    AggEstimate,
    AggPoint,
    AggSetting,
    AnyArray,
    AnyScalar,
    FirstWave,
    agg_estimate,
    mixed_step_ms,
)
from aicjax.serving.closed_loop import ClosedLoop, LoopTimes, LoopWork, closed_loop_estimate
from aicjax.serving.load import Load
from aicjax.serving.plan import AggPlan, plan_agg, plan_loop

Numbers = ServingConstants | LoopConstants
IntArray = NDArray[np.integer]


class AggCurves(NamedTuple):
    """Latencies at the distinct coordinates of a sweep, per configuration [ms].

    Attributes:
        shared: Everything of a mixed step but attention, per number of tokens.
        context_attention: Prefill attention of the prompts of a mixed step, per `ctx_tokens`.
        decode_attention: Decode attention, per number of query rows.
        decode_rest: Everything of a decode step but attention, per batch.
        decode_shared: Of that, what prompts share, per batch; None for all of it.
        full_prompt: A prompt of a step full of prompts, without its attention, per `ctx_tokens`; None without a first
            wave.
    """

    shared: Float[AnyArray, "config token"]
    context_attention: Float[AnyArray, "config ctx"]
    decode_attention: Float[AnyArray, "config row"]
    decode_rest: Float[AnyArray, "config batch"]
    decode_shared: Float[AnyArray, "config batch"] | None = None
    full_prompt: Float[AnyArray, "config ctx"] | None = None


class AggGather(NamedTuple):
    """Which curve values and which plan each point of a (batch, ctx_tokens) grid takes, whatever the configuration.

    Attributes:
        shared: Index of the tokens of the mixed step.
        mixed_rows: Index of the decode rows of the mixed step.
        decode_rows: Index of the rows of the decode step.
        batch, prefill_steps, chunks, drains, prompts, room: Fields of `AggPoint`.
    """

    shared: Int[AnyArray, "batch ctx"]
    mixed_rows: Int[AnyArray, "batch ctx"]
    decode_rows: Int[AnyArray, " batch"]
    batch: Float[AnyArray, " batch"]
    prefill_steps: Float[AnyArray, "batch ctx"]
    chunks: Float[AnyArray, " ctx"]
    drains: Bool[AnyArray, "batch ctx"]
    prompts: Float[AnyArray, "batch ctx"]
    room: Float[AnyArray, " ctx"]


class StepParts(NamedTuple):
    """Latencies of the parts of the steps of one point [ms].

    Attributes:
        shared_ms: Everything of a mixed step but attention.
        context_attention_ms: Prefill attention of the prompts that are priced in one pass.
        mixed_attention_ms: Decode attention of a mixed step; not read by the closed loop.
        decode_rest_ms, decode_attention_ms: The parts of a decode step.
        decode_shared_ms: Of `decode_rest_ms`, what a mixed step has too; all of it if None.
        full_prompt_ms: A prompt of a step full of prompts, without its attention; read for a first wave alone.
    """

    shared_ms: AnyScalar
    context_attention_ms: AnyScalar
    mixed_attention_ms: AnyScalar
    decode_rest_ms: AnyScalar
    decode_attention_ms: AnyScalar
    decode_shared_ms: AnyScalar | None = None
    full_prompt_ms: AnyScalar | None = None


def serving_numbers(constants: Constants) -> Numbers:
    """The section of the formulas in force, which `point_estimate` goes by."""
    return constants.loop if constants.formulas == "closed_loop" else constants.serving


def plan_points(load: Load, batch: ArrayLike, ctx_tokens: ArrayLike, constants: Constants, *, spread: bool) -> AggPlan:
    """The plan of points for the formulas in force.

    Args:
        load: The requests.
        batch, ctx_tokens: As of `plan_agg`.
        constants: Their kind, and whether steps mix.
        spread: Whether the scheduler spreads decode rows; see `plan_agg`.
    """
    if constants.formulas == "closed_loop":
        return plan_loop(load.mean, batch, ctx_tokens, mixes=bool(constants.loop.mixes_prefill))
    return plan_agg(load, batch, ctx_tokens, spread_decode_rows=spread)


def setting_of(load: Load, layers: float) -> AggSetting:
    """What all points under a load share."""
    mean = load.mean
    starts = FirstWave(load.waves, load.least_share) if load.starts_at_once else None
    return AggSetting(float(mean.osl), load.progress, float(layers), starts)


def gather_of(plan: AggPlan, shared: IntArray, mixed_rows: IntArray, decode_rows: IntArray) -> AggGather:
    """The gather of a planned grid, numpy.

    Args:
        plan: Plan of each (batch, ctx_tokens) point.
        shared: Index of the tokens of each mixed step [batch, ctx].
        mixed_rows: Index of its decode rows [batch, ctx].
        decode_rows: Index of the rows of each decode step [batch].
    """
    floats = {name: getattr(plan, name).astype(np.float32) for name in ("prefill_steps", "prompts")}
    of_budget = {name: getattr(plan, name)[0].astype(np.float32) for name in ("chunks", "room")}
    index = (array.astype(np.int32) for array in (shared, mixed_rows, decode_rows))
    batch = plan.batch[:, 0].astype(np.float32)
    return AggGather(*index, batch=batch, drains=plan.drains, **floats, **of_budget)


def padded_gather(gather: AggGather, batches: int, budgets: int) -> AggGather:
    """The gather with its last batch and budget repeated so many times more."""
    of_batch, of_budget = (0, batches), (0, budgets)
    widths = {"batch": (of_batch,), "decode_rows": (of_batch,), "chunks": (of_budget,), "room": (of_budget,)}
    fields: dict[str, Any] = gather._asdict()
    both = (of_batch, of_budget)
    return AggGather(**{name: np.pad(values, widths.get(name, both), mode="edge") for name, values in fields.items()})


def padded_curves(curves: AggCurves, configs: int, batches: int, budgets: int) -> AggCurves:
    """The curves with so many zeros more per axis, those of distinct coordinates filled up to their bucket."""
    widths: dict[str, Any] = {"decode_rest": batches, "decode_shared": batches}
    widths |= {"context_attention": budgets, "full_prompt": budgets}

    def pad(name: str, values: Any) -> Any:
        if values is None:
            return None
        width = widths.get(name, point_bucket(values.shape[1]) - values.shape[1])
        return np.pad(values, ((0, configs), (0, width)))

    return AggCurves(**{name: pad(name, values) for name, values in curves._asdict().items()})


def point_estimate(
    parts: StepParts,
    point: AggPoint,
    setting: AggSetting,
    numbers: Numbers,
    *,
    replicas: AnyScalar = 1.0,
    littles_law_cap: bool = False,
) -> AggEstimate:
    """Serving estimate of one point.

    Args:
        parts: Latencies; NaN is fine for a decode step that never runs.
        point: Plan of the point.
        setting: Answer length, progress and layers.
        numbers: `serving_numbers` of the engine; their type picks the formulas.
        replicas: Batches in flight in one worker: pipeline stages times attention ranks.
        littles_law_cap: As in `agg_estimate`; the closed loop is by Little's law in any case. Static.
    """
    if isinstance(numbers, LoopConstants):
        return _loop_point(parts, point, setting, numbers, replicas)
    mixed_ms = mixed_step_ms(point, parts.shared_ms, parts.context_attention_ms, parts.mixed_attention_ms)
    decode_ms = parts.decode_rest_ms + parts.decode_attention_ms
    return agg_estimate(
        mixed_ms, decode_ms, point, setting, numbers, replicas=replicas, littles_law_cap=littles_law_cap
    )


def loop_times(parts: StepParts, point: AggPoint, constants: LoopConstants, *, answers: AnyScalar) -> LoopTimes:
    """What a decode step and a prompt of a point cost as the closed loop takes it.

    A prompt costs what it adds to the part of a step that its tokens share, over all its steps, and its attention.

    Args:
        parts: Latencies.
        point: Plan of the point.
        constants: Whether steps mix.
        answers: Decode steps of a request.
    """
    beside = (jnp.asarray(point.batch) > 1) & (jnp.asarray(answers) > 0)
    decode_shared_ms = parts.decode_rest_ms if parts.decode_shared_ms is None else parts.decode_shared_ms
    rest_ms = jnp.where(beside, constants.mixes_prefill * decode_shared_ms, 0.0)
    added_ms = jnp.maximum(parts.shared_ms - rest_ms, 0.0) * point.chunks / point.prompts
    prompt_ms = added_ms + parts.context_attention_ms
    full_ms = prompt_ms if parts.full_prompt_ms is None else parts.full_prompt_ms + parts.context_attention_ms
    return LoopTimes(parts.decode_rest_ms + parts.decode_attention_ms, prompt_ms, prompt_ms, full_ms)


def _loop_point(
    parts: StepParts, point: AggPoint, setting: AggSetting, constants: LoopConstants, replicas: AnyScalar
) -> AggEstimate:
    """The closed loop, whose answers take as many steps as iterations: `progress` tokens come out of each."""
    steps = jnp.maximum(setting.osl - 1.0, 0.0) / setting.progress
    times = loop_times(parts, point, constants, answers=steps)
    loop = ClosedLoop(point.batch * replicas, *(setting.first_wave or ()))
    work = LoopWork(1.0 + steps, setting.dispatch_layers, point.room)
    found = closed_loop_estimate(loop, work, times, constants, ranks=replicas)
    tpot_ms = found.tpot_ms / setting.progress
    return AggEstimate(found.ttft_ms, tpot_ms, found.request_latency_ms, found.seq_per_s)


def agg_points(
    curves: AggCurves,
    gather: AggGather,
    setting: AggSetting,
    numbers: Numbers,
    replicas: Float[AnyArray, " config"],
    *,
    littles_law_cap: bool,
) -> AggEstimate:
    """Estimates of all configurations at all points of a (batch, ctx_tokens) grid.

    Each point gathers a few numbers from the curves of its configuration and applies the formulas. NaN where a latency
    that the point needs is missing.

    Args:
        curves: Latencies of the distinct coordinates.
        gather: Indices and plan.
        setting: What all points share.
        numbers: `serving_numbers` of the backend.
        replicas: Pipeline stages times attention ranks of each configuration.
        littles_law_cap: Whether the rate may not exceed b / request latency. Static.

    Returns:
        Arrays of shape [config, batch, ctx], float32.
    """
    return jax.vmap(
        lambda curve, copies: config_points(curve, gather, setting, numbers, copies, littles_law_cap=littles_law_cap)
    )(curves, replicas)


def config_points(
    curves: AggCurves,
    gather: AggGather,
    setting: AggSetting,
    numbers: Numbers,
    replicas: AnyScalar,
    *,
    littles_law_cap: bool,
) -> AggEstimate:
    """Estimates of one configuration at all points of a grid, as `agg_points` has them; curves without `config`."""
    attention, decode_attention = curves.decode_attention, _take(curves.decode_attention, gather.decode_rows)
    parts = StepParts(
        shared_ms=_take(curves.shared, gather.shared),
        context_attention_ms=curves.context_attention,
        mixed_attention_ms=_take(attention, gather.mixed_rows),
        decode_rest_ms=curves.decode_rest,
        decode_attention_ms=decode_attention,
        decode_shared_ms=curves.decode_shared,
        full_prompt_ms=curves.full_prompt,
    )
    point = AggPoint(*(getattr(gather, name) for name in AggPoint._fields))

    def one(parts: StepParts, point: AggPoint) -> AggEstimate:
        return point_estimate(parts, point, setting, numbers, replicas=replicas, littles_law_cap=littles_law_cap)

    # Axes of the parts and of the plan that each map takes.
    ctx_axes: Any = (StepParts._make((0, 0, 0, None, None, None, 0)), AggPoint._make((None, 0, 0, 0, 0, 0)))
    batch_axes: Any = (StepParts._make((0, None, 0, 0, 0, 0, None)), AggPoint._make((0, 0, None, 0, 0, None)))
    over_batch = jax.vmap(jax.vmap(one, ctx_axes), batch_axes)
    return over_batch(parts, point)


def _take(curve: Float[AnyArray, " knot"], index: Int[AnyArray, "..."]) -> Float[Array, "..."]:
    return jnp.asarray(curve).at[index].get(mode="promise_in_bounds")
