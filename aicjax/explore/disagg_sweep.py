# SPDX-License-Identifier: Apache-2.0
"""The disaggregated sweep: rows of replicas from rows of prefill and decode workers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicjax.constants import DisaggConstants
from aicjax.explore import columns
from aicjax.explore import frame as frames
from aicjax.explore.encode_pool import EncodePool
from aicjax.explore.frame import Frame
from aicjax.explore.grid import DisaggGrid
from aicjax.explore.objective import Objective
from aicjax.explore.replica_fronts import replica_fronts
from aicjax.explore.replicas import Replicas, WorkerTable, best_replicas
from aicjax.explore.targets import Bounds, Targets
from aicjax.serving.backends import BackendRules
from aicjax.serving.disagg import ReplicaLimits

_SHARED = ("model", "isl", "osl", "prefix", "encoder_latency")
_OF_BATCH = ("bs", "global_bs")
_OF_WORKER = (
    *("tp", "pp", "dp", "moe_tp", "moe_ep", "cp", "parallel"),
    *("gemm", "kvcache", "fmha", "moe", "comm"),
    *("memory", "backend", "version", "system"),
)


def sweep_replicas(
    prefill: Frame,
    decode: Frame,
    targets: Targets,
    limits: ReplicaLimits,
    osl: int,
    constants: DisaggConstants,
    cuts: DisaggGrid,
    rules: BackendRules,
    wide: tuple[Sequence[str], Sequence[str]] = ((), ()),
    pool: EncodePool | None = None,
) -> tuple[Frame, Replicas]:
    """Rows of the replicas kept over all targets, and the replicas themselves.

    Args:
        prefill: Rows of prefill workers, rounded.
        decode: Rows of decode workers, rounded.
        targets: Latency limits.
        limits: Sizes of a replica.
        osl: Output tokens.
        constants: Correction and degradation factors.
        cuts: How many workers and replicas are kept.
        rules: Switches of the engine.
        wide: Layouts of each side with experts over many GPUs, whose caches fit workers of any tensor parallel size.
        pool: Choices of encode worker; None where prefill workers encode.
    """
    may_pair = _handover(prefill, decode, wide) if rules.same_tp_handover else None
    encoders = None if pool is None else pool.workers
    replicas = best_replicas(
        worker_table(prefill), worker_table(decode), targets, limits, osl, constants, cuts, may_pair, encoders
    )
    return disagg_frame(prefill, decode, replicas, pool), replicas


def sweep_fronts(
    prefill: Frame,
    decode: Frame,
    bounds: Bounds,
    objectives: Sequence[Objective],
    limits: ReplicaLimits,
    osl: int,
    constants: DisaggConstants,
    rules: BackendRules,
    wide: tuple[Sequence[str], Sequence[str]] = ((), ()),
    pool: EncodePool | None = None,
    *,
    idle_slots_count: bool = False,
) -> Frame:
    """Rows of the replicas on the fronts of a search; arguments as of `sweep_replicas` and `replica_fronts`."""
    kinds = None
    if rules.same_tp_handover:
        free = _pairs_freely(prefill, decode, wide)
        kinds = np.where(free[0], 0, prefill["tp"]), np.where(free[1], 0, decode["tp"])
    encoders = None if pool is None else pool.workers
    tables = worker_table(prefill), worker_table(decode)
    replicas = replica_fronts(*tables, bounds, objectives, limits, osl, constants, kinds, encoders, idle_slots_count)
    return disagg_frame(prefill, decode, replicas, pool)


def worker_table(frame: Frame) -> WorkerTable:
    """What the matching reads of rows of workers."""
    return WorkerTable(
        seq_per_s=frame["seq/s"],
        seq_per_s_per_gpu=frame["seq/s/gpu"],
        gpus=frame["num_total_gpus"],
        global_batch=frame["global_bs"],
        ttft_ms=frame["ttft"],
        tpot_ms=frame["tpot"],
        layout=frame["parallel"],
    )


def disagg_frame(prefill: Frame, decode: Frame, replicas: Replicas, pool: EncodePool | None = None) -> Frame:
    """Rows of replicas, numbers rounded as reported; `pool` has their encode workers."""
    p, d = frames.take(prefill, replicas.prefill), frames.take(decode, replicas.decode)
    estimate, counts = replicas.estimate, replicas.counts
    values: dict[str, Any] = {name: p[name] for name in _SHARED}
    for prefix, rows, workers in (("(p)", p, counts.prefill), ("(d)", d, counts.decode)):
        values |= {f"{prefix}{name}": rows[name] for name in (*_OF_BATCH, *_OF_WORKER)}
        values |= {f"{prefix}workers": workers, f"{prefix}seq/s/worker": rows["seq/s"]}
    values |= {
        "concurrency": d["concurrency"] * counts.decode,
        "request_rate": estimate.seq_per_s,
        "ttft": estimate.ttft_ms,
        "tpot": estimate.tpot_ms,
        "request_latency": estimate.request_latency_ms,
        "seq/s": estimate.seq_per_s,
        "seq/s/gpu": estimate.seq_per_s / estimate.gpus,
        "tokens/s": estimate.tokens_per_s,
        "tokens/s/gpu": estimate.tokens_per_s / estimate.gpus,
        "tokens/s/user": d["tokens/s/user"],
        "num_total_gpus": estimate.gpus,
        **{f"(e){name}": 0 for name in ("workers", "tp", "pp", "bs")},
        "(e)parallel": "",
        "(e)memory": p["encoder_memory"],
        "power_w": np.nan,
    }
    if pool is not None:
        values |= pool.columns(replicas.encode, counts.encode)
    return frames.build(columns.DISAGG, values, len(replicas.prefill))


def _handover(
    prefill: Frame, decode: Frame, wide: tuple[Sequence[str], Sequence[str]]
) -> Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]:
    """Which rows may hand caches over: of one tensor parallel size, or with experts over many GPUs on either side."""
    free = _pairs_freely(prefill, decode, wide)

    def may_pair(p: NDArray[np.int64], d: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (prefill["tp"][p][:, None] == decode["tp"][d]) | free[0][p][:, None] | free[1][d]

    return may_pair


def _pairs_freely(prefill: Frame, decode: Frame, wide: tuple[Sequence[str], Sequence[str]]) -> list[NDArray[np.bool_]]:
    """Rows of each side whose caches fit workers of any tensor parallel size."""
    return [np.isin(rows["parallel"], labels) for rows, labels in zip((prefill, decode), wide, strict=True)]


def replica_limits(
    grid: DisaggGrid,
    total_gpus: int,
    *,
    sizes: Sequence[int] | None,
    max_gpus: int | None,
    max_prefill_workers: int,
    max_decode_workers: int,
    max_encode_workers: int = 0,
    large_ep: bool = False,
) -> ReplicaLimits:
    """What a replica may be within a GPU budget.

    Args:
        grid: Default sizes.
        total_gpus: GPU budget.
        sizes: Stated sizes, or None.
        max_gpus: Stated largest size, or None.
        max_prefill_workers: Most prefill workers.
        max_decode_workers: Most decode workers.
        max_encode_workers: Most encode workers.
        large_ep: Whether a layout has wide expert parallelism.
    """
    budget = min(total_gpus, max_gpus or total_gpus)
    stated = tuple(sizes) if sizes is not None else None
    return ReplicaLimits(
        sizes=tuple(grid.replica_sizes(budget, large_ep=large_ep, sizes=stated)),
        max_prefill_workers=max_prefill_workers,
        max_decode_workers=max_decode_workers,
        max_encode_workers=max_encode_workers,
    )
