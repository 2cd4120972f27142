# SPDX-License-Identifier: Apache-2.0
"""The in-flight batching experiment: planned, then finished when the step times are there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aicjax._results import AicjaxError
from aicjax.explore.agg_cells import CellLimits, behind_encoders, cell_frame, front_cells
from aicjax.explore.agg_points import AggPoints, Ints, Outcome, front_points, kept_points
from aicjax.explore.agg_sweep import AggSweep, agg_frame, plan_agg_sweep, sweep_points
from aicjax.explore.encode_pool import EncodePool, requested_pool
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.explain import concurrency_in_use, first_reason, limit_reason, memory_use, misfit_reason
from aicjax.explore.frame import Frame
from aicjax.explore.grid import Grid
from aicjax.explore.misfit import missing_error, nothing_fits
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import Explanation, Sensitivity, TaskResult
from aicjax.explore.sensitivity_points import agg_sensitivities
from aicjax.explore.sensitivity_sides import one_layout
from aicjax.explore.shortfall import Limits, Shortfall, latency_shortfall, nearest
from aicjax.explore.static_sweep import StaticSweep, plan_static_sweep, static_points
from aicjax.explore.step_times import agg_steps, encoder_step
from aicjax.explore.targets import Targets, sweep_bounds, sweep_targets
from aicjax.explore.task import Budget, Space, Task, refusals, resolved, role_space
from aicjax.forward.bound import StepCurves
from aicjax.forward.memory import MemorySplit, WorkerMemory


@dataclass(frozen=True)
class AggTask(Task):
    """The experiment, waiting for step times.

    Attributes:
        space: The worker and its lists.
        sweep: Batches and budgets.
        alone: A lone prefill, for what no replica count can lower.
        pool: Choices of encode workers in front; None where the worker encodes.
    """

    space: Space
    sweep: AggSweep
    alone: StaticSweep
    pool: EncodePool | None

    serving_mode: ClassVar[str] = "agg"

    @property
    def backend(self) -> str:
        """Engine."""
        return self.space.worker.deployment.backend

    def finish(self, evaluation: Evaluation) -> TaskResult:
        """The outcome of the experiment."""
        worker = self.space.worker
        curves, rows = evaluation.curves(worker)
        points = sweep_points(
            self.sweep,
            curves,
            rows,
            max_seq_len=self.request.max_seq_len,
            kv_fraction=self.request.free_gpu_memory_fraction,
        )
        points = points.one_by_one() if self.grid.exhaustive else points
        return self.picked(
            self._feasible(points, self.grid),
            lambda: self._shortfall(points, curves, rows),
            resolved=resolved([self.space]),
            refused=refusals([self.space]),
            evaluated=int((points.outcome == Outcome.EVALUATED).sum()),
            explain=lambda row: self._explain(points, curves, rows, row),
            sensitivities=None if worker.deployment.load.images else self._sensitivities,
            coarse=lambda base: self._feasible(self._walked(points, base), base),
        )

    def _walked(self, points: AggPoints, grid: Grid) -> AggPoints:
        """The points that another grid has, walked as a search on it does."""
        load = self.space.worker.deployment.load
        return points.walked(grid.agg.batch, _budgets(grid, load.isl, self.request))

    def _feasible(self, points: AggPoints, grid: Grid) -> Frame:
        """Rows within the limits: of workers, or of cells of them with encode workers."""
        worker = self.space.worker
        if self.pool is None:
            return agg_frame(points, self._kept(points, grid), worker)
        behind = [behind_encoders(points, wait) for wait in self.pool.workers.latency_ms.tolist()]
        rows = [agg_frame(points, self._kept(waiting, grid, below=True), worker) for waiting in behind]
        cells = cell_frame(rows, self.pool, self._cell_limits(grid), worker.deployment.disagg)
        if not grid.exhaustive:
            return cells
        return front_cells(cells, sweep_bounds(self.request, grid.targets), self.budget.objectives(self.request))

    def _kept(self, points: AggPoints, grid: Grid, *, below: bool = False) -> Ints:
        """Flat positions of the points kept; with `below` they stay below the TTFT limit, which others may reach."""
        if grid.exhaustive:
            limits = sweep_bounds(self.request, grid.targets)
        else:
            limits = sweep_targets(self.request, grid.targets)
        if below:
            limits = limits._replace(ttft_ms=np.nextafter(limits.ttft_ms, 0))
        if isinstance(limits, Targets):
            return kept_points(points, limits, grid.agg.keep_per_target)
        return front_points(points, limits, of_batches=self.request.target_concurrency is not None)

    def _cell_limits(self, grid: Grid) -> CellLimits:
        request, encoder = self.request, grid.encoder
        budget = min(self.budget.replica_gpus, request.max_gpu_per_replica or self.budget.replica_gpus)
        sizes = grid.disagg.replica_sizes(budget, large_ep=False, sizes=request.num_gpu_per_replica)
        most = request.max_encoder_workers or encoder.max_workers
        return CellLimits(tuple(sorted(sizes)), encoder.max_agg_workers, most)

    def _shortfall(
        self, points: AggPoints, curves: StepCurves, rows: Sequence[int]
    ) -> tuple[Shortfall | None, AicjaxError]:
        worker, evaluated = self.space.worker, np.flatnonzero(points.outcome == Outcome.EVALUATED)
        if len(evaluated) == 0:
            if (points.outcome == Outcome.MISSING).any():
                return None, missing_error(self.name, worker, curves, rows, points.encoder)
            return nothing_fits(self.name, worker, self._least_memory)
        limits, wait_ms = Limits.of(self.request), 0.0
        if self.pool is not None:
            wait_ms = float(self.pool.workers.latency_ms.min())
            points = behind_encoders(points, wait_ms)
        latencies = (v.ravel()[evaluated] for v in (points.ttft_ms, points.tpot_ms, points.request_latency_ms))
        position, limit, share = nearest(limits, *latencies)
        config, at = divmod(int(evaluated[position]), points.plan.batch.size)
        batch, ctx = points.plan.batch.ravel()[at], points.plan.ctx_tokens.ravel()[at]
        where = f"{points.layouts[config].label}, batch {batch}, ctx_tokens {ctx}"
        alone = static_points(self.alone, curves, rows)
        alone_ms = alone.encoder_ms + alone.context_ms + wait_ms
        alone_ms = float(np.nanmin(alone_ms)) if np.isfinite(alone_ms).any() else np.inf
        if share < 0 and self.pool is not None:
            sizes = list(self._cell_limits(self.grid).sizes)
            detail = f"replica size: no workers with encode workers fill one of {sizes} GPUs"
            shortfall = Shortfall("replica size", None, "", detail)
        else:
            shortfall = latency_shortfall(limits, limit, share, alone_ms, where)
        return shortfall, shortfall.error(self.name)

    def _memory(self, memory: WorkerMemory, batch: int, ctx_tokens: int) -> MemorySplit:
        load = self.space.worker.deployment.load
        return memory.inflight(
            [batch],
            load.text_tokens,
            load.osl,
            [ctx_tokens],
            max_seq_len=self.request.max_seq_len,
            kv_fraction=self.request.free_gpu_memory_fraction,
            images=load.images,
        )

    def _least_memory(self, memory: WorkerMemory) -> MemorySplit:
        plan = self.sweep.plan
        return self._memory(memory, int(plan.batch.min()), int(plan.ctx_tokens.min()))

    def _explain(self, points: AggPoints, curves: StepCurves, positions: Sequence[int], row: dict) -> Explanation:
        labels = [layout.label for layout in points.layouts]
        config = labels.index(row["parallel"])
        batches, budgets = points.plan.batch[:, 0], points.plan.ctx_tokens[0]
        if self.pool is not None:
            points = behind_encoders(points, row["encoder_latency"])
        at = int(np.flatnonzero(batches == row["bs"])[0])
        binding, reason, next_batch = self._next_batch(points, config, at, int(row["ctx_tokens"]), budgets)
        split = self._memory(self.space.worker.memory, row["bs"], row["ctx_tokens"])
        memory, steps = (memory_use("agg", split, config),), encoder_step(points.encoder, config, at)
        if self.pool is not None:
            choice, constants = self.pool.choice(row), self.space.worker.deployment.disagg
            memory, steps = (self.pool.uses[choice], *memory), self.pool.steps[choice]
            capacity = self.pool.workers.take(choice).rate(row["(e)workers"], constants)
            binding = "encode" if capacity <= row["seq/s"] else binding
        ctx = int(np.flatnonzero(budgets == row["ctx_tokens"])[0])
        return Explanation(
            memory=memory,
            binding=binding,
            next_batch=next_batch,
            next_batch_reason=reason,
            concurrency_in_use=concurrency_in_use(row["concurrency"], row["seq/s"], row["request_latency"]),
            steps=steps + agg_steps(self.sweep, curves, positions[config], at, ctx),
        )

    def _sensitivities(self, row: dict) -> tuple[Sensitivity, ...]:
        return agg_sensitivities(one_layout(self.space.worker, row["parallel"]), row["bs"], row["ctx_tokens"])

    def _next_batch(self, points: AggPoints, config: int, at: int, ctx: int, budgets) -> tuple[str, str, int | None]:
        """Binding limit, reason and size of the next larger batch of a layout, with the same budget where it runs."""
        batches = points.plan.batch[:, 0]
        if at + 1 == len(batches):
            return "grid", "the largest batch of the grid", None
        batch = int(batches[at + 1])
        column = int(np.flatnonzero(budgets == ctx)[0])
        where = (config, at + 1, column)
        latencies = (float(v[where]) for v in (points.ttft_ms, points.tpot_ms, points.request_latency_ms))
        unmeasured = ("missing_data", "no measured data") if np.isnan(points.request_latency_ms[where]) else None
        reasons = (
            misfit_reason(self._memory(self.space.worker.memory, batch, ctx), config),
            unmeasured,
            limit_reason(Limits.of(self.request), *latencies),
        )
        binding, reason = first_reason(reasons, ("throughput", "no more throughput per GPU"))
        return binding, reason, batch


def _budgets(grid: Grid, isl: int, request: SearchRequest) -> list[int]:
    """Context-token budgets of a grid."""
    return grid.agg.context_tokens.values(isl, chunked=request.enable_chunked_prefill)


def plan_agg_task(
    name: str, request: SearchRequest, backend: str, budget: Budget, grid: Grid, evaluation: Evaluation
) -> AggTask:
    """The experiment of a request on one engine; adds what it needs to the evaluation.

    Raises:
        InputError: A bad input, or no valid layout.
    """
    space = role_space(request, "agg", backend, budget, grid.layouts)
    coordinates = evaluation.add(space.worker)
    deployment = space.worker.deployment
    load = deployment.load
    return AggTask(
        name=name,
        request=request,
        budget=budget,
        grid=grid,
        space=space,
        sweep=plan_agg_sweep(space.worker, grid.agg.batch, _budgets(grid, load.isl, request), coordinates),
        alone=plan_static_sweep(space.worker, "static_ctx", [1], coordinates, grid.disagg.decode_stride),
        pool=requested_pool(name, request, deployment, grid.encoder),
    )
