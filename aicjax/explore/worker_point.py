# SPDX-License-Identifier: Apache-2.0
"""One kind of worker at one point: in-flight batching or a static batch, with memory and the time of every operator."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicjax._results import InputError, NoFeasible
from aicjax.explore.agg_sweep import agg_frame, plan_agg_sweep, sweep_points
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.explain import memory_use, misfit_reason
from aicjax.explore.frame import Frame
from aicjax.explore.misfit import Memory, memory_shortfall, missing_error
from aicjax.explore.request import EstimateRequest
from aicjax.explore.result import MemoryUse, Sensitivity, StepTimes
from aicjax.explore.roles import Deployment, Worker, deploy, worker
from aicjax.explore.sensitivity_points import agg_sensitivities, static_sensitivities
from aicjax.explore.space import Role
from aicjax.explore.static_sweep import plan_static_sweep, static_frame, static_points
from aicjax.explore.step_times import agg_steps, encoder_step, static_steps
from aicjax.forward.bound import StepCurves
from aicjax.forward.encoder import EncoderTimes
from aicjax.forward.memory import MemorySplit, Verdict, WorkerMemory
from aicjax.models import LargeEp, ModelConfig, Parallel
from aicjax.serving.static import Mode
from aicjax.serving.worker_cost import KERNELS_ALONE

STATIC: dict[str, tuple[Role, Mode]] = {
    "static": ("agg", "static"),
    "static_ctx": ("prefill", "static_ctx"),
    "static_gen": ("decode", "static_gen"),
}


@dataclass(frozen=True)
class WorkerPoint:
    """One kind of worker at one point.

    Attributes:
        worker: The worker in its one layout.
        frame: One row.
        memory: Use of one GPU.
        steps: Time of every operator of its steps.
        warnings: What to know about it.
        sensitivities: What moves it.
    """

    worker: Worker
    frame: Frame
    memory: MemoryUse
    steps: tuple[StepTimes, ...]
    warnings: tuple[str, ...]
    sensitivities: Callable[[], tuple[Sensitivity, ...]]


def agg_point(request: EstimateRequest) -> WorkerPoint:
    """In-flight batching.

    Raises:
        InputError: A layout that the model or the engine does not run.
        NoFeasible: The worker does not fit.
        MissingData: An operator has no answer.
    """
    target = point_worker(request, "agg")
    load, batch = target.deployment.load, request.batch_size
    ctx_tokens = request.ctx_tokens or request.isl
    room = max(batch - 1, 1) * load.isl
    if ctx_tokens > room:
        raise InputError("ctx_tokens", ctx_tokens, f"at most {room}: a step of batch {batch} must keep a decode row")
    evaluation = Evaluation()
    sweep = plan_agg_sweep(target, [batch], [ctx_tokens], evaluation.add(target))
    curves, (config,) = evaluation.curves(target)
    limits = {"max_seq_len": request.max_seq_len, "kv_fraction": request.free_gpu_memory_fraction}
    points = sweep_points(sweep, curves, [config], **limits)
    _check_data(request, target, points.request_latency_ms, curves, config, points.encoder)

    def memory(bound: WorkerMemory) -> MemorySplit:
        return bound.inflight([batch], load.text_tokens, load.osl, [ctx_tokens], images=load.images, **limits)

    steps = encoder_step(points.encoder, 0, 0) + agg_steps(sweep, curves, config, batch=0, ctx=0)
    frame = agg_frame(points, np.zeros(1, np.int64), target, decimals=None)
    moves = functools.partial(agg_sensitivities, target, batch, ctx_tokens)
    return _estimated(target, frame, memory, steps, moves, kv_is_fatal=False)


def static_point(
    request: EstimateRequest,
    role: Role,
    mode: Mode,
    *,
    decimals: int | None = None,
    kv_is_fatal: bool = False,
) -> WorkerPoint:
    """A static batch; errors as `agg_point`.

    Args:
        request: The point.
        role: Whose settings count.
        mode: Which phases run.
        decimals: Decimals that numbers are rounded to; None keeps them whole.
        kv_is_fatal: Whether a KV cache over its share is refused.
    """
    target = point_worker(request, role)
    load, cost = target.deployment.load, KERNELS_ALONE
    if request.mode == "disagg" and role != "agg":
        cost = target.deployment.cost(role)
    batch = int(_setting(request, role, "batch_size"))
    limits = {
        "max_seq_len": _setting(request, role, "max_seq_len"),
        "kv_fraction": _setting(request, role, "free_gpu_memory_fraction"),
    }
    evaluation = Evaluation()
    sweep = plan_static_sweep(target, mode, [batch], evaluation.add(target), request.stride)
    curves, (config,) = evaluation.curves(target)
    points = static_points(sweep, curves, [config], cost=cost, **limits)
    latency_ms = points.encoder_ms + points.context_ms + points.generation_ms
    _check_data(request, target, latency_ms, curves, config, points.encoder)

    def memory(bound: WorkerMemory) -> MemorySplit:
        lengths = load.text_tokens, load.osl
        return bound.static([batch], *lengths, phase=mode, prefix=load.prefix, images=load.images, **limits)

    prefix = f"{role} worker, " if request.mode in ("disagg", "afd") else ""
    steps = encoder_step(points.encoder, 0, 0, correction=cost.correction, worker=prefix)
    steps += static_steps(sweep, curves, config, batch=0, correction=cost.correction, worker=prefix)
    frame = static_frame(sweep, points, np.ones((1, 1), bool), decimals=decimals)
    moves = functools.partial(static_sensitivities, target, mode, batch, request.stride)
    return _estimated(target, frame, memory, steps, moves, kv_is_fatal=kv_is_fatal)


def point_worker(request: EstimateRequest, role: Role) -> Worker:
    """The worker of a role in the one layout asked for."""
    deployment = deploy(request, role, request.backend)
    layout = _layout(request, role, deployment.model)
    if not deployment.rules.runs(layout):
        raise InputError("parallel", layout.label, f"a layout that {request.backend} runs")
    return worker(deployment, [layout])


def _layout(request: EstimateRequest, role: Role, model: ModelConfig) -> Parallel:
    sizes = [_setting(request, role, f"{axis}_size") for axis in ("tp", "pp", "attention_dp", "moe_tp", "moe_ep")]
    tp, pp, dp, moe_tp, moe_ep = sizes
    if not model.is_moe:
        for name, size in (("attention_dp_size", dp), ("moe_tp_size", moe_tp), ("moe_ep_size", moe_ep)):
            if size not in (None, 1):
                raise InputError(name, size, f"1 for {model.name}, which has no experts")
        return Parallel(tp, pp)
    width = tp * dp
    if moe_tp is None and moe_ep is None:
        raise InputError("moe_ep_size", None, f"given, or moe_tp_size: {model.name} has experts")
    moe_tp = moe_tp or max(width // moe_ep, 1)
    return Parallel(tp, pp, dp, moe_tp, moe_ep or max(width // moe_tp, 1))


def _setting(request: EstimateRequest, role: Role, name: str) -> Any:
    """A setting of one role of a replica, or the shared one."""
    if request.mode != "disagg" or role == "agg":
        return getattr(request, name)
    return request.of_role(role, name)


def _check_data(
    request: EstimateRequest,
    target: Worker,
    latency_ms: np.ndarray,
    curves: StepCurves,
    config: int,
    encoder: EncoderTimes | None,
) -> None:
    if not np.isfinite(latency_ms).all():
        raise missing_error(request.mode, target, curves, [config], encoder)


def _estimated(
    target: Worker,
    frame: Frame,
    memory: Memory,
    steps: Sequence[StepTimes],
    sensitivities: Callable[[], tuple[Sensitivity, ...]],
    *,
    kv_is_fatal: bool,
) -> WorkerPoint:
    """The worker with its memory.

    Raises:
        NoFeasible: It does not fit.
    """
    split, role = memory(target.memory), target.deployment.role
    verdict = Verdict(int(split.verdict.ravel()[0]))
    if verdict is Verdict.DOES_NOT_FIT or (verdict is Verdict.KV_DOES_NOT_FIT and kv_is_fatal):
        raise NoFeasible(f"{memory_shortfall(target, memory).detail}.")
    misfit = misfit_reason(split, 0)
    warnings = (f"KV cache does not fit: {misfit[1]}",) if misfit is not None else ()
    return WorkerPoint(target, frame, memory_use(role, split, 0), tuple(steps), warnings, sensitivities)


def resolved(deployment: Deployment, layout: Parallel, exchange: LargeEp | None = None) -> dict[str, Any]:
    """What a request left open about one kind of worker.

    Args:
        deployment: Where and how it runs.
        layout: Its layout.
        exchange: How it exchanges tokens between experts over many GPUs.
    """
    return {
        "family": deployment.model.family,
        "system": deployment.system.name,
        "backend": deployment.backend,
        "version": deployment.version,
        "quantisation": dataclasses.asdict(deployment.formats(exchange)),
        "layout": layout.label,
        "large_ep": exchange and {phase: exchange.library(phase) for phase in deployment.phases},
    }
