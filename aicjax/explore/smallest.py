# SPDX-License-Identifier: Apache-2.0
"""The smallest layout of a model that fits the memory of its GPUs, without a search."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from aicjax._names import counted
from aicjax._results import InputError
from aicjax.explore.grid import load_grid
from aicjax.explore.misfit import nothing_fits
from aicjax.explore.request import SearchRequest
from aicjax.explore.task import Budget, role_space
from aicjax.forward.memory import MemorySplit, Verdict, WorkerMemory
from aicjax.models import Parallel

_SIZES = {"tp": "tp_size", "pp": "pp_size", "dp": "attention_dp_size", "moe_tp": "moe_tp_size", "moe_ep": "moe_ep_size"}


class Smallest(NamedTuple):
    """The smallest worker that fits.

    Attributes:
        layout: Its parallel sizes.
        batch: Requests of an attention rank: those stated, else the largest power of two whose KV cache fits, up to the
            largest batch of the grid.
    """

    layout: Parallel
    batch: int


def smallest_layout(request: SearchRequest, *, batch: int | None = None) -> Smallest:
    """The layout with the fewest GPUs of which memory holds the weights and the requests: `batch` of them, or one.

    Of layouts with as many GPUs: the fewest attention ranks, then pipeline stages and cuts of an expert, so that dense
    layers are cut by tensor and experts by expert parallelism. No latency is estimated.

    Args:
        request: Model, system, one engine and lengths; its GPU budget is the most that a worker may have, and its
            `agg_*_candidates` are what a layout may be.
        batch: Requests of an attention rank.

    Raises:
        InputError: A bad input, or no layout that the engine runs.
        NoFeasible: None fits.

    Examples:
        >>> from aicjax.explore import SearchRequest
        >>> smallest_layout(SearchRequest(model_path="Qwen/Qwen3-32B", system="h200_sxm", total_gpus=8)).layout.tp
        1
    """
    if request.total_gpus is None:
        raise InputError("total_gpus", None, "given")
    grid, gpus = load_grid(request.grid_name), request.total_gpus
    worker = role_space(request, "agg", request.backend, Budget(gpus, gpus), grid.layouts).worker
    batches = np.array([batch]) if batch is not None else 1 << np.arange(max(grid.agg.batch).bit_length())
    load = worker.deployment.load
    limits: dict[str, Any] = {"max_seq_len": request.max_seq_len, "kv_fraction": request.free_gpu_memory_fraction}

    def memory(bound: WorkerMemory, requests: np.ndarray) -> MemorySplit:
        return bound.inflight(requests, load.isl, load.osl, np.full(len(requests), load.isl), **limits)

    verdict = np.broadcast_to(memory(worker.memory, batches).verdict, (len(worker.layouts), len(batches)))
    fits = verdict == Verdict.FITS
    fitting = np.flatnonzero(fits.any(axis=1)).tolist()
    if not fitting:
        _, error = nothing_fits("agg", worker, lambda bound: memory(bound, batches[:1]))
        raise error

    def order(config: int) -> tuple[int, ...]:
        layout = worker.layouts[config]
        return layout.gpus, layout.dp, layout.pp, layout.moe_tp

    best = min(fitting, key=order)
    return Smallest(worker.layouts[best], int(batches[fits[best]].max()))


def completed_point(request: SearchRequest, stated: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Fields of an `EstimateRequest` for a stated layout; what is not stated is that of the smallest that fits.

    A disaggregated deployment without stated counts has one prefill worker, of batch 1, and as many decode workers as
    the budget leaves.

    Args:
        request: Model, system, one engine, lengths and GPU budget.
        stated: Sizes, batches and counts by the names of an `EstimateRequest`, as whole numbers.
        mode: `agg` or `disagg`.

    Raises:
        InputError, NoFeasible: As `smallest_layout`.
    """
    roles = ("prefill_", "decode_")
    foreign = [name for name in stated if (name.startswith(roles) if mode == "agg" else name == "batch_size")]
    if foreign:
        raise InputError(foreign[0], stated[foreign[0]], f"absent where the serving mode is {mode}")
    if mode == "agg":
        return _worker(request, stated, "", stated.get("batch_size"))
    prefill_batch, decode_batch = (stated.get(f"{role}_batch_size") for role in ("prefill", "decode"))
    found = {
        **_worker(request, stated, "prefill_", prefill_batch or 1),
        **_worker(request, stated, "decode_", decode_batch),
    }
    gpus = {role: _gpus(found, role) for role in roles}
    prefills = stated.get("prefill_num_workers") or 1
    left = (request.total_gpus or 0) - prefills * gpus["prefill_"]
    decodes = stated.get("decode_num_workers") or max(1, left // gpus["decode_"])
    return {**found, "prefill_num_workers": prefills, "decode_num_workers": decodes}


def _worker(request: SearchRequest, stated: Mapping[str, Any], role: str, batch: int | None) -> dict[str, Any]:
    """Sizes and batch of one kind of worker; `role` is its prefix."""
    sizes = {axis: stated.get(f"{role}{size}") or stated.get(size) for axis, size in _SIZES.items()}
    pinned: dict[str, Any] = {f"agg_{axis}_candidates": [size] for axis, size in sizes.items() if size is not None}
    gpus = math.prod(sizes[axis] or 1 for axis in ("tp", "pp", "dp"))
    if gpus > (request.total_gpus or 0):
        raise InputError("total_gpus", request.total_gpus, f"at least the {counted(gpus, 'GPU')} of the layout")
    if pinned:
        pinned["agg_num_gpu_candidates"] = list(range(1, (request.total_gpus or 0) + 1))
    values: dict[str, Any] = {**request.model_dump(exclude_unset=True), "agg_cp_candidates": [1], **pinned}
    layout, fitting = smallest_layout(SearchRequest(**values), batch=batch)
    found = {f"{role}{size}": getattr(layout, axis) for axis, size in _SIZES.items()}
    return {**found, f"{role}batch_size": fitting}


def _gpus(found: Mapping[str, Any], role: str) -> int:
    return found[f"{role}tp_size"] * found[f"{role}pp_size"] * found[f"{role}attention_dp_size"]
