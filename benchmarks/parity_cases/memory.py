# SPDX-License-Identifier: Apache-2.0
"""Memory of one GPU: every row is one worker at one operating point, or the KV cache that it can hold."""

from typing import Any

import numpy as np

from aicjax._results import AicjaxError
from aicjax.constants import load_constants
from aicjax.forward.kv_capacity import kv_capacity
from aicjax.forward.memory import Verdict, WorkerMemory, bind_memory
from aicjax.hardware import load_system
from aicjax.models import Images
from benchmarks.parity_cases.comparison import OK, REFUSED, Comparison, outcome_of
from benchmarks.parity_cases.stored import StoredRows
from benchmarks.parity_cases.workers import IMAGES, TABLES, WORKER, stored_images, stored_worker

_PARTS = ("weights_bytes", "activations_bytes", "kvcache_bytes", "nccl_bytes", "others_bytes", "total_bytes")
_POINTS = ("kind", "beam", "kv_fraction", "max_num_tokens", *IMAGES)
_SIZES = "forward.parquet"  # beside the rows: which images a prefill had
_PREFILL = (*TABLES, *WORKER, "batch", "isl", "prefix")


def memory(rows: StoredRows) -> Comparison:
    """Parts, verdicts and KV curves of every worker and point; one call for each worker and kind of point."""
    comparison, rows = Comparison(np.where(rows["error"] == "", OK, REFUSED)), _with_images(rows)
    for (*key,), at in rows.groups(*TABLES, *WORKER):
        try:
            worker = _bind((key[0], key[1], key[2]), tuple(key[3:]))
        except AicjaxError as error:
            comparison.fail(at, outcome_of(error))
            continue
        for (kind, beam, fraction, max_tokens, *sides), members in rows.take(at).groups(*_POINTS):
            point = at[members]
            if kind == "capacity":
                _compare_capacity(rows, point, worker, max_tokens, fraction, comparison)
            else:
                _compare_point(rows, point, worker, kind, beam, stored_images(key[3], *sides), comparison)
            _compare_curve(rows, point, worker, comparison)
    return comparison


def _with_images(rows: StoredRows) -> StoredRows:
    """The rows with the columns `IMAGES`: a prefill whose cache is longer than its text had images."""
    seen = np.where(rows["kind"] == "static_ctx", rows["kv_seq_len"] - rows["isl"] - 1, 0)
    sizes = np.zeros((len(rows), len(IMAGES)), np.int64)
    if (seen > 0).any():
        passes = StoredRows.read(rows.directory / _SIZES)
        known: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
        for (*key, count, height, width), _ in passes.take(passes["num_images"] > 0).groups(*_PREFILL, *IMAGES):
            known.setdefault(tuple(key), []).append((count, height, width))
        for (*key, tokens), at in rows.take(seen > 0).with_column("seen", seen[seen > 0]).groups(*_PREFILL, "seen"):
            options = known[tuple(key)]
            images = [(option, stored_images(key[3], *option)) for option in options]
            found = next(option for option, image in images if image is not None and image.prompt_tokens == tokens)
            sizes[np.flatnonzero(seen > 0)[at]] = found
    for name, column in zip(IMAGES, sizes.T, strict=True):
        rows = rows.with_column(name, column)
    return rows


def _bind(tables: tuple[str, str, str], key: tuple[Any, ...]) -> WorkerMemory:
    system, backend, version = tables
    worker = stored_worker(tables, key)
    return bind_memory(
        load_system(system),
        backend,
        version,
        worker.model,
        [worker.layout],
        [worker.operators],
        [worker.quantisation],
        load_constants(backend).memory,
        nextn=key[-1],
    )


def _compare_point(
    rows: StoredRows,
    at: np.ndarray,
    worker: WorkerMemory,
    kind: str,
    beam: int,
    images: Images | None,
    comparison: Comparison,
) -> None:
    batch, isl, osl = (rows[name][at] for name in ("batch", "isl", "osl"))
    if kind == "agg":
        split = worker.inflight(batch, isl, osl, rows["ctx_tokens"][at], beam=beam)
    else:
        split = worker.static(batch, isl, osl, phase=kind, prefix=rows["prefix"][at], beam=beam, images=images)
    for part in _PARTS:
        comparison.number(at, part, rows[part][at], np.broadcast_to(getattr(split, part), (1, len(at)))[0])
    fraction = worker.kv_fraction(static=kind != "agg")
    comparison.number(at, "kv_fraction", rows["kv_fraction"][at], fraction)
    comparison.number(at, "mem_capacity", rows["mem_capacity"][at], split.capacity_bytes)
    comparison.same(at, "oom", rows["oom"][at], split.verdict[0] == Verdict.DOES_NOT_FIT)
    comparison.same(at, "kv_oom", rows["kv_oom"][at], split.verdict[0] == Verdict.KV_DOES_NOT_FIT)


def _compare_capacity(
    rows: StoredRows, at: np.ndarray, worker: WorkerMemory, max_tokens: int, fraction: float, comparison: Comparison
) -> None:
    try:
        found = kv_capacity(worker, max_tokens, fraction)
    except AicjaxError as error:
        comparison.fail(at, outcome_of(error))
        return
    if found.verdict[0] != Verdict.FITS:
        comparison.fail(at, REFUSED)
    comparison.number(at, "total_kv_size_bytes", rows["total_kv_size_bytes"][at], found.kv_bytes)
    comparison.number(at, "total_kv_size_tokens", rows["total_kv_size_tokens"][at], found.tokens)


def _compare_curve(rows: StoredRows, at: np.ndarray, worker: WorkerMemory, comparison: Comparison) -> None:
    length = rows["kv_seq_len"][at]
    comparison.number(at, "kv_bytes_per_seq", rows["kv_bytes_per_seq"][at], worker.kv_curve.bytes(length)[0])
    comparison.number(at, "kv_bytes_one_token", rows["kv_bytes_one_token"][at], worker.kv_curve.bytes(1)[0])
