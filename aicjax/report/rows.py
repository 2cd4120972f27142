# SPDX-License-Identifier: Apache-2.0
"""The rows of a result frame in the words of a report: replicas, GPUs in use, workers, shared by table and JSON."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER, DECIMALS
from aicjax.explore.frame import Frame
from aicjax.explore.result import Explanation
from aicjax.report.ranges import Ranges


@dataclass(frozen=True)
class Worker:
    """One kind of worker of a replica.

    Attributes:
        role: `encode`, `agg`, `prefill`, `decode`, `attention` or `ffn`.
        count: Workers of this kind in a replica.
        layout: Parallel sizes above one, for example `tp4` or `tp1 dp8 ep8`.
        gpus: GPUs of one worker.
        batch: Requests of one attention rank.
        memory_gib: Memory of one GPU; None where the row does not say.
    """

    role: str
    count: int
    layout: str
    gpus: int
    batch: int
    memory_gib: float | None


@dataclass(frozen=True)
class Row:
    """One configuration of a top list.

    Attributes:
        rank: Place in the list, from 1.
        backend: Engine.
        tokens_per_s_per_gpu: Throughput of the GPU budget, idle GPUs counted.
        tokens_per_s_per_user: Speed that one request sees; None when a request has one output token.
        tokens_per_s: Output of all replicas.
        requests_per_s: Of all replicas.
        ttft_ms: Time to first token.
        tpot_ms: Time per output token after the first; None when a request has one output token.
        request_latency_ms: Of a whole request.
        concurrency: Requests in flight in all replicas.
        replicas: How many fit into the budget, or serve the load.
        gpus: GPUs in use.
        workers: What a replica consists of.
        binding: What keeps it from a larger batch; None where that is not known.
        provenance: How the least certain of its operators was obtained; None where that is not known.
        ranges: How sure its figures are; None where that is not known, or not asked for.
    """

    rank: int
    backend: str
    tokens_per_s_per_gpu: float
    tokens_per_s_per_user: float | None
    tokens_per_s: float
    requests_per_s: float
    ttft_ms: float
    tpot_ms: float | None
    request_latency_ms: float
    concurrency: int
    replicas: int
    gpus: int
    workers: tuple[Worker, ...]
    binding: str | None = None
    provenance: str | None = None
    ranges: Ranges | None = None


def reported(frame: Frame, *, inclusive_tpot: bool) -> Frame:
    """The frame as it is shown: with `inclusive_tpot`, TPOT is the request latency over all its output tokens."""
    if not inclusive_tpot or not frames.length(frame):
        return frame
    osl = frame["osl"]
    tpot_ms = (frame["ttft"] + frame["tpot"] * (osl - 1)) / osl
    return {**frame, "tpot": np.round(tpot_ms, DECIMALS)}


def rows(frame: Frame, total_gpus: int | None, explain: Callable[[int], Explanation] | None = None) -> list[Row]:
    """The rows of a top list in rank order.

    Args:
        frame: A top frame of an experiment, column names as in its CSV file.
        total_gpus: GPU budget that replicas fill; None when the frame says how many replicas serve the load.
        explain: Explanation of a row by its position.
    """
    explanations = [explain(position) if explain else None for position in range(frames.length(frame))]
    return [
        _row(rank, record, total_gpus, explanation)
        for rank, (record, explanation) in enumerate(zip(frames.rows(frame), explanations, strict=True), start=1)
    ]


def _row(rank: int, record: dict[str, Any], total_gpus: int | None, explanation: Explanation | None) -> Row:
    gpus = int(record["num_total_gpus"])
    replicas = int(record["replicas_needed"]) if total_gpus is None else total_gpus // gpus
    return Row(
        rank=rank,
        backend=str(record["backend" if "backend" in record else "(d)backend"]),
        tokens_per_s_per_gpu=record[CLUSTER],
        tokens_per_s_per_user=record["tokens/s/user"] if record["osl"] > 1 else None,
        tokens_per_s=record["tokens/s"] * replicas,
        requests_per_s=record["request_rate"] * replicas,
        ttft_ms=record["ttft"],
        tpot_ms=record["tpot"] if record["osl"] > 1 else None,
        request_latency_ms=record["request_latency"],
        concurrency=int(record["concurrency"]) * replicas,
        replicas=replicas,
        gpus=replicas * gpus,
        workers=workers(record),
        binding=explanation.binding if explanation else None,
        provenance=max(code for step in explanation.steps for code in step.provenance).name.lower()
        if explanation
        else None,
    )


def workers(record: dict[str, Any]) -> tuple[Worker, ...]:
    """What a replica consists of, by one row of a result frame as Python values."""
    encode = (_worker(record, "encode", "(e)"),) if record.get("(e)workers") else ()
    if "(d)parallel" in record:
        return *encode, _worker(record, "prefill", "(p)"), _worker(record, "decode", "(d)")
    if "(f)workers" in record:
        prefill = (_worker({**record, "(p)moe_ep": record["(p)ep"]}, "prefill", "(p)"),) if record["(p)workers"] else ()
        return *prefill, _worker(record, "attention", "(a)"), _ffn_pool(record)
    return *encode, _worker(record, "agg", "")


def _ffn_pool(record: dict[str, Any]) -> Worker:
    """The feed-forward pool: it runs one microbatch of all attention workers at a time."""
    gpus, ep = int(record["(f)tp"]), int(record["(f)ep"])
    layout = f"tp{gpus} ep{ep}" if ep > 1 else f"tp{gpus}"
    return Worker("ffn", 1, layout, gpus, int(record["b_micro_total"]), record["(f)memory"])


def _worker(record: dict[str, Any], role: str, prefix: str) -> Worker:
    count = record.get(f"{prefix or '(a)'}workers", 1)
    sizes = {axis: int(record.get(f"{prefix}{axis}", 1)) for axis in ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")}
    labels = {"moe_tp": "etp", "moe_ep": "ep"}
    shown = [f"{labels.get(axis, axis)}{size}" for axis, size in sizes.items() if size > 1 or axis == "tp"]
    return Worker(
        role=role,
        count=int(count),
        layout=" ".join(shown),
        gpus=sizes["tp"] * sizes["pp"] * sizes["dp"] * sizes["cp"],
        batch=int(record[f"{prefix}bs"]),
        memory_gib=record.get(f"{prefix}memory"),
    )
