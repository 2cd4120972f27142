# SPDX-License-Identifier: Apache-2.0
"""The rows of points of an in-flight batching sweep, from their numbers."""

import numpy as np
from numpy.typing import NDArray

from aicjax._units import GIB, MS_PER_S
from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame
from aicjax.explore.identity import identity, layout_columns
from aicjax.explore.roles import Worker
from aicjax.sweeps.cases import Case, Cases, request_of
from aicjax.sweeps.kept import Points, no_points
from aicjax.sweeps.objectives import factor
from aicjax.sweeps.spec import SweepSpec

COLUMNS = (
    *("model", "system", "backend", "version", "isl", "osl", "prefix", "nextn", "nextn_accepted"),
    *("gemm", "kvcache", "fmha", "moe", "comm"),
    *("tp", "pp", "dp", "moe_tp", "moe_ep", "cp", "parallel", "bs", "global_bs", "ctx_tokens", "memory_fraction"),
    *("ttft", "tpot", "request_latency", "seq/s", "tokens/s", "tokens/s/gpu", "tokens/s/user", "tokens/$", "tokens/J"),
    *("concurrency", "num_total_gpus", "memory", "point"),
)
"""Names as in the rows of a search, and of this room: `memory_fraction` (absent for the engine's own), `tokens/$`
(absent without a price), `tokens/J` of board power, and `point`, the number of the point."""
NOT_ROUNDED = ("nextn_accepted", "memory_fraction", "tokens/$", "tokens/J")

Ints = NDArray[np.int64]


def agg_rows(spec: SweepSpec, cases: Cases, points: Points) -> Frame:
    """One row for each point in their order, numbers rounded as those of a search; NaN where a number is absent.

    Args:
        spec: The sweep.
        cases: All of it.
        points: Points of it.
    """
    starts = np.array([case.first_point for case in cases.cases])
    of_case = np.searchsorted(starts, points.number, side="right") - 1
    order = np.argsort(of_case, kind="stable")
    chosen, first = np.unique(of_case[order], return_index=True)
    parts = [_case_rows(spec, cases, cases.cases[0], no_points())]
    for case, rows in zip(chosen, np.split(order, first[1:]), strict=False):
        parts.append(_case_rows(spec, cases, cases.cases[case], points.take(rows)))
    return frames.take(frames.concatenate(parts), np.argsort(order))


def places(case: Case, budgets: int, number: Ints) -> tuple[Ints, Ints, Ints]:
    """Positions of layout, batch and context-token budget (of so many) of points of a case."""
    layout, at = np.divmod(number - case.first_point, len(case.batches) * budgets)
    batch, ctx = np.divmod(at, budgets)
    return layout, batch, ctx


def _case_rows(spec: SweepSpec, cases: Cases, case: Case, points: Points) -> Frame:
    engine, workload = cases.engines[case.engine], case.workload
    worker = engine.under(request_of(spec, engine.name, workload))["agg"]
    layout, batch_at, ctx_at = places(case, len(spec.ctx_tokens), points.number)
    batch, ctx_tokens = np.array(case.batches)[batch_at], np.array(spec.ctx_tokens)[ctx_at]
    layouts = layout_columns(worker, layout)
    gpus = np.array([one.gpus for one in worker.layouts])[layout]
    tpot_ms = points.tpot_ms if workload.osl > 1 else np.full(len(layout), np.nan)
    tokens = max(workload.osl - 1, 1)
    system = worker.deployment.system
    priced = system.name in spec.gpu_hour_price
    per_dollar = factor("tokens/$", spec, system, gpus, tokens) if priced else np.nan
    values = {
        **identity(worker.deployment),
        **layouts,
        "nextn": workload.drafts.nextn,
        "nextn_accepted": workload.drafts.accepted,
        "bs": batch,
        "global_bs": batch * layouts["dp"],
        "ctx_tokens": ctx_tokens,
        "memory_fraction": np.nan if case.memory_fraction is None else case.memory_fraction,
        "ttft": points.ttft_ms,
        "tpot": tpot_ms,
        "request_latency": points.request_latency_ms,
        "seq/s": points.seq_per_s,
        "tokens/s": points.seq_per_s * tokens,
        "tokens/s/gpu": points.seq_per_s * tokens / gpus,
        "tokens/s/user": MS_PER_S / tpot_ms,
        "tokens/$": points.seq_per_s * per_dollar,
        "tokens/J": points.seq_per_s * factor("tokens/J", spec, system, gpus, tokens),
        "concurrency": batch * layouts["pp"] * layouts["dp"],
        "num_total_gpus": gpus,
        "memory": _memory_bytes(worker, case, layout, batch, ctx_tokens) / GIB,
        "point": points.number,
    }
    return frames.build(COLUMNS, values, len(layout)) | frames.build(NOT_ROUNDED, values, len(layout), decimals=None)


def _memory_bytes(worker: Worker, case: Case, layout: Ints, batch: Ints, ctx_tokens: Ints) -> NDArray[np.float64]:
    """Memory of one GPU at each point."""
    load = worker.deployment.load
    steps, of_step = np.unique(np.stack([batch, ctx_tokens]), axis=1, return_inverse=True)
    split = worker.memory.inflight(steps[0], load.text_tokens, load.osl, steps[1], kv_fraction=case.memory_fraction)
    total_bytes = np.broadcast_to(split.total_bytes, (len(worker.layouts), steps.shape[1]))
    return total_bytes[layout, of_step]
