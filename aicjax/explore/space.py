# SPDX-License-Identifier: Apache-2.0
"""Which layouts a search tries for a role of a worker."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from aicjax._results import InputError
from aicjax.explore.expert_fields import MEGA
from aicjax.explore.grid import LayoutGrid
from aicjax.explore.request import PARALLEL_AXES
from aicjax.explore.result import Refusal
from aicjax.hardware import System
from aicjax.models import ModelConfig, Parallel, check_parallel
from aicjax.models.families import FAMILIES
from aicjax.serving.backends import BackendRules

Role = Literal["agg", "prefill", "decode"]
Lists = dict[str, tuple[int, ...]]


def candidate_lists(
    model: ModelConfig,
    system: System,
    backend: str,
    role: Role,
    total_gpus: int,
    grid: LayoutGrid,
    stated: Mapping[str, tuple[int, ...]],
    *,
    pipeline_systems: tuple[System, ...] = (),
    large_ep: Sequence[int] = (),
    moe_backend: str | None = None,
) -> Lists:
    """The list of each parallel axis for one role, before the budget limits the size of a worker.

    Args:
        model: The model.
        system: GPU system of the role.
        backend: Engine.
        role: `agg`, `prefill` or `decode`.
        total_gpus: GPU budget, which decides whether extra layouts join.
        grid: Default lists.
        stated: Lists of the user, which win.
        pipeline_systems: All systems of the deployment; the extra pipeline layouts need every one to be new enough.
        large_ep: Expert ranks beyond a node that the tables cover for the role.
        moe_backend: Kernel of the experts, where the request states one.
    """
    mega = moe_backend == MEGA
    lists = _default_lists(model, system, grid, mega=mega)
    if backend == "sglang" and moe_backend is not None:
        lists["moe_tp"] = (1,)
    if role != "decode" and backend in FAMILIES[model.family].context_parallel_backends:
        lists["cp"] = grid.context_parallel
    if large_ep:
        measured = tuple(large_ep)
        ladder = grid.large_ep.get(backend, {}).get(role) or {"num_gpu": measured, "dp": measured, "moe_ep": measured}
        lists = _joined(lists, ladder)
    if not mega and _wants_pipeline(model, pipeline_systems or (system,), total_gpus, grid):
        lists = _joined(lists, grid.large_pipeline.lists)
    return lists | dict(stated)


def within_budget(lists: Lists, total_gpus: int) -> Lists:
    """The lists without workers larger than the GPU budget."""
    return lists | {"num_gpu": tuple(size for size in lists["num_gpu"] if size <= total_gpus)}


def enumerate_layouts(
    model: ModelConfig, backend: str, role: Role, lists: Mapping[str, tuple[int, ...]], rules: BackendRules
) -> tuple[list[Parallel], list[Refusal]]:
    """Layouts of the lists that the engine runs, in list order, and those that the model refuses, with the reason.

    The GPUs of a layout must be a listed number; for a model with experts, attention and expert widths must agree.
    """
    sizes = np.meshgrid(*(lists[axis] for axis in PARALLEL_AXES if axis != "num_gpu"), indexing="ij")
    tp, pp, dp, moe_tp, moe_ep, cp = (size.ravel() for size in sizes)
    kept = np.isin(tp * pp * dp * cp, lists["num_gpu"])
    if model.is_moe:
        kept &= tp * dp * cp == moe_tp * moe_ep
    layouts, refused = [], []
    for size in np.stack([tp, pp, dp, moe_tp, moe_ep, cp], axis=1)[kept].tolist():
        layout = Parallel(*size)
        if not rules.runs(layout):
            continue
        try:
            check_parallel(model, layout, backend)
        except InputError as error:
            refused.append(Refusal.of(layout.label, role, error))
        else:
            layouts.append(layout)
    return layouts, refused


def _default_lists(model: ModelConfig, system: System, grid: LayoutGrid, *, mega: bool) -> Lists:
    if not model.is_moe:
        return dict(grid.dense) | grid.dense_by_system.get(system.name, {})
    if not mega:
        return dict(grid.moe)
    in_rack = (system.gpus_per_rack or 0) >= grid.mega_moe.min_rack_gpus
    return dict(grid.mega_moe.rack if in_rack else grid.mega_moe.node)


def _joined(lists: Lists, more: Mapping[str, tuple[int, ...]]) -> Lists:
    return {axis: tuple(sorted({*values, *more.get(axis, ())})) for axis, values in lists.items()}


def _wants_pipeline(model: ModelConfig, systems: tuple[System, ...], total_gpus: int, grid: LayoutGrid) -> bool:
    rule = grid.large_pipeline
    new = all((system.sm_version or 0) >= rule.min_sm_version for system in systems)
    return model.family in rule.families and total_gpus >= rule.min_total_gpus and new
