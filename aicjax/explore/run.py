# SPDX-License-Identifier: Apache-2.0
"""Whole searches: every serving mode on every engine asked for, and the fewest GPUs for a load."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from aicjax._results import AicjaxError, InputError, NoFeasible
from aicjax.explore import frame as frames
from aicjax.explore.afd_task import plan_afd_task
from aicjax.explore.agg_task import plan_agg_task
from aicjax.explore.columns import CLUSTER
from aicjax.explore.disagg_task import plan_disagg_task
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.grid import Grid, load_grid
from aicjax.explore.grid_gain import Baseline
from aicjax.explore.pareto import pareto_front
from aicjax.explore.pick import order_of_engines
from aicjax.explore.request import BACKENDS, RECOMMENDING, SearchRequest
from aicjax.explore.result import SearchResult, TaskResult
from aicjax.explore.task import Budget, Task
from aicjax.hardware import load_system

_PLANNERS = {"agg": plan_agg_task, "afd": plan_afd_task, "disagg": plan_disagg_task}
_MODES = {"auto": ("agg", "disagg"), "all": ("agg", "afd", "disagg")}
_Told = TypeVar("_Told")

_MERGE_ABOVE = 2  # experiments: with more, those of one serving mode are merged


def search(request: SearchRequest | None = None, **fields: Any) -> SearchResult:
    """The best configurations for a GPU budget; without a budget, `recommend`.

    An experiment that fails does not stop the others: its error is in the result, and `SearchResult.require` raises.
    Experiments whose rows miss the limit come after those that meet it. A load target beside a budget is not used.

    Args:
        request: What to search.
        fields: Fields of a `SearchRequest` instead.

    Raises:
        InputError: A bad input, or neither a budget nor a load target.

    Examples:
        >>> import aicjax
        >>> aicjax.search(model_path="Qwen/Qwen3-8B", system="h200_sxm", total_gpus=2, serving_mode="agg").chosen
        'agg'
    """
    request = SearchRequest(**fields) if request is None else request
    if request.total_gpus is None:
        if not request.has_load_target:
            raise InputError("total_gpus", None, "given, or a load target (target_request_rate, target_concurrency)")
        return recommend(request)
    return _run(request, Budget(request.total_gpus, request.total_gpus), load_grid(request.grid_name))


def recommend(request: SearchRequest | None = None, **fields: Any) -> SearchResult:
    """The fewest GPUs that serve a load.

    Workers start at the size of a node and double, up to the grid's limit, while the model or its KV cache does not
    fit; a replica stays within a node. `total_gpus` of the request, if given, is a ceiling on the GPUs recommended.

    Args:
        request: What to search; with exactly one load target.
        fields: Fields of a `SearchRequest` instead; the database mode is then `HYBRID` unless stated.

    Raises:
        InputError: A bad input, or no load target.
    """
    request = SearchRequest(**{"database_mode": RECOMMENDING, **fields}) if request is None else request
    if not request.has_load_target:
        raise InputError("target_request_rate", None, "given, or target_concurrency instead")
    grid = load_grid(request.grid_name)
    node = load_system(request.system).gpus_per_node
    gpus = node
    while True:
        sizes = tuple(1 << bit for bit in range(gpus.bit_length()))
        result = _run(request, Budget(gpus, node, sizes, for_load=True), grid)
        misfit = any(task.shortfall is not None and task.shortfall.is_memory for task in result.by_backend.values())
        if not misfit or 2 * gpus > grid.recommend_max_worker_gpus:
            return result
        gpus *= 2


def run_experiment(name: str, request: SearchRequest) -> SearchResult:
    """A search with a budget, one serving mode and one engine, as an experiment under a name of its own.

    Raises:
        AicjaxError: It cannot be planned: a bad input, or nothing to try.
    """
    assert request.total_gpus is not None
    return _run(request, Budget(request.total_gpus, request.total_gpus), load_grid(request.grid_name), name)


def _run(request: SearchRequest, budget: Budget, grid: Grid, experiment: str | None = None) -> SearchResult:
    backends = BACKENDS if request.backend == "auto" else (request.backend,)
    modes = _MODES.get(request.serving_mode, (request.serving_mode,))
    evaluation = Evaluation()
    planned: dict[str, Task | TaskResult] = {}
    for backend in backends:
        for mode in modes:
            name = experiment or (mode if len(backends) == 1 else f"{mode}_{backend}")
            try:
                planned[name] = _PLANNERS[mode](name, request, backend, budget, grid, evaluation)
            except AicjaxError as error:
                if isinstance(error, InputError) and len(backends) == 1:
                    raise
                planned[name] = _failed(name, mode, backend, error)
    finished = {
        name: task if isinstance(task, TaskResult) else _finished(task, evaluation) for name, task in planned.items()
    }
    merges = len(backends) > 1 and len(finished) > _MERGE_ABOVE
    tasks = _merged(request, finished) if merges else finished
    best = max(tasks.values(), key=lambda task: (task.meets_target, task.score))
    chosen = best.name if best.score > 0 else None
    return SearchResult(request, tasks, finished, chosen)


def _finished(task: Task, evaluation: Evaluation) -> TaskResult:
    try:
        return task.finish(evaluation)
    except AicjaxError as error:
        return _failed(task.name, task.serving_mode, task.backend, error)


def _failed(name: str, mode: str, backend: str, error: AicjaxError) -> TaskResult:
    return TaskResult(name=name, serving_mode=mode, backend=backend, error=error)


def _merged(request: SearchRequest, parts: Mapping[str, TaskResult]) -> dict[str, TaskResult]:
    """One experiment per serving mode from those of all engines: their best rows, and their common front."""
    modes = dict.fromkeys(task.serving_mode for task in parts.values())
    return {mode: _merge(request, mode, [t for t in parts.values() if t.serving_mode == mode]) for mode in modes}


def _merge(request: SearchRequest, mode: str, parts: list[TaskResult]) -> TaskResult:
    filled = [part for part in parts if frames.length(part.best)]
    if not filled:
        reasons = "; ".join(f"{part.backend}: {part.error}" for part in parts)
        return _failed(mode, mode, "auto", NoFeasible(f"{mode}: no engine has a configuration ({reasons})"))
    meets = any(part.meets_target for part in filled)
    ranked = [part for part in filled if part.meets_target or not meets]
    best = frames.concatenate([_with_backend(part.best, part.backend) for part in ranked])
    fronts = frames.concatenate([_with_backend(part.pareto, part.backend) for part in filled])
    on_request = request.request_latency is not None or request.osl == 1
    x = "request_latency" if on_request else "tokens/s/user"
    order = order_of_engines(best, by_throughput=request.switches.merged_loads_by_throughput)[: request.top_n]
    owners = [(part, row) for part in ranked for row in range(frames.length(part.best))]
    picked = [owners[at] for at in order.tolist()]
    return TaskResult(
        name=mode,
        serving_mode=mode,
        backend="auto",
        feasible=frames.concatenate([_with_backend(part.feasible, part.backend) for part in filled]),
        pareto=pareto_front(fronts, x, CLUSTER, maximize_x=not on_request),
        best=frames.take(best, order),
        meets_target=meets,
        shortfall=None if meets else filled[0].shortfall,
        evaluated=sum(part.evaluated for part in parts),
        explain=_of_owners([(part.explain, row) for part, row in picked]),
        sensitivities=_of_owners([(part.sensitivities, row) for part, row in picked]),
        grid=request.grid_name,
        baseline=Baseline.first(part.baseline for part in parts),
    )


def _of_owners(owners: Sequence[tuple[Callable[[int], _Told] | None, int]]) -> Callable[[int], _Told] | None:
    """What is told of each row of a merge, asked of the experiment that it is from."""
    asked = [functools.partial(tell, row) for tell, row in owners if tell is not None]
    return None if len(asked) < len(owners) else lambda row: asked[row]()


def _with_backend(frame: frames.Frame, backend: str) -> frames.Frame:
    """The frame with a column for the engine, last where it has none of its own."""
    return {**frame, "backend": np.full(frames.length(frame), backend)}
