# SPDX-License-Identifier: Apache-2.0
"""The experiment with attention and feed-forward layers apart: planned, then finished when prefill times are there."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aicjax._results import AicjaxError, NoFeasible
from aicjax.constants import DisaggConstants
from aicjax.explore import frame as frames
from aicjax.explore.afd_choice import joined, kept_points
from aicjax.explore.afd_frame import distinct, pool_frame, pools_of, with_prefill
from aicjax.explore.afd_memory import Limits as MemoryLimits
from aicjax.explore.afd_space import afd_candidates
from aicjax.explore.afd_sweep import AfdPoints, AfdSweep
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.frame import Frame
from aicjax.explore.grid import Grid
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import TaskResult
from aicjax.explore.roles import deploy
from aicjax.explore.shortfall import Limits, Shortfall, latency_shortfall, nearest
from aicjax.explore.static_sweep import StaticSweep, plan_static_sweep, static_frame, static_points
from aicjax.explore.targets import sweep_targets
from aicjax.explore.task import Budget, Space, Task, refusals, resolved, role_space
from aicjax.forward.memory import Verdict
from aicjax.serving.afd_prefill import PrefillLimits, PrefillWorkers, match_prefill


@dataclass(frozen=True)
class AfdTask(Task):
    """The experiment, waiting for the times of its prefill workers.

    Attributes:
        sweep: The pools.
        prefill: Prefill workers; None where prefill is left out.
        prefill_sweep: Their batches.
    """

    sweep: AfdSweep
    prefill: Space | None
    prefill_sweep: StaticSweep | None

    serving_mode: ClassVar[str] = "afd"

    @property
    def backend(self) -> str:
        """Engine."""
        return self.sweep.deployment.backend

    def finish(self, evaluation: Evaluation) -> TaskResult:
        """The outcome of the experiment."""
        points = self.sweep.points()
        feasible = self._feasible(points, self._prefill_workers(evaluation))
        spaces = [self.prefill] if self.prefill is not None else []
        return self.picked(
            feasible,
            lambda: self._shortfall(points, feasible),
            resolved=resolved(spaces) if spaces else {"backend_version": self.sweep.deployment.version},
            refused=(*self.sweep.candidates.refused, *refusals(spaces)),
            evaluated=int(np.isfinite(points.times.step_ms).sum()),
        )

    def _prefill_workers(self, evaluation: Evaluation) -> Frame | None:
        """Rows of prefill workers that fit, not rounded; None where prefill is left out."""
        if self.prefill_sweep is None:
            return None
        curves, positions = evaluation.curves(self.prefill_sweep.worker)
        fraction = self.request.free_gpu_memory_fraction
        points = static_points(self.prefill_sweep, curves, positions, kv_fraction=fraction)
        usable = np.isfinite(points.context_ms) & (points.verdict != Verdict.DOES_NOT_FIT)
        return static_frame(self.prefill_sweep, points, usable, decimals=None)

    def _feasible(self, points: AfdPoints, prefill: Frame | None) -> Frame:
        """Rows that meet the sweep's targets, best tokens/s/GPU first."""
        request, afd = self.request, self.grid.afd
        targets = sweep_targets(request, self.grid.targets)
        kept = kept_points(points, targets.tpot_ms, afd.batch_step, request.afd_max_a_batch_size)
        parts = []
        for ttft_ms in dict.fromkeys(targets.ttft_ms.tolist()):
            chosen = [rows for rows, limit in zip(kept, targets.ttft_ms, strict=True) if limit == ttft_ms]
            pools = pool_frame(self.sweep, points, joined(chosen, points))
            parts.append(pools if prefill is None else self._beside(pools, prefill, ttft_ms))
        rows = frames.concatenate(parts)
        within = rows["num_total_gpus"] <= self._gpus
        if request.request_latency is not None:
            within &= rows["request_latency"] <= request.request_latency
        rows = distinct(frames.take(rows, within))
        return frames.take(rows, np.argsort(-rows["tokens/s/gpu"], kind="stable"))

    def _beside(self, pools: Frame, prefill: Frame, ttft_ms: float) -> Frame:
        """The pools with the prefill workers that suit them best within a TTFT."""
        request = self.request
        limits = PrefillLimits(
            gpus=self._gpus,
            prefill_gpus=request.afd_max_prefill_gpus,
            prefill_workers=request.afd_max_prefill_workers,
            ttft_ms=ttft_ms,
            request_latency_ms=request.request_latency,
        )
        workers = PrefillWorkers(prefill["seq/s"], prefill["num_total_gpus"], prefill["ttft"])
        constants = self._constants
        matched = match_prefill(pools_of(pools), workers, limits, constants)
        rows = with_prefill(pools, prefill, matched, constants.ttft_correction)
        return frames.take(rows, rows["ttft"] <= ttft_ms)

    @property
    def _gpus(self) -> int:
        return self.request.afd_total_gpus or self.budget.gpus

    @property
    def _constants(self) -> DisaggConstants:
        request = self.request
        stated = {
            "prefill_degradation": request.afd_prefill_degradation,
            "pool_degradation": request.afd_decode_degradation,
            "ttft_correction": request.afd_ttft_correction_factor,
        }
        changed = {name: value for name, value in stated.items() if value is not None}
        return dataclasses.replace(self.sweep.deployment.disagg, **changed)

    def _nothing(self, points: AfdPoints) -> str:
        """Why no deployment is left."""
        tried = f"{len(self.sweep.candidates.topology)} deployments within {self._gpus} GPUs"
        pools = min(topology.gpus for topology in self.sweep.candidates.topologies)
        if self.prefill is not None:
            smallest = min(layout.gpus for layout in self.prefill.worker.layouts)
            if pools + smallest > self._gpus:
                return f"two pools take {pools} GPUs, and none of {self._gpus} is left to prefill workers"
        return (
            f"of {tried}, none fits its GPUs" if not points.memory.fits.any() else f"of {tried}, none meets the limits"
        )

    def _shortfall(self, points: AfdPoints, feasible: Frame) -> tuple[Shortfall | None, AicjaxError]:
        if frames.length(feasible) == 0:
            return None, NoFeasible(f"{self.name}: {self._nothing(points)}.")
        limits = Limits.of(self.request)
        at, limit, share = nearest(limits, *(feasible[name] for name in ("ttft", "tpot", "request_latency")))
        row = frames.row(feasible, at)
        shortfall = latency_shortfall(limits, limit, share, 0.0, f"{row['parallel']}, batch {row['(a)bs']}")
        return shortfall, shortfall.error(self.name)


