# SPDX-License-Identifier: Apache-2.0
"""What the experiments of a search share: budget, picking, and what was resolved."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from aicjax._results import AicjaxError
from aicjax.explore import frame as frames
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.frame import Frame
from aicjax.explore.grid import Grid, LayoutGrid
from aicjax.explore.grid_gain import Baseline
from aicjax.explore.objective import Objective
from aicjax.explore.pick import Limit, Pick, pick_for_budget, pick_for_load
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import Explanation, Refusal, Sensitivity, TaskResult
from aicjax.explore.roles import Worker, deploy, worker
from aicjax.explore.shortfall import Shortfall
from aicjax.explore.space import Role, candidate_lists, enumerate_layouts, within_budget
from aicjax.hardware import load_system

GROUP = {"agg": "parallel", "disagg": "(d)parallel", "afd": "parallel"}


@dataclass(frozen=True)
class Budget:
    """GPUs that a search may use.

    Attributes:
        gpus: Largest worker, and the budget that replicas fill.
        replica_gpus: Largest replica of a disaggregated deployment.
        worker_sizes: Sizes of a worker that replace the candidate lists, or None.
        for_load: Whether a load target, not the budget, decides how many replicas there are.
    """

    gpus: int
    replica_gpus: int
    worker_sizes: tuple[int, ...] | None = None
    for_load: bool = False

    def objectives(self, request: SearchRequest) -> tuple[Objective, ...]:
        """What replicas are picked by: the budget, or the load and the ceiling on its GPUs where there is one."""
        if not self.for_load:
            return (Objective(gpus=self.gpus),)
        load = Objective(request_rate=request.target_request_rate, concurrency=request.target_concurrency)
        return (load,) if request.total_gpus is None else (load, Objective(gpus=request.total_gpus))


@dataclass(frozen=True)
class Space:
    """A role with its layouts.

    Attributes:
        worker: The role in its layouts.
        lists: The lists they come from.
        large_ep: Whether any of the lists' layouts, of whatever size, spreads its experts over many GPUs.
    """

    worker: Worker
    lists: Mapping[str, tuple[int, ...]]
    large_ep: bool


def role_space(request: SearchRequest, role: Role, backend: str, budget: Budget, grid: LayoutGrid) -> Space:
    """A role of a search in all layouts that the lists give.

    Raises:
        InputError: An unknown model, system, version or format, or no valid layout.
    """
    deployment = deploy(request, role, backend)
    model, rules, beyond = deployment.model, deployment.rules, deployment.coverage.beyond_node(deployment.phases)
    sides = ("agg",) if role == "agg" else ("prefill", "decode")
    everything = candidate_lists(
        model,
        deployment.system,
        backend,
        role,
        budget.replica_gpus,
        grid,
        request.candidates(role),
        pipeline_systems=tuple(load_system(request.of_role(side, "system")) for side in sides),
        large_ep=beyond,
        moe_backend=request.moe_backend,
    )
    lists = within_budget(everything, budget.gpus)
    if budget.worker_sizes is not None:
        lists["num_gpu"] = budget.worker_sizes
    layouts, refused = enumerate_layouts(model, backend, role, lists, rules)
    every, _ = enumerate_layouts(model, backend, role, everything, rules) if beyond else ([], [])
    large_ep = any(deployment.coverage.serves(layout, deployment.phases) for layout in every)
    return Space(worker(deployment, layouts, refused), lists, large_ep)


def pick_rows(
    request: SearchRequest, budget: Budget, frame: Frame, serving_mode: str, in_flight: np.ndarray | None = None
) -> Pick:
    """Top rows and front of a feasible frame; `in_flight` as of `pick_for_load`."""
    if request.request_latency is not None:
        limit = Limit("request_latency", request.request_latency)
    else:
        limit = Limit("tpot", request.tpot)
    group = GROUP[serving_mode]
    if not budget.for_load:
        return pick_for_budget(frame, limit, budget.gpus, request.top_n, group, strict=request.strict_sla)
    return pick_for_load(
        frame,
        limit,
        request.top_n,
        group,
        request_rate=request.target_request_rate,
        concurrency=request.target_concurrency,
        max_gpus=request.total_gpus,
        in_flight=in_flight,
    )


@dataclass(frozen=True)
class Task(abc.ABC):
    """An experiment: one serving mode on one engine, before its step times are known.

    Attributes:
        name: Its name.
        request: The search.
        budget: GPUs that it may use.
        grid: Candidate lists and cut-offs.
    """

    name: str
    request: SearchRequest
    budget: Budget
    grid: Grid

    serving_mode: ClassVar[str]

    @property
    @abc.abstractmethod
    def backend(self) -> str:
        """Engine."""

    @abc.abstractmethod
    def finish(self, evaluation: Evaluation) -> TaskResult:
        """The outcome of the experiment."""

    def in_flight(self, rows: Frame) -> np.ndarray:
        """Requests in flight in the replica of each row at its rate."""
        return rows["concurrency"]

    def _pick(self, feasible: Frame) -> Pick:
        counted = self.in_flight(feasible) if frames.length(feasible) else None
        return pick_rows(self.request, self.budget, feasible, self.serving_mode, counted)

    def picked(
        self,
        feasible: Frame,
        missed: Callable[[], tuple[Shortfall | None, AicjaxError]],
        *,
        explain: Callable[[dict[str, Any]], Explanation] | None = None,
        sensitivities: Callable[[dict[str, Any]], tuple[Sensitivity, ...]] | None = None,
        coarse: Callable[[Grid], Frame] | None = None,
        **facts: Any,
    ) -> TaskResult:
        """Top rows and front of the experiment, as its outcome.

        Args:
            feasible: Rows that meet the sweep's targets, best first.
            missed: Which limit binds, and the error where there is no row; asked when the top rows miss the limit.
            explain: What lies behind a row.
            sensitivities: What moves a row; None where that is not modelled.
            coarse: Rows of the experiment on the grid that an exhaustive one extends; None where they are the same.
            facts: Further fields of the outcome.
        """
        pick = self._pick(feasible)
        shortfall, error = (None, None) if pick.meets_target else missed()
        base = self.grid.base if self.grid.exhaustive else None
        if base is not None:
            coarser = pick if coarse is None else self._pick(coarse(base))
            facts["baseline"] = Baseline(base.name, coarser.best, coarser.meets_target)
        if explain is not None:
            facts["explain"] = lambda row: explain(frames.row(pick.best, row))
        if sensitivities is not None:
            facts["sensitivities"] = lambda row: sensitivities(frames.row(pick.best, row))
        return TaskResult(
            name=self.name,
            serving_mode=self.serving_mode,
            backend=self.backend,
            feasible=feasible,
            pareto=pick.pareto,
            best=pick.best,
            meets_target=pick.meets_target,
            grid=self.grid.name,
            shortfall=shortfall,
            error=None if frames.length(pick.best) else error,
            **facts,
        )


def resolved(spaces: Sequence[Space]) -> dict[str, Any]:
    """What the request left open: version and system of the first role, and per role formats, lists and layouts."""
    first = spaces[0].worker.deployment
    model, nextn = first.model, first.load.nextn
    shared = {"backend_version": first.version, "model": model.name, "family": model.family, "nextn": nextn}
    return {**shared, "roles": {space.worker.deployment.role: _role(space) for space in spaces}}


def refusals(spaces: Sequence[Space]) -> tuple[Refusal, ...]:
    """Layouts left out, of all roles."""
    return tuple(refusal for space in spaces for refusal in space.worker.refused)


def _role(space: Space) -> dict[str, Any]:
    worker, deployment = space.worker, space.worker.deployment
    return {
        "system": deployment.system.name,
        "backend": deployment.backend,
        "version": deployment.version,
        "quantisation": asdict(deployment.quantisation),
        "candidates": {axis: list(values) for axis, values in space.lists.items()},
        "layouts": len(worker.layouts),
        "large_ep": worker.libraries,
    }
