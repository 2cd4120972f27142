# SPDX-License-Identifier: Apache-2.0
"""The phases of a deployment with attention and feed-forward layers on GPUs of their own: layers, steps, memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import numpy as np

from aicjax._results import MissingData, Provenance
from aicjax.explore.afd_memory import pool_memory
from aicjax.explore.columns import AFD_PHASE
from aicjax.explore.evaluation import bind_layouts
from aicjax.explore.request import EstimateRequest
from aicjax.explore.result import MemoryUse, StepTimes
from aicjax.explore.roles import Deployment
from aicjax.forward.bound import StepCurves
from aicjax.models.afd import AfdOperators, AfdTopology
from aicjax.serving.afd import LayerTimes, balance, decode_step_ms, layer_cycle, prefill_step_ms
from aicjax.serving.coordinates import Coordinates, Places
from aicjax.serving.load import Load
from aicjax.serving.static import decode_samples

Phase = Literal["prefill", "decode"]
_POOLS = ("attention", "ffn", "transfer")


@dataclass(frozen=True)
class PhasePoint:
    """One phase of a deployment.

    Attributes:
        scalars: Layer times, step and balance, averaged over the answer, by column [ms].
        memory: Use of an attention and of a feed-forward GPU.
        steps: Operators of the pools and of a transfer, in the first step.
    """

    scalars: Mapping[str, float | bool]
    memory: tuple[MemoryUse, ...]
    steps: tuple[StepTimes, ...]


def phase_points(
    request: EstimateRequest,
    deployment: Deployment,
    topology: AfdTopology,
    operators: AfdOperators,
    phases: tuple[Phase, ...],
) -> dict[Phase, PhasePoint]:
    """Every phase of a deployment, from one evaluation of its pools.

    Args:
        request: The point.
        deployment: Where and how it runs.
        topology: Nodes and cuts.
        operators: Operators of the pools.
        phases: Which phases.

    Raises:
        NoFeasible: A pool does not fit its GPUs.
        MissingData: An operator has no answer.
    """
    batches = {"attention": request.micro_batch_size, "transfer": request.micro_batch_size}
    batches["ffn"] = request.micro_batch_size * topology.attention_workers
    coordinates, load = Coordinates(), deployment.load
    places = {
        phase: {pool: _places(coordinates, phase, load, batches[pool], request.stride) for pool in _POOLS}
        for phase in phases
    }
    bound = bind_layouts(deployment, [getattr(operators, pool) for pool in _POOLS])
    curves = bound.evaluate(coordinates.queries())
    found: dict[Phase, PhasePoint] = {}
    for phase in phases:
        found[phase] = PhasePoint(
            _scalars(request, deployment, phase, places[phase], curves),
            pool_memory(request, deployment, topology, operators, phase, batches),
            tuple(
                _steps(curves, config, f"{phase}, {pool}", places[phase][pool]) for config, pool in enumerate(_POOLS)
            ),
        )
    return found


def _places(coordinates: Coordinates, phase: Phase, load: Load, batch: int, stride: int) -> tuple[Places, ...]:
    """Where the times of a pool lie that runs a batch: one prefill, or the sampled steps of an answer [sample]."""
    if phase == "prefill":
        prompts = ([batch], load.new_tokens, load.prefix)
        return coordinates.context_rest(*prompts), coordinates.context_attention(*prompts)
    rows, (lengths, _) = batch * load.query_rows, decode_samples(load, stride)
    return (
        coordinates.generation_rest([rows]),
        coordinates.generation_attention(rows, lengths),
        coordinates.generation_other(rows, lengths),
    )


def _scalars(
    request: EstimateRequest,
    deployment: Deployment,
    phase: Phase,
    places: Mapping[str, tuple[Places, ...]],
    curves: StepCurves,
) -> dict[str, float | bool]:
    layers = deployment.model.layers
    passes = [sum(part.values(curves)[config] for part in places[pool]) for config, pool in enumerate(_POOLS)]
    attention_ms, ffn_ms, transfer_ms = np.broadcast_arrays(passes[0] / layers, passes[1] / layers, passes[2])
    if not np.isfinite(attention_ms + ffn_ms + transfer_ms).all():
        lacking = [
            name
            for config, pool in enumerate(_POOLS)
            for part in places[pool]
            for name in curves.missing(part.part, config)
        ]
        where = f"{deployment.model.name} on {deployment.system.name}, {deployment.backend} {deployment.version}"
        raise MissingData(f"afd {phase}: no measured data for {', '.join(dict.fromkeys(lacking))} ({where}).")
    transfer_ms = transfer_ms * request.comm_overhead_factor
    times = LayerTimes(attention_ms, ffn_ms, transfer_ms, transfer_ms)
    counts = (np.float32(layers), np.float32(request.num_microbatches))
    step_ms, hidden = _pipeline(times, *counts, request.pipeline_model, phase)
    weights = np.ones(1) if phase == "prefill" else decode_samples(deployment.load, request.stride)[1]
    series = (*times, times.transfer_ms, step_ms)
    means = [np.average(np.asarray(values), weights=weights) for values in series]
    even = balance(LayerTimes(*means[:4]))
    return dict(zip(AFD_PHASE, (*map(float, (*means, even)), bool(hidden[-1])), strict=True))


@eqx.filter_jit
def _pipeline(times: LayerTimes, layers, microbatches, pipeline, phase: Phase):
    cycle = layer_cycle(times, microbatches, pipeline)
    if phase == "prefill":
        return prefill_step_ms(cycle, layers), cycle.hidden
    return decode_step_ms(times, cycle, layers, microbatches), cycle.hidden


def _steps(curves: StepCurves, config: int, name: str, places: tuple[Places, ...]) -> StepTimes:
    """Operators of one pool in its first step, all layers."""
    parts = [curves.breakdown(part.part, config, part.start + int(part.inverse.ravel()[0])) for part in places]
    return StepTimes(
        name,
        tuple(operator for part in parts for operator in part.names),
        tuple(float(value) for part in parts for value in part.latency_ms),
        tuple(Provenance(int(code)) for part in parts for code in part.provenance),
    )