def plan_afd_task(
    name: str, request: SearchRequest, backend: str, budget: Budget, grid: Grid, evaluation: Evaluation
) -> AfdTask:
    """The experiment of a request on one engine; adds what its prefill workers need to the evaluation.

    Raises:
        InputError: A bad input, no valid layout, or more candidates than allowed.
        NoFeasible: The budget has no two nodes, or there is nothing to decode.
        UnsupportedModel: The model cannot be split.
    """
    if request.osl < 2:
        raise NoFeasible(f"{name}: one output token leaves nothing to decode.")
    if request.load == "closed":
        raise NoFeasible(f"{name}: a first wave (load closed) is not modelled.")
    if request.has_images:
        raise NoFeasible(f"{name}: the pools run language models alone, but requests have images.")
    deployment = deploy(request, "agg", backend)
    gpus = request.afd_total_gpus or budget.gpus
    try:
        candidates = afd_candidates(request, deployment, gpus, grid.afd)
    except NoFeasible as error:
        raise NoFeasible(f"{name}: {error}") from None
    step, most = grid.afd.batch_step, request.afd_max_a_batch_size
    batches = np.array([*grid.afd.low_batches, *range(step, most + 1, step)])
    sweep = AfdSweep(
        deployment=deployment,
        candidates=candidates,
        batches=batches,
        stride=grid.disagg.decode_stride,
        overhead=request.afd_comm_overhead_factor,
        correction=request.afd_decode_latency_correction,
        boundary_on_attention=request.afd_boundary_on_attn,
        limits=MemoryLimits(request.max_seq_len, request.free_gpu_memory_fraction),
    )
    if not request.afd_combined_with_pd:
        return AfdTask(name, request, budget, grid, sweep, None, None)
    prefill = role_space(request, "prefill", backend, budget, grid.layouts)
    listed = request.afd_prefill_batch_size_list or grid.afd.prefill_batches
    coordinates = evaluation.add(prefill.worker)
    prefill_sweep = plan_static_sweep(prefill.worker, "static_ctx", listed, coordinates, grid.disagg.decode_stride)
    return AfdTask(name, request, budget, grid, sweep, prefill, prefill_sweep)
