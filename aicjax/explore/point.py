# SPDX-License-Identifier: Apache-2.0
"""Estimates of single serving points, with memory and the time of every operator."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aicjax._results import Provenance
from aicjax.explore import frame as frames
from aicjax.explore.afd_point import afd_point
from aicjax.explore.columns import DECIMALS
from aicjax.explore.disagg_sweep import disagg_frame, worker_table
from aicjax.explore.frame import Frame
from aicjax.explore.replicas import one_replica
from aicjax.explore.request import EstimateRequest
from aicjax.explore.result import MemoryUse, StepTimes
from aicjax.explore.roles import deploy
from aicjax.explore.worker_point import STATIC, WorkerPoint, agg_point, resolved, static_point


@dataclass(frozen=True)
class EstimateResult:
    """One serving point.

    Attributes:
        request: What was asked.
        resolved: Per role: system, backend, version, number formats, layout.
        row: The columns of a result row; numbers not rounded, but for `disagg`; absent numbers are None.
        memory: Use of one GPU, for each kind of worker.
        steps: Time of every operator of the steps behind the estimate.
        warnings: What to know about the estimate.
    """

    request: EstimateRequest
    resolved: dict[str, Any]
    row: dict[str, Any]
    memory: tuple[MemoryUse, ...]
    steps: tuple[StepTimes, ...]
    warnings: tuple[str, ...]

    @property
    def provenance(self) -> Provenance:
        """How the least certain operator was obtained."""
        return max(code for step in self.steps for code in step.provenance)


def estimate(request: EstimateRequest | None = None, **fields: Any) -> EstimateResult:
    """The estimate of one point: in-flight batching, a static batch, or a disaggregated deployment.

    A worker that does not fit its GPU is refused; where only the KV cache is over its share, static and in-flight
    estimates carry a warning and a replica is refused. The TTFT of a replica is that of its prefill worker, without the
    correction for queueing that a search applies.

    Args:
        request: The point.
        fields: Fields of an `EstimateRequest` instead.

    Raises:
        InputError: A bad input, or a layout that the model or the engine does not run.
        NoFeasible: The worker does not fit.
        MissingData: An operator has no answer.

    Example:
        >>> import aicjax
        >>> point = aicjax.estimate(model_path="Qwen/Qwen3-8B", system="h200_sxm", batch_size=8)
        >>> point.row["tpot"] > 0
        True
    """
    request = EstimateRequest(**fields) if request is None else request
    if request.mode == "disagg":
        return _disagg(request)
    if request.mode == "afd":
        return EstimateResult(request, **afd_point(request)._asdict())
    part = agg_point(request) if request.mode == "agg" else static_point(request, *STATIC[request.mode])
    return _result(request, [part], part.frame)


def _disagg(request: EstimateRequest) -> EstimateResult:
    constants = deploy(request, "prefill", request.backend).constants.disagg
    corrections = (constants.prefill_latency_correction, constants.decode_latency_correction)
    parts = [
        static_point(request, *STATIC[mode], correction=correction, decimals=DECIMALS, kv_is_fatal=True)
        for mode, correction in zip(("static_ctx", "static_gen"), corrections, strict=True)
    ]
    prefill, decode = (worker_table(part.frame) for part in parts)
    counts = (int(request.prefill_num_workers or 0), int(request.decode_num_workers or 0))
    uncorrected = dataclasses.replace(constants, ttft_correction=1.0)
    replica = one_replica(prefill, decode, *counts, request.osl, uncorrected)
    return _result(request, parts, disagg_frame(parts[0].frame, parts[1].frame, replica))


def _result(request: EstimateRequest, parts: Sequence[WorkerPoint], frame: Frame) -> EstimateResult:
    return EstimateResult(
        request=request,
        resolved={
            part.worker.deployment.role: resolved(part.worker.deployment, part.worker.layouts[0]) for part in parts
        },
        row=frames.row(frame, 0),
        memory=tuple(part.memory for part in parts),
        steps=tuple(step for part in parts for step in part.steps),
        warnings=tuple(warning for part in parts for warning in part.warnings),
    )
