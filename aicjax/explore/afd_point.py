# SPDX-License-Identifier: Apache-2.0
"""The estimate of one deployment with attention and feed-forward layers on GPUs of their own."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from aicjax._units import MS_PER_S
from aicjax.explore import columns
from aicjax.explore import frame as frames
from aicjax.explore.afd_phases import Phase, PhasePoint, phase_points
from aicjax.explore.afd_space import pool_operators
from aicjax.explore.request import EstimateRequest
from aicjax.explore.result import MemoryUse, StepTimes
from aicjax.explore.roles import Deployment, deploy
from aicjax.explore.worker_point import STATIC, WorkerPoint, resolved, static_point
from aicjax.models.afd import AfdTopology

_PHASES: tuple[Phase, ...] = ("prefill", "decode")


class AfdPoint(NamedTuple):
    """Fields of an `EstimateResult`."""

    resolved: dict[str, Any]
    row: dict[str, Any]
    memory: tuple[MemoryUse, ...]
    steps: tuple[StepTimes, ...]
    warnings: tuple[str, ...]


def afd_point(request: EstimateRequest) -> AfdPoint:
    """The estimate of a deployment, with ordinary workers for the other phase where the request says so.

    Raises:
        InputError: A cut that the model or the nodes do not have.
        UnsupportedModel: The model cannot be split.
        NoFeasible: A pool or the ordinary worker does not fit its GPUs.
        MissingData: An operator has no answer.
    """
    phase = request.afd_phase
    deployment = deploy(request, "agg" if phase == "both" else phase, request.backend)
    topology = AfdTopology(
        attention_nodes=int(request.n_a_nodes or 0),
        ffn_nodes=int(request.n_f_nodes or 0),
        gpus_per_node=deployment.system.gpus_per_node,
        attention_tp=request.a_tp_size,
        ffn_ep=request.f_moe_ep_size,
    )
    operators = pool_operators(deployment, topology, boundary_on_attention=request.afd_boundary_on_attn)
    phases = _PHASES if phase == "both" else (phase,)
    points = phase_points(request, deployment, topology, operators, phases)
    row = _row(request, deployment, topology, points)
    memory = [use for uses in zip(*(point.memory for point in points.values()), strict=True) for use in uses]
    layouts = topology.layouts(deployment.model)
    found = {role: resolved(deployment, layout) for role, layout in zip(("attention", "ffn"), layouts, strict=True)}
    steps = [step for point in points.values() for step in point.steps]
    if phase == "both" or not request.afd_combined_with_pd:
        return AfdPoint(found, row, tuple(memory), tuple(steps), ())
    role, mode = STATIC["static_gen" if phase == "prefill" else "static_ctx"]
    other = static_point(request, role, mode)
    found[role] = resolved(other.worker.deployment, other.worker.layouts[0], other.worker.exchanges[0])
    combined = _combined(row, other, phase, deployment.load.osl)
    return AfdPoint(found, combined, (*memory, other.memory), (*steps, *other.steps), other.warnings)


def _row(
    request: EstimateRequest, deployment: Deployment, topology: AfdTopology, points: Mapping[Phase, PhasePoint]
) -> dict[str, Any]:
    """The columns of AFD rows; absent numbers are None."""
    load, workers = deployment.load, topology.attention_workers
    none: Mapping[str, Any] = dict.fromkeys(columns.AFD_PHASE)
    by_phase = {phase: points[phase].scalars if phase in points else none for phase in _PHASES}
    ttft, tpot = (by_phase[phase]["t_step"] or 0.0 for phase in _PHASES)
    total = workers * request.a_batch_size
    tpot = tpot / load.progress
    tokens_per_s = total * MS_PER_S / tpot if tpot else 0.0
    seq_per_s = tokens_per_s / load.osl
    attention, ffn = (max(point.memory[at].total for point in points.values()) for at in (0, 1))
    values = {
        "model": deployment.model.name,
        "phase": request.afd_phase,
        "isl": request.isl,
        "osl": load.osl,
        "gpus_per_node": topology.gpus_per_node,
        "(a)nodes": topology.attention_nodes,
        "(a)tp": topology.attention_tp,
        "(a)bs": request.a_batch_size,
        "(a)micro_bs": request.micro_batch_size,
        "(a)workers": workers,
        "(a)memory": attention,
        "(a)is_oom": False,
        "(f)nodes": topology.ffn_nodes,
        "(f)tp": topology.ffn_gpus,
        "(f)ep": topology.ffn_ep,
        "(f)workers": topology.ffn_gpus,
        "(f)memory": ffn,
        "(f)is_oom": False,
        **(none if len(points) > 1 else by_phase[next(iter(points))]),
        **{f"{phase}_{name}": value for phase, scalars in by_phase.items() for name, value in scalars.items()},
        "ttft": ttft,
        "tpot": tpot,
        "request_latency": ttft + tpot * (load.osl - 1),
        "b_total": total,
        "b_micro_total": workers * request.micro_batch_size,
        "tokens/s": tokens_per_s,
        "tokens/s/gpu": tokens_per_s / topology.gpus,
        "tokens/s/user": MS_PER_S / tpot if tpot else 0.0,
        "seq/s": seq_per_s,
        "request_rate": seq_per_s,
        "concurrency": total,
        "parallel": topology.label,
        "pipeline_model": request.pipeline_model,
        "num_microbatches": request.num_microbatches,
        "nextn": load.nextn,
        "combined_with_pd": request.afd_combined_with_pd,
        "boundary_on_attn": request.afd_boundary_on_attn,
        "(p)impl": "afd" if len(points) > 1 else None,
        "(d)impl": "afd" if len(points) > 1 else None,
        "num_total_gpus": topology.gpus,
        "memory": max(attention, ffn),
        "backend": deployment.backend,
        "version": deployment.version,
        "system": deployment.system.name,
        "power_w": None,
    }
    return {name: values.get(name) for name in columns.AFD}


def _combined(row: Mapping[str, Any], other: WorkerPoint, afd_phase: Phase, osl: int) -> dict[str, Any]:
    """The row with the other phase on an ordinary worker: the slower of the two gives the rate."""
    ordinary = frames.row(other.frame, 0)
    decodes = afd_phase == "decode"
    prefill, decode = (ordinary, row) if decodes else (row, ordinary)
    prefill_rate = ordinary["seq/s"] if decodes else row["b_total"] * MS_PER_S / row["ttft"]
    seq_per_s = min(prefill_rate, decode["seq/s"])
    gpus = row["num_total_gpus"] + ordinary["num_total_gpus"]
    return {
        **row,
        "ttft": prefill["ttft"],
        "tpot": decode["tpot"],
        "request_latency": prefill["ttft"] + decode["tpot"] * (osl - 1),
        "seq/s": seq_per_s,
        "request_rate": seq_per_s,
        "tokens/s": seq_per_s * osl,
        "tokens/s/gpu": seq_per_s * osl / gpus,
        "tokens/s/user": MS_PER_S / decode["tpot"],
        "concurrency": decode["concurrency"],
        "num_total_gpus": gpus,
        "memory": max(row["memory"], ordinary["memory"]),
        "(p)impl": "static_ctx" if decodes else "afd",
        "(d)impl": "afd" if decodes else "static_gen",
    }
