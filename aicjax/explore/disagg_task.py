# SPDX-License-Identifier: Apache-2.0
"""The disaggregated experiment: planned, then finished when the step times are there."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aicjax._results import AicjaxError, NoFeasible
from aicjax.explore import frame as frames
from aicjax.explore.columns import DECIMALS
from aicjax.explore.disagg_sweep import replica_limits, sweep_fronts, sweep_replicas
from aicjax.explore.encode_pool import EncodePool, requested_pool
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.explain import concurrency_in_use, first_reason, limit_reason, memory_use, misfit_reason
from aicjax.explore.frame import Frame
from aicjax.explore.grid import Grid
from aicjax.explore.misfit import missing_error, nothing_fits
from aicjax.explore.objective import in_flight
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import Explanation, MemoryUse, Sensitivity, StepTimes, TaskResult
from aicjax.explore.sensitivity_points import disagg_sensitivities
from aicjax.explore.sensitivity_sides import one_layout
from aicjax.explore.shortfall import Limits, Shortfall, latency_shortfall, nearest
from aicjax.explore.static_sweep import StaticSweep, fitting, plan_static_sweep, static_frame, static_points
from aicjax.explore.step_times import encoder_step, static_steps
from aicjax.explore.targets import sweep_bounds, sweep_targets
from aicjax.explore.task import Budget, Space, Task, refusals, resolved, role_space
from aicjax.forward.bound import StepCurves
from aicjax.forward.encoder import EncoderTimes
from aicjax.forward.memory import MemorySplit, WorkerMemory
from aicjax.serving.disagg import ReplicaLimits
from aicjax.serving.worker_cost import WorkerCost

_ROUNDING = 10.0**-DECIMALS  # of the rates of rows


@dataclass(frozen=True)
class _Side:
    """One role when its step times are there.

    Attributes:
        sweep: Its sweep.
        rows: Candidate workers, one row each.
        curves: Step times of its engine.
        positions: Its layouts on the config axis.
        cost: What it costs beyond its kernels.
        evaluated: Points evaluated.
        missing: Whether points without data were passed over.
        encoder: Times of the vision encoder; None without one.
    """

    sweep: StaticSweep
    rows: Frame
    curves: StepCurves
    positions: Sequence[int]
    cost: WorkerCost
    evaluated: int
    missing: bool
    encoder: EncoderTimes | None

    def steps(self, role: str, row: dict, prefix: str) -> tuple[StepTimes, ...]:
        """Operators behind the worker of a replica."""
        config = self.positions[_config(self.sweep, row, prefix)]
        batch = int(np.flatnonzero(self.sweep.batches == row[f"{prefix}bs"])[0])
        named = {"correction": self.cost.correction, "worker": f"{role} worker, "}
        steps = encoder_step(self.encoder, _config(self.sweep, row, prefix), batch, **named)
        return steps + static_steps(self.sweep, self.curves, config, batch, **named)


@dataclass(frozen=True)
class DisaggTask(Task):
    """The experiment, waiting for step times.

    Attributes:
        prefill, decode: The workers and their lists.
        prefill_sweep, decode_sweep: Their batches.
        pool: Choices of encode workers in front; None where prefill workers encode.
    """

    prefill: Space
    decode: Space
    prefill_sweep: StaticSweep
    decode_sweep: StaticSweep
    pool: EncodePool | None

    serving_mode: ClassVar[str] = "disagg"

    @property
    def backend(self) -> str:
        """Engine."""
        return self.prefill.worker.deployment.backend

    def finish(self, evaluation: Evaluation) -> TaskResult:
        """The outcome of the experiment."""
        request, deployment = self.request, self.prefill.worker.deployment
        constants = deployment.disagg
        prefill = self._side(self.prefill_sweep, deployment.cost("prefill"), evaluation)
        decode = self._side(self.decode_sweep, self.decode.worker.deployment.cost("decode"), evaluation)
        return self.picked(
            self._feasible(prefill.rows, decode.rows, self.grid),
            lambda: self._shortfall(prefill, decode, self._limits(self.grid).sizes),
            resolved=resolved([self.prefill, self.decode]) | {"corrections": dataclasses.asdict(constants)},
            refused=refusals([self.prefill, self.decode]),
            evaluated=prefill.evaluated + decode.evaluated,
            explain=lambda row: self._explain(prefill, decode, row),
            sensitivities=None if self.prefill.worker.deployment.load.images else self._sensitivities,
            coarse=lambda base: self._feasible(
                _with_batches(prefill.rows, _prefill_batches(request, base)),
                _with_batches(decode.rows, _decode_batches(request, base)),
                base,
            ),
        )

    def _feasible(self, prefill: Frame, decode: Frame, grid: Grid) -> Frame:
        """Rows of the replicas that some rows of workers form within the limits."""
        request, deployment = self.request, self.prefill.worker.deployment
        limits, osl, constants = self._limits(grid), deployment.load.osl, deployment.disagg
        wide = tuple(self.prefill.worker.libraries), tuple(self.decode.worker.libraries)
        if grid.exhaustive:
            bounds, sought = sweep_bounds(request, grid.targets), self.budget.objectives(request)
            how = limits, osl, constants, deployment.rules, wide, self.pool
            idle_slots_count = request.switches.idle_decode_slots_in_flight
            return sweep_fronts(prefill, decode, bounds, sought, *how, idle_slots_count=idle_slots_count)
        targets, how = sweep_targets(request, grid.targets), (deployment.rules, wide, self.pool)
        return sweep_replicas(prefill, decode, targets, limits, osl, constants, grid.disagg, *how)[0]

    def in_flight(self, rows: Frame) -> np.ndarray:
        """Requests in flight in the replica of each row at its rate."""
        if self.request.switches.idle_decode_slots_in_flight:
            return rows["concurrency"]
        constants = self.prefill.worker.deployment.disagg
        decode = rows["(d)seq/s/worker"] * rows["(d)workers"] * constants.decode_degradation
        return in_flight(rows["concurrency"], rows["seq/s"], decode)

    def _limits(self, grid: Grid) -> ReplicaLimits:
        request = self.request
        return replica_limits(
            grid.disagg,
            self.budget.replica_gpus,
            sizes=request.num_gpu_per_replica,
            max_gpus=request.max_gpu_per_replica,
            max_prefill_workers=request.max_prefill_workers,
            max_decode_workers=request.max_decode_workers,
            max_encode_workers=request.max_encoder_workers or grid.encoder.max_workers,
            large_ep=self.prefill.large_ep or self.decode.large_ep,
        )

    def _side(self, sweep: StaticSweep, cost: WorkerCost, evaluation: Evaluation) -> _Side:
        curves, positions = evaluation.curves(sweep.worker)
        points = static_points(sweep, curves, positions, cost=cost, kv_fraction=self.request.free_gpu_memory_fraction)
        fits, missing = fitting(points)
        rows = static_frame(sweep, points, fits)
        return _Side(sweep, rows, curves, positions, cost, int(fits.sum()), bool(missing.any()), points.encoder)

    def _memory(self, sweep: StaticSweep, memory: WorkerMemory, batch: int) -> MemorySplit:
        load, fraction = sweep.worker.deployment.load, self.request.free_gpu_memory_fraction
        return memory.static(
            [batch],
            load.text_tokens,
            load.osl,
            phase=sweep.mode,
            prefix=load.prefix,
            kv_fraction=fraction,
            images=load.images,
        )

    def _shortfall(self, prefill: _Side, decode: _Side, sizes: Sequence[int]) -> tuple[Shortfall | None, AicjaxError]:
        for side in (prefill, decode):
            if frames.length(side.rows) == 0:
                worker, sweep = side.sweep.worker, side.sweep
                if side.missing:
                    return None, missing_error(self.name, worker, side.curves, side.positions, side.encoder)
                smallest = int(sweep.batches.min())
                return nothing_fits(self.name, worker, lambda memory, s=sweep, b=smallest: self._memory(s, memory, b))
        limits = Limits.of(self.request)
        p, d = int(np.argmin(prefill.rows["ttft"])), int(np.argmin(decode.rows["tpot"]))
        wait_ms = 0.0 if self.pool is None else float(self.pool.workers.latency_ms.min())
        alone_ms = prefill.rows["ttft"][p : p + 1] + wait_ms
        constants = self.prefill.worker.deployment.disagg
        ttft = alone_ms * constants.ttft_correction + constants.handover_ms
        tpot = decode.rows["tpot"][d : d + 1]
        total = ttft + tpot * (decode.sweep.worker.deployment.load.osl - 1)
        _, limit, share = nearest(limits, ttft, tpot, total)
        where = f"prefill {_named(prefill.rows, p)}, decode {_named(decode.rows, d)}"
        if share < 0:
            detail = f"replica size: no pair of workers fills one of {list(sizes)} GPUs within the limits"
            shortfall = Shortfall("replica size", None, "", detail)
        else:
            shortfall = latency_shortfall(limits, limit, share, float(alone_ms[0]), where)
        return shortfall, shortfall.error(self.name)

    def _explain(self, prefill: _Side, decode: _Side, row: dict) -> Explanation:
        constants = self.prefill.worker.deployment.disagg
        prefill_rate = row["(p)seq/s/worker"] * row["(p)workers"] * constants.prefill_degradation
        decode_rate = row["(d)seq/s/worker"] * row["(d)workers"] * constants.decode_degradation
        binding, reason, next_batch = self._next_batch(decode, row)
        if prefill_rate < decode_rate:
            binding = "prefill"
        memory, steps = (), ()
        if self.pool is not None:
            choice = self.pool.choice(row)
            memory, steps = (self.pool.uses[choice],), self.pool.steps[choice]
            capacity = self.pool.workers.take(choice).rate(row["(e)workers"], constants)
            binding = "encode" if capacity <= min(prefill_rate, decode_rate) else binding
        sides = (("prefill", prefill, "(p)"), ("decode", decode, "(d)"))
        tpot = self._tpot_in_use(decode, row)
        latency = row["ttft"] + tpot * (row["osl"] - 1)
        return Explanation(
            memory=memory + tuple(self._memory_use(role, side.sweep, row, prefix) for role, side, prefix in sides),
            binding=binding,
            next_batch=next_batch,
            next_batch_reason=reason,
            concurrency_in_use=concurrency_in_use(row["concurrency"], row["seq/s"], latency),
            tpot_in_use=tpot if tpot < row["tpot"] else None,
            steps=steps + tuple(step for role, side, prefix in sides for step in side.steps(role, row, prefix)),
        )

    def _sensitivities(self, row: dict) -> tuple[Sensitivity, ...]:
        workers = (self.prefill.worker, "(p)"), (self.decode.worker, "(d)")
        prefill, decode = (one_layout(worker, row[f"{prefix}parallel"]) for worker, prefix in workers)
        batches, counts = ((row[f"(p){name}"], row[f"(d){name}"]) for name in ("bs", "workers"))
        return disagg_sensitivities(prefill, decode, batches, counts, self.grid.disagg.decode_stride, queued=True)

    def _tpot_in_use(self, decode: _Side, row: dict) -> float:
        """TPOT of the smallest decode batch of the layout that sustains the rate of the replica."""
        rows, degradation = decode.rows, self.prefill.worker.deployment.disagg.decode_degradation
        sustained = rows["seq/s"] * row["(d)workers"] * degradation + _ROUNDING >= row["seq/s"]
        batches = np.flatnonzero((rows["parallel"] == row["(d)parallel"]) & (rows["bs"] <= row["(d)bs"]) & sustained)
        return float(rows["tpot"][batches].min(initial=row["tpot"]))

    def _memory_use(self, role: str, sweep: StaticSweep, row: dict, prefix: str) -> MemoryUse:
        split = self._memory(sweep, sweep.worker.memory, row[f"{prefix}bs"])
        return memory_use(role, split, _config(sweep, row, prefix))

    def _next_batch(self, decode: _Side, row: dict) -> tuple[str, str, int | None]:
        """Binding limit, reason and size of the next larger decode batch of the same layout."""
        sweep, rows = decode.sweep, decode.rows
        larger = sweep.batches[sweep.batches > row["(d)bs"]]
        if len(larger) == 0:
            return "grid", "the largest batch of the grid", None
        batch = int(larger[0])
        misfit = misfit_reason(self._memory(sweep, sweep.worker.memory, batch), _config(sweep, row, "(d)"))
        found = np.flatnonzero((rows["parallel"] == row["(d)parallel"]) & (rows["bs"] == batch))
        unmeasured = None if len(found) else ("missing_data", "no measured data")
        late = None
        if len(found):
            tpot = float(rows["tpot"][found[0]])
            late = limit_reason(Limits.of(self.request), row["ttft"], tpot, row["ttft"] + tpot * (row["osl"] - 1))
        binding, reason = first_reason((misfit, unmeasured, late), ("throughput", "no more throughput per GPU"))
        return binding, reason, batch


def plan_disagg_task(
    name: str, request: SearchRequest, backend: str, budget: Budget, grid: Grid, evaluation: Evaluation
) -> DisaggTask:
    """The experiment of a request on one engine; adds what it needs to the evaluation.

    Raises:
        InputError: A bad input, or no valid layout.
        NoFeasible: One GPU, or one output token: there is nothing to disaggregate.
    """
    if budget.gpus < 2:
        raise NoFeasible(f"{name}: a prefill and a decode worker need two GPUs, the budget is {budget.gpus}.")
    if request.osl < 2:
        raise NoFeasible(f"{name}: one output token leaves nothing to decode.")
    if request.load == "closed":
        raise NoFeasible(f"{name}: a first wave (load closed) is modelled for single estimates of replicas alone.")
    prefill, decode = (role_space(request, role, backend, budget, grid.layouts) for role in ("prefill", "decode"))
    batches = {"prefill": _prefill_batches(request, grid), "decode": _decode_batches(request, grid)}
    stride = grid.disagg.decode_stride
    return DisaggTask(
        name=name,
        request=request,
        budget=budget,
        grid=grid,
        prefill=prefill,
        decode=decode,
        prefill_sweep=plan_static_sweep(
            prefill.worker, "static_ctx", batches["prefill"], evaluation.add(prefill.worker), stride
        ),
        decode_sweep=plan_static_sweep(
            decode.worker, "static_gen", batches["decode"], evaluation.add(decode.worker), stride
        ),
        pool=requested_pool(name, request, prefill.worker.deployment, grid.encoder),
    )


def _prefill_batches(request: SearchRequest, grid: Grid) -> range:
    return range(1, (request.prefill_max_batch_size or grid.disagg.prefill_max_batch) + 1)


def _decode_batches(request: SearchRequest, grid: Grid) -> list[int]:
    return grid.disagg.decode_batches(request.decode_max_batch_size)


def _with_batches(rows: Frame, batches: Sequence[int]) -> Frame:
    """The rows of some batches."""
    return frames.take(rows, np.isin(rows["bs"], batches))


def _named(rows: Frame, position: int) -> str:
    return f"{rows['parallel'][position]} batch {rows['bs'][position]}"


def _config(sweep: StaticSweep, row: dict, prefix: str) -> int:
    return [layout.label for layout in sweep.worker.layouts].index(row[f"{prefix}parallel"])
