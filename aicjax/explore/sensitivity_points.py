# SPDX-License-Identifier: Apache-2.0
"""Serving points as functions of step times and constants, to be differentiated: in-flight, static, disaggregated.

Each is a sweep over the point and its neighbours in prompt length, answer length and batch. The formulas are those of
`serving`; only the gathering of step times is written anew, for traced ones.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aicjax.constants import Constants, DisaggConstants
from aicjax.explore.agg_sweep import plan_agg_sweep
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.result import Sensitivity
from aicjax.explore.roles import Worker, prompt_kv_bytes
from aicjax.explore.sensitivity import Figures, Point, sensitivities
from aicjax.explore.sensitivity_sides import Neighbours, Side, Times, place_of, side_of, under_loads
from aicjax.explore.static_sweep import plan_static_sweep
from aicjax.serving.agg import AggEstimate, AggPoint, AggSetting
from aicjax.serving.disagg import DisaggEstimate, WorkerCounts, Workers, disagg_estimate
from aicjax.serving.load import Load
from aicjax.serving.point import StepParts, point_estimate, serving_numbers, setting_of
from aicjax.serving.replica import prefills_waited, replica_constants, worker_cost
from aicjax.serving.static import Mode, StaticEstimate, project, static_estimate
from aicjax.serving.worker_cost import KERNELS_ALONE, WorkerCost

SAMPLE_BUCKET = 16  # priced steps of a decode, padded

Sensitivities = tuple[Sensitivity, ...]


class _AggInputs(eqx.Module):
    """What the figures of in-flight batching take; `plan` and `setting` [variant], `capped` static."""

    side: Side
    plan: AggPoint
    setting: AggSetting
    capped: bool = eqx.field(static=True)


def agg_sensitivities(worker: Worker, batch: int, ctx_tokens: int) -> Sensitivities:
    """What moves a point of in-flight batching.

    The budget of a mixed step grows with the prompt, so that the number of mixed steps stays as it is.

    Args:
        worker: The worker in one layout.
        batch: Requests in flight of one attention rank.
        ctx_tokens: Prompt tokens of a mixed step.
    """
    deployment, evaluation = worker.deployment, Evaluation()
    near = Neighbours.of(deployment.load, {"batch_size": batch})
    batches, coordinates, isl = near.batches["batch_size"], evaluation.add(worker), deployment.load.isl
    budgets = [max(1, round(ctx_tokens * load.isl / isl)) for load in near.loads]
    points = zip(under_loads(worker, near.loads), batches, budgets, strict=True)
    sweeps = [plan_agg_sweep(variant, [size], [budget], coordinates) for variant, size, budget in points]
    names = ["shared", "context_attention", "decode_attention", "decode_rest", "decode_other"]
    names += ["full_prompts"] if deployment.load.starts_at_once else []
    places = {name: place_of([getattr(sweep, name) for sweep in sweeps]) for name in names}
    side = side_of(worker, evaluation, near.loads, batches, places, np.zeros(0))
    plans = [sweep.plan for sweep in sweeps]
    counts = ("prefill_steps", "chunks", "drains", "prompts", "room")
    columns = {name: np.array([getattr(plan, name).item() for plan in plans]) for name in counts}
    kinds = {name: values.dtype if name == "drains" else np.float32 for name, values in columns.items()}
    plan = AggPoint(side.batch, **{name: values.astype(kinds[name]) for name, values in columns.items()})
    settings = [setting_of(load, deployment.model.layers) for load in near.loads]
    setting = jax.tree.map(lambda *values: np.array(values, np.float32), *settings)
    inputs = _AggInputs(side, plan, setting, deployment.rules.littles_law_cap)
    read = "loop" if deployment.constants.formulas == "closed_loop" else "serving"
    return sensitivities(Point(_agg_figures, inputs, near.steps, ("op", read)), evaluation, deployment)


def _agg_figures(times: Times, inputs: _AggInputs, constants: Constants) -> Figures:
    side = inputs.side
    mixed_attention, attention = jnp.moveaxis(side.ms(times, "decode_attention"), -1, 0)
    shared_ms, prompts_ms, decode_ms, other_ms = (
        side.ms(times, name)[:, 0] for name in ("shared", "context_attention", "decode_rest", "decode_other")
    )
    full_ms = side.ms(times, "full_prompts")[:, 0] / inputs.plan.room if "full_prompts" in side.places else None
    parts = StepParts(shared_ms, prompts_ms, mixed_attention, decode_ms + other_ms, attention, decode_ms, full_ms)

    def one(parts: StepParts, point: AggPoint, setting: AggSetting) -> AggEstimate:
        numbers, replicas = serving_numbers(constants), side.pp * side.dp
        return point_estimate(parts, point, setting, numbers, replicas=replicas, littles_law_cap=inputs.capped)

    estimate = jax.vmap(one)(parts, inputs.plan, inputs.setting)
    return Figures(estimate.seq_per_s * jnp.maximum(inputs.setting.osl - 1, 1), estimate.ttft_ms, estimate.tpot_ms)


class _StaticInputs(eqx.Module):
    """What the figures of a static batch take; `mode` static."""

    side: Side
    mode: Mode = eqx.field(static=True)


def static_sensitivities(worker: Worker, mode: Mode, batch: int, stride: int) -> Sensitivities:
    """What moves a static batch.

    Args:
        worker: The worker in one layout.
        mode: Which phases run.
        batch: Requests of one attention rank.
        stride: Decode steps that one evaluation prices.
    """
    load, evaluation = worker.deployment.load, Evaluation()
    mode = "static_ctx" if load.osl == 1 else mode  # a prefill yields the whole answer
    near = Neighbours.of(load, {"batch_size": batch})
    side = _static_side(worker, evaluation, mode, near.loads, near.batches["batch_size"], stride)
    point = Point(_static_figures, _StaticInputs(side, mode), near.steps, ("op",))
    return sensitivities(point, evaluation, worker.deployment)


def _static_side(
    worker: Worker, evaluation: Evaluation, mode: Mode, loads: Sequence[Load], batches: Sequence[int], stride: int
) -> Side:
    """A worker that runs static batches, its coordinates added to the evaluation."""
    coordinates = evaluation.add(worker)
    variants = zip(under_loads(worker, loads), batches, strict=True)
    sweeps = [plan_static_sweep(variant, mode, [batch], coordinates, stride) for variant, batch in variants]
    prefills = [sweep.prefill for sweep in sweeps if sweep.prefill is not None]
    decodes = [sweep.decode for sweep in sweeps if sweep.decode is not None]
    places, weights = {}, np.zeros(0)
    if prefills:
        places |= {f"prefill_{name}": place_of([getattr(p, name) for p in prefills]) for name in ("rest", "attention")}
    if decodes:
        places["rest"] = place_of([decode.rest for decode in decodes])
        lengths = ("attention", "other")
        places |= {name: place_of([getattr(d, name) for d in decodes], SAMPLE_BUCKET) for name in lengths}
        width = places["attention"].index.shape[1]
        weights = np.stack([np.pad(decode.weights, (0, width - decode.weights.size)) for decode in decodes])
    return side_of(worker, evaluation, loads, batches, places, weights)


def _static_estimate(times: Times, side: Side, mode: Mode, cost: WorkerCost = KERNELS_ALONE) -> StaticEstimate:
    """The estimate of a worker [variant]."""
    context_ms = generation_ms = jnp.zeros(side.batch.shape)
    if mode != "static_gen":
        context_ms = (side.ms(times, "prefill_rest") + side.ms(times, "prefill_attention"))[:, 0]
        context_ms = cost.prefill_ms(context_ms)
    if mode != "static_ctx":
        steps = side.ms(times, "rest") + side.ms(times, "attention") + side.ms(times, "other")
        generation_ms = cost.decode_ms(jnp.sum(steps * side.weights, -1), side.batch, side.osl - 1)

    def one(context_ms, generation_ms, batch, osl):
        estimate = static_estimate(mode, context_ms, generation_ms, batch * side.dp, osl, side.pp)
        return project(estimate, mode, osl, side.progress)

    return jax.vmap(one)(context_ms, generation_ms, jnp.asarray(side.batch), jnp.asarray(side.osl))


def _static_figures(times: Times, inputs: _StaticInputs, constants: Constants) -> Figures:
    estimate = _static_estimate(times, inputs.side, inputs.mode)
    return Figures(estimate.tokens_per_s, estimate.ttft_ms, estimate.tpot_ms)


class _ReplicaInputs(eqx.Module):
    """What the figures of a replica take.

    Attributes:
        prefill, decode: Its workers.
        counts: How many of each, as `WorkerCounts` of floats.
        handover: KV cache of a prompt relative to that of the point [variant].
        queued: Whether TTFT counts the wait for a prefill worker as a search does; else as a single estimate does.
        layers: Decoder layers.
        waves: Requests of a run, relative to those in flight.
    """

    prefill: Side
    decode: Side
    counts: Any
    handover: Any
    queued: Any
    layers: Any
    waves: Any


def disagg_sensitivities(
    prefill: Worker, decode: Worker, batches: tuple[int, int], workers: tuple[int, int], stride: int, *, queued: bool
) -> Sensitivities:
    """What moves a disaggregated replica, its numbers of workers as they are.

    Throughput is that of the slower side, and so is its slope; of equal sides the mean of both.

    Args:
        prefill, decode: The workers, each in one layout.
        batches: Requests of one attention rank of each.
        workers: Number of each.
        stride: Decode steps that one evaluation prices.
        queued: Whether TTFT counts the wait for a prefill worker as a search does; else as a single estimate does.
    """
    deployment, evaluation = prefill.deployment, Evaluation()
    names = ("prefill_batch_size", "decode_batch_size")
    near = Neighbours.of(deployment.load, dict(zip(names, batches, strict=True)))
    sides = [
        _static_side(worker, evaluation, mode, near.loads, near.batches[name], stride)
        for worker, mode, name in zip((prefill, decode), ("static_ctx", "static_gen"), names, strict=True)
    ]
    cached = [prompt_kv_bytes(deployment.model, deployment.quantisation, deployment.backend, x) for x in near.loads]
    counts: Any = [np.array(count, np.float32) for count in (*workers, 0)]
    handover = np.array(cached, np.float32) / np.float32(cached[0])
    numbers = (np.array(x, np.float32) for x in (deployment.model.layers, deployment.load.waves))
    inputs = _ReplicaInputs(sides[0], sides[1], WorkerCounts(*counts), handover, np.array(queued), *numbers)
    read = ("op", "disagg", "loop") if deployment.constants.formulas == "closed_loop" else ("op", "disagg")
    return sensitivities(Point(_replica_figures, inputs, near.steps, read), evaluation, deployment)


def _replica_figures(times: Times, inputs: _ReplicaInputs, constants: Constants) -> Figures:
    prefill, decode = inputs.prefill, inputs.decode
    handover_ms = constants.disagg.handover_ms * inputs.handover
    constants = dataclasses.replace(constants, disagg=dataclasses.replace(constants.disagg, handover_ms=handover_ms))
    before = _static_estimate(times, prefill, "static_ctx", worker_cost(constants, "prefill", inputs.layers))
    after = _static_estimate(times, decode, "static_gen", worker_cost(constants, "decode", inputs.layers))
    rates = Workers(before.seq_per_s, prefill.gpus), Workers(after.seq_per_s, decode.gpus)

    def estimate(at: DisaggConstants) -> DisaggEstimate:
        return disagg_estimate(*rates, inputs.counts, before.ttft_ms, after.tpot_ms, decode.osl, at, xp=jnp)

    at = replica_constants(constants)
    if constants.formulas == "closed_loop":
        utilisation = estimate(at).seq_per_s / (before.seq_per_s * inputs.counts.prefill)
        asked = jnp.maximum(decode.batch * decode.dp * inputs.counts.decode / (inputs.counts.prefill * prefill.dp), 1.0)
        alone = replica_constants(constants, prefills_waited(constants, utilisation, asked, inputs.waves))
    else:
        alone = at
    found, lone = estimate(at), estimate(alone)
    ttft_ms = jnp.where(inputs.queued, found.ttft_ms, lone.ttft_ms)
    return Figures(found.tokens_per_s, ttft_ms, found.tpot_ms)
