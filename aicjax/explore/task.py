# SPDX-License-Identifier: Apache-2.0
"""What the experiments of a search share: budget, picking, and what was resolved."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aicjax.explore.frame import Frame
from aicjax.explore.grid import LayoutGrid
from aicjax.explore.pick import Limit, Pick, pick_for_budget, pick_for_load
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import Refusal
from aicjax.explore.roles import Worker, deploy, worker
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


def pick_rows(request: SearchRequest, budget: Budget, frame: Frame, serving_mode: str) -> Pick:
    """Top rows and front of a feasible frame."""
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
