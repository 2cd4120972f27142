# SPDX-License-Identifier: Apache-2.0
"""Estimates of single serving points, with memory and the time of every operator."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aicjax._results import Provenance
from aicjax.explore import frame as frames
from aicjax.explore.afd_point import afd_point
from aicjax.explore.agg_cells import Cells, cell_rows
from aicjax.explore.columns import DECIMALS
from aicjax.explore.disagg_sweep import disagg_frame, worker_table
from aicjax.explore.encode_pool import EncodePool, encode_pool
from aicjax.explore.frame import Frame
from aicjax.explore.grid import load_grid
from aicjax.explore.open_point import OpenLoad, open_point
from aicjax.explore.replicas import Replicas, one_replica
from aicjax.explore.request import EstimateRequest
from aicjax.explore.result import MemoryUse, Sensitivity, StepTimes
from aicjax.explore.roles import Deployment
from aicjax.explore.sensitivity_points import disagg_sensitivities
from aicjax.explore.worker_point import STATIC, WorkerPoint, agg_point, resolved, static_point
from aicjax.serving.replica import prefills_waited, replica_constants


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
        sensitivities: Which assumptions move it, most first; None where that is not modelled: for attention and
            feed-forward apart, for requests with images and for open loads.
        open_load: What becomes of a stated rate; None unless the load is open.
    """

    request: EstimateRequest
    resolved: dict[str, Any]
    row: dict[str, Any]
    memory: tuple[MemoryUse, ...]
    steps: tuple[StepTimes, ...]
    warnings: tuple[str, ...]
    sensitivities: Callable[[], tuple[Sensitivity, ...]] | None = None
    open_load: OpenLoad | None = None

    @property
    def provenance(self) -> Provenance:
        """How the least certain operator was obtained."""
        return max(code for step in self.steps for code in step.provenance)


def estimate(request: EstimateRequest | None = None, **fields: Any) -> EstimateResult:
    """The estimate of one point: in-flight batching, a static batch, or a disaggregated deployment.

    A worker that does not fit its GPU is refused; where only the KV cache is over its share, static and in-flight
    estimates carry a warning and a replica is refused. By the mean field, the TTFT of a replica is that of a search,
    without its factor where encode workers run; by the closed loop, it has the wait at the utilisation of the prefill
    workers, where a search has that at the highest.

    Args:
        request: The point.
        fields: Fields of an `EstimateRequest` instead.

    Raises:
        InputError: A bad input, or a layout that the model or the engine does not run.
        NoFeasible: The worker does not fit.
        MissingData: An operator has no answer.

    Examples:
        >>> import aicjax
        >>> point = aicjax.estimate(model_path="Qwen/Qwen3-8B", system="h200_sxm", batch_size=8)
        >>> point.row["tpot"] > 0
        True
    """
    request = EstimateRequest(**fields) if request is None else request
    if request.mode == "disagg":
        return _disagg(request)
    if request.load == "open":
        part, load = open_point(request)
        return dataclasses.replace(_result(request, [part], part.frame), open_load=load)
    if request.mode == "afd":
        return EstimateResult(request, **afd_point(request)._asdict())
    part = agg_point(request) if request.mode == "agg" else static_point(request, *STATIC[request.mode])
    if not request.enable_epd:
        return _result(request, [part], part.frame, moves=part.sensitivities)
    deployment = part.worker.deployment
    pool, encoders = _pool(request, deployment)
    frame = cell_rows(part.frame, Cells.one(1, encoders), 0, pool, deployment.disagg)
    return _result(request, [part], frame, pool)


def _pool(request: EstimateRequest, deployment: Deployment) -> tuple[EncodePool, int]:
    """The encode worker of a point, and how many there are."""
    tp, batch = request.encoder_tp or 1, request.encoder_batch_size or 1
    pool = encode_pool(request.mode, deployment, load_grid().encoder, tp=[tp], batches=[batch])
    return pool, request.encoder_num_workers or 1


def _disagg(request: EstimateRequest) -> EstimateResult:
    parts = [
        static_point(request, *STATIC[mode], decimals=DECIMALS, kv_is_fatal=True)
        for mode in ("static_ctx", "static_gen")
    ]
    prefill, decode = (worker_table(part.frame) for part in parts)
    counts = (int(request.prefill_num_workers or 0), int(request.decode_num_workers or 0))
    deployment = parts[0].worker.deployment
    pool, encoders = _pool(request, deployment) if request.enable_epd else (None, 0)
    encode = (encoders, None if pool is None else pool.workers)
    osl, constants = deployment.load.mean.osl, deployment.disagg
    if request.enable_epd:
        constants = dataclasses.replace(constants, ttft_correction=1.0)
    replica = one_replica(prefill, decode, *counts, osl, constants, *encode)
    if deployment.constants.formulas == "closed_loop":
        constants = replica_constants(deployment.constants, _wait(deployment, parts, counts, replica))
        replica = one_replica(prefill, decode, *counts, osl, constants, *encode)
    batches = (int(parts[0].frame["bs"][0]), int(parts[1].frame["bs"][0]))
    moves = functools.partial(
        disagg_sensitivities, parts[0].worker, parts[1].worker, batches, counts, request.stride, queued=False
    )
    return _result(request, parts, disagg_frame(parts[0].frame, parts[1].frame, replica, pool), pool, moves)


def _wait(deployment: Deployment, parts: Sequence[WorkerPoint], counts: tuple[int, int], replica: Replicas) -> float:
    """Prefills that a prompt of a replica waits for, at the utilisation of its prefill workers."""
    prefill, decode = (part.frame for part in parts)
    ranks = counts[0] * parts[0].worker.layouts[0].dp
    utilisation = float(replica.estimate.seq_per_s[0] / (prefill["seq/s"][0] * counts[0]))
    asked = max(1.0, float(decode["concurrency"][0] * counts[1] / ranks))
    return float(prefills_waited(deployment.constants, utilisation, asked, deployment.load.waves))


def _result(
    request: EstimateRequest,
    parts: Sequence[WorkerPoint],
    frame: Frame,
    pool: EncodePool | None = None,
    moves: Callable[[], tuple[Sensitivity, ...]] | None = None,
) -> EstimateResult:
    memory, steps = ((), ()) if pool is None else (pool.uses, pool.steps[0])
    return EstimateResult(
        request=request,
        resolved={
            part.worker.deployment.role: resolved(
                part.worker.deployment, part.worker.layouts[0], part.worker.exchanges[0]
            )
            for part in parts
        },
        row=frames.row(frame, 0),
        memory=memory + tuple(part.memory for part in parts),
        steps=steps + tuple(step for part in parts for step in part.steps),
        warnings=tuple(warning for part in parts for warning in part.warnings),
        sensitivities=None if request.has_images else moves,
    )
