# SPDX-License-Identifier: Apache-2.0
"""Serving points: every row is one static batch, in-flight batching point or candidate worker, accepted or not."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aicjax._results import AicjaxError
from aicjax._units import GIB
from aicjax.explore import SearchRequest
from aicjax.explore.agg_sweep import AggSweep, agg_frame, plan_agg_sweep, sweep_points
from aicjax.explore.columns import DECIMALS
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.frame import Frame
from aicjax.explore.grid import load_grid
from aicjax.explore.roles import Worker, deploy, worker
from aicjax.explore.space import Role
from aicjax.explore.static_sweep import StaticSweep, plan_static_sweep, static_frame, static_points
from aicjax.forward.bound import StepCurves
from aicjax.forward.memory import MemorySplit, Verdict
from aicjax.models import Parallel
from aicjax.models.large_ep import PHASES
from aicjax.serving.agg import AggPoint, mixed_step_ms
from aicjax.serving.static import Mode
from aicjax.serving.worker_cost import WorkerCost
from benchmarks.parity_cases.comparison import NO_DATA, OK, REFUSED, Comparison, outcome_of
from benchmarks.parity_cases.requests import read_requests
from benchmarks.parity_cases.stored import StoredRows
from benchmarks.parity_cases.workers import SIZES, TABLES

ROUNDING = 1.1e-3  # one unit of the last decimal kept, and what a sum of roundings adds
_NOT_MODELLED = ("power_w",)
_OF_ANSWER = ("tpot", "tokens/s/user")
_PARTS = ("weights", "activations", "kvcache", "nccl", "others")
_SIDES: dict[str, tuple[Role, Mode]] = {
    "prefill_candidate": ("prefill", "static_ctx"),
    "decode_candidate": ("decode", "static_gen"),
}


def static(rows: StoredRows) -> Comparison:
    """Static batches, not rounded; one evaluation for each model, engine and set of formats."""
    comparison = Comparison(np.full(len(rows), OK, object))
    formats = ("gemm", "kvcache", "fmha", "moe", "comm")
    for (system, backend, version, model, *_, nextn), at in rows.groups(*TABLES, "model", *formats, "nextn"):
        engine, sweeps = Evaluation(), []
        point = ("mode", "isl", "osl", "prefix", "stride", "latency_correction")
        for (mode, isl, osl, prefix, stride, correction), members in rows.take(at).groups(*point):
            request = SearchRequest(
                model_path=model,
                system=system,
                backend=backend,
                backend_version=version,
                isl=isl,
                osl=osl,
                prefix=prefix,
                nextn=nextn,
                nextn_accepted=0.0,
                compat="reference",
            )
            # One set of formats for all modes: that of a worker that runs prefills.
            target = _worker(comparison, rows, at[members], request, "agg", backend)
            if target is not None:
                batches = np.unique(rows["bs"][at[members]])
                sweep = plan_static_sweep(target, mode, batches.tolist(), engine.add(target), stride)
                sweeps.append((at[members], sweep, correction))
        for members, sweep, correction in sweeps:
            curves, positions = engine.curves(sweep.worker)
            _compare_static(rows, members, sweep, curves, positions, comparison, correction)
    return comparison


def candidates(rows: StoredRows, at: np.ndarray, comparison: Comparison) -> None:
    """Candidate workers of disaggregated searches, not rounded unless drafts are accepted."""
    requests = read_requests(rows.directory)
    for (search, _, backend), members in rows.take(at).groups("search_id", "task", "backend"):
        here = at[members]
        try:
            request = requests[search]()
        except AicjaxError as error:
            comparison.fail(here, outcome_of(error))
            continue
        engine, sweeps = Evaluation(), []
        for (table, correction), side in rows.take(here).groups("table", "latency_correction"):
            role, mode = _SIDES[table]
            target = _worker(comparison, rows, here[side], request, role, backend)
            if target is not None:
                batches, stride = np.unique(rows["bs"][here[side]]), load_grid(request.grid_name).disagg.decode_stride
                sweep = plan_static_sweep(target, mode, batches.astype(int).tolist(), engine.add(target), stride)
                sweeps.append((here[side], sweep, correction))
        for side, sweep, correction in sweeps:
            curves, positions = engine.curves(sweep.worker)
            fraction = request.free_gpu_memory_fraction
            _compare_static(rows, side, sweep, curves, positions, comparison, correction, kv_fraction=fraction)


def agg(rows: StoredRows) -> Comparison:
    """In-flight batching points, not rounded; one evaluation for each search and engine."""
    comparison, requests = Comparison(np.full(len(rows), OK, object)), read_requests(rows.directory)
    for (search, _, backend), at in rows.groups("search_id", "task", "backend"):
        try:
            request = requests[search]()
        except AicjaxError as error:
            comparison.fail(at, outcome_of(error))
            continue
        target = _worker(comparison, rows, at, request, "agg", backend)
        if target is None:
            continue
        engine, batches, budgets = Evaluation(), np.unique(rows["bs"][at]), np.unique(rows["ctx_tokens"][at])
        sweep = plan_agg_sweep(target, batches.tolist(), budgets.tolist(), engine.add(target))
        curves, positions = engine.curves(target)
        points = sweep_points(
            sweep, curves, positions, max_seq_len=request.max_seq_len, kv_fraction=request.free_gpu_memory_fraction
        )
        config = _configs(rows, at, target)
        comparison.fail(at[config < 0], REFUSED)
        at, config = at[config >= 0], config[config >= 0]
        _compare_exchange(rows, at, target, config, comparison)
        cell = np.searchsorted(batches, rows["bs"][at]), np.searchsorted(budgets, rows["ctx_tokens"][at])
        chosen = np.ravel_multi_index((config, *cell), points.ttft_ms.shape)
        comparison.fail(at[np.isnan(points.request_latency_ms.ravel()[chosen])], NO_DATA)
        _compare_frame(rows, at, agg_frame(points, chosen, target, decimals=None), comparison)
        _compare_verdict(rows, at, points.verdict.ravel()[chosen], comparison)
        _compare_steps(rows, at, sweep, curves, np.asarray(positions)[config], cell, comparison)
    return comparison


def _worker(
    comparison: Comparison, rows: StoredRows, at: np.ndarray, request: Any, role: Role, backend: str
) -> Worker | None:
    """The worker of some rows in their layouts, or None when it is refused."""
    layouts = [Parallel(*(int(size) for size in sizes)) for sizes, _ in rows.take(at).groups(*SIZES)]
    try:
        return worker(deploy(request, role, backend), layouts)
    except AicjaxError as error:
        comparison.fail(at, outcome_of(error))
        return None


def _configs(rows: StoredRows, at: np.ndarray, target: Worker) -> np.ndarray:
    """Position of each row's layout among the worker's, -1 when it was refused [row]."""
    label = {layout.label: position for position, layout in enumerate(target.layouts)}
    return np.array([label.get(name, -1) for name in rows["parallel"][at]])


def _compare_exchange(
    rows: StoredRows, at: np.ndarray, target: Worker, config: np.ndarray, comparison: Comparison
) -> None:
    """Libraries through which experts over many GPUs exchange tokens."""
    plans = [plan and json.dumps({phase: plan.library(phase) for phase in PHASES}) for plan in target.exchanges]
    comparison.same(at, "comm_backend", rows["comm_backend"][at], np.array([plan or "" for plan in plans])[config])


def _compare_static(
    rows: StoredRows,
    at: np.ndarray,
    sweep: StaticSweep,
    curves: StepCurves,
    positions: Sequence[int],
    comparison: Comparison,
    correction: float,
    *,
    kv_fraction: float | None = None,
) -> None:
    points = static_points(sweep, curves, positions, cost=WorkerCost(correction), kv_fraction=kv_fraction)
    config, batch = _configs(rows, at, sweep.worker), np.searchsorted(sweep.batches, rows["bs"][at])
    comparison.fail(at[config < 0], REFUSED)
    at, config, batch = at[config >= 0], config[config >= 0], batch[config >= 0]
    if "table" in rows:  # candidates of a search
        _compare_exchange(rows, at, sweep.worker, config, comparison)
    comparison.fail(at[points.missing[config, batch]], NO_DATA)
    load = sweep.worker.deployment.load
    projected = load.progress > 1 and sweep.mode == "static_gen"
    with np.errstate(invalid="ignore", divide="ignore"):  # a decode worker without work has no rate
        frame = static_frame(
            sweep, points, np.ones_like(points.verdict, bool), decimals=DECIMALS if projected else None
        )
    picked = {name: column[config * len(sweep.batches) + batch] for name, column in frame.items()}
    idle = load.osl == 1 and sweep.mode == "static_gen"
    skip = {name for name in frame if "/s" in name or "latency" in name or name in ("ttft", "tpot")} if idle else ()
    _compare_frame(rows, at, picked, comparison, skip=skip, slack=ROUNDING if projected else 0.0)
    _compare_verdict(rows, at, points.verdict[config, batch], comparison)
    for part, found in _memory_parts(points.memory, points.verdict.shape):
        comparison.number(at, f"mem_{part}", rows[f"mem_{part}"][at], found[config, batch] / GIB)


def _memory_parts(split: MemorySplit, shape: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    for part in _PARTS:
        yield part, np.broadcast_to(getattr(split, f"{part}_bytes"), shape)


def _compare_frame(
    rows: StoredRows,
    at: np.ndarray,
    frame: Frame,
    comparison: Comparison,
    *,
    skip: Sequence[str] | set[str] = (),
    slack: float = 0.0,
) -> None:
    """Every column of a frame whose rows are those of `at`; a single output token has no TPOT."""
    for name, found in frame.items():
        if name not in rows or name in skip or name in _NOT_MODELLED:
            continue
        wanted = rows[name][at]
        if found.dtype.kind in "iuf":
            if name in _OF_ANSWER:
                wanted = np.where(rows["osl"][at] == 1, np.nan, wanted)
            comparison.number(at, name, wanted, found, slack=slack)
        else:
            comparison.same(at, name, wanted, found)


def _compare_verdict(rows: StoredRows, at: np.ndarray, verdict: np.ndarray, comparison: Comparison) -> None:
    comparison.same(at, "is_oom", rows["is_oom"][at], verdict == Verdict.DOES_NOT_FIT)
    comparison.same(at, "is_kv_oom", rows["is_kv_oom"][at], verdict == Verdict.KV_DOES_NOT_FIT)


def _compare_steps(
    rows: StoredRows,
    at: np.ndarray,
    sweep: AggSweep,
    curves: StepCurves,
    config: np.ndarray,
    cell: tuple[np.ndarray, np.ndarray],
    comparison: Comparison,
) -> None:
    """Step times that the points are made of."""
    plan, (batch, budget) = sweep.plan, cell
    decode = sweep.decode_attention.values(curves)
    mixed_attention = decode[:, : plan.batch.size].reshape(-1, *plan.batch.shape)[config, batch, budget]
    shared = sweep.shared.values(curves)[config, batch, budget]
    context = sweep.context_attention.values(curves)[config, budget]
    chunks, requests = plan.chunks[cell], plan.batch[cell]
    point = AggPoint(requests, plan.prefill_steps[cell], chunks, plan.drains[cell])
    alone = decode[:, plan.batch.size :] + sweep.decode_rest.values(curves) + sweep.decode_other.values(curves)
    found = {
        "mix_shared_non_attention_ms": shared,
        "mix_context_attention_ms": context / chunks,
        "mix_decode_attention_ms": np.where(requests > 1, mixed_attention, 0.0),
        "mix_step_latency_ms": mixed_step_ms(point, shared, context, mixed_attention),
        "genonly_step_latency_ms": np.where(rows["num_genonly_steps"][at] > 0, alone[config, batch], 0.0),
        "mix_decode_requests": plan.decode_rows[cell],
    }
    for name, values in found.items():
        comparison.number(at, name, rows[name][at], values)
