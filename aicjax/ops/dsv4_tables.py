# SPDX-License-Identifier: Apache-2.0
"""Measured compressed attention (DSv4): shapes by formats and heads, and the calibration of its indexer's selection."""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from aicjax.hardware import System
from aicjax.ops.dsv4_records import LIGHT_RATIO
from aicjax.ops.module_tables import ModuleTable, Points, dense_values, filled_values, module_table, padded_knots
from aicjax.tables import first_rows, read_rows
from aicjax.tables.rows import Rows

SCORE_KERNEL = "dsv4_paged_mqa_logits_module_perf"
CALIBRATION = "dsv4_csa_topk_calib_perf"
SCORES = {"context": ("v1_flat", "v1_top_last"), "generation": ("v2_flat", "v2_top_last")}  # uniform, concentrated
FORMAT_NAMES = {"fp8_e4m3": "fp8"}


class Dsv4Key(NamedTuple):
    """What selects the measured points of one shape; `fmha` is empty in decode, `local` heads are those on a GPU."""

    fmha: str
    kv: str
    gemm: str
    native: int
    local: int


@functools.lru_cache(maxsize=32)
def load_dsv4(system: System, backend: str, version: str, shared: bool, ratio: int, phase: str) -> ModuleTable | None:
    """The table of one compression ratio, the first row of each point; None when nothing was measured."""
    family = "csa" if ratio == LIGHT_RATIO else "hca"
    rows = read_rows(system.name, backend, version, f"dsv4_{family}_{phase}_module_perf", shared)
    if rows is None or not len(rows):
        return None
    prefill = phase == "context"
    none = np.zeros(len(rows), np.int64)
    fmha, fmhas = _formats(rows, "mla_dtype") if prefill else (none, ("",))
    (kv, kvs), (gemm, gemms) = _formats(rows, "kv_cache_dtype"), rows.text("gemm_type")
    local = rows.number("num_heads")
    native = local * np.maximum(rows.number("tp_size"), 1)
    (natives, native_at), (locals_, local_at) = (np.unique(x, return_inverse=True) for x in (native, local))
    sizes = (len(fmhas), len(kvs), len(gemms), natives.size, locals_.size)
    shape = np.ravel_multi_index((fmha, kv, gemm, native_at, local_at), sizes)
    batch, length, step = rows.number("batch_size"), rows.number("isl"), rows.number("step")
    points = (local, step, length, batch) if prefill else (local, batch, length + step)
    keep = first_rows(shape, *points)

    def name(code: int) -> Dsv4Key:
        f, k, g, n, h = (int(i) for i in np.unravel_index(code, sizes))
        return Dsv4Key(fmhas[f], kvs[k], gemms[g], int(natives[n]), int(locals_[h]))

    return ModuleTable(module_table(shape[keep], name, [axis[keep] for axis in points], rows.number("latency")[keep]))


def _formats(rows: Rows, column: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes and names of formats, one code a format whatever it is called."""
    codes, words = rows.text(column)
    names = [FORMAT_NAMES.get(word, word) for word in words]
    distinct = tuple(dict.fromkeys(names))
    return np.array([distinct.index(name) for name in names])[codes], distinct


def find_dsv4(table: ModuleTable | None, key: Dsv4Key) -> tuple[Points | None, int]:
    """Points of a shape and the heads they were measured with: the nearest measured counts stand in for others."""
    same = [] if table is None else [k for k in table.slices if isinstance(k, Dsv4Key) and k[:3] == key[:3]]
    if table is None or not same:
        return None, key.local
    native = _bucket((k.native for k in same), key.native)
    local = _bucket((k.local for k in same if k.native == native), key.local)
    return table.slices[key._replace(native=native, local=local)], local


def _bucket(counts: Iterable[int], asked: int) -> int:
    """The greatest measured count that is not greater than the one asked for, else the least."""
    measured = sorted(set(counts))
    return max((count for count in measured if count <= asked), default=measured[0])


@functools.lru_cache(maxsize=32)
def load_scores(system: System, backend: str, version: str, shared: bool) -> ModuleTable | None:
    """The indexer's scores by (heads of the model, tensor-parallel ranks); None when nothing was measured."""
    rows = read_rows(system.name, backend, version, SCORE_KERNEL, shared)
    if rows is None or not len(rows):
        return None
    tp = np.maximum(rows.number("tp_size"), 1)
    native = rows.number("num_heads") * tp
    points = (native, rows.number("step"), rows.number("isl"), rows.number("batch_size"))
    size = int(tp.max()) + 1
    keep = first_rows(tp, *points)
    shape = (native * size + tp)[keep]

    def name(code: int) -> tuple[int, int]:
        return code // size, code % size

    return ModuleTable(module_table(shape, name, [axis[keep] for axis in points], rows.number("latency")[keep]))


class Selection(NamedTuple):
    """Time that an indexer's selection saves when scores concentrate, as measured with uniform ones.

    Attributes:
        knots: Cached tokens, new tokens, batch; padded.
        excess_ms: What uniform scores cost more, on all knots, by heads of the model [step, length, batch].
    """

    knots: tuple[np.ndarray, ...]
    excess_ms: dict[int, np.ndarray]


@functools.lru_cache(maxsize=32)
def load_selection(system: System, backend: str, version: str, shared: bool, phase: str) -> Selection | None:
    """The calibration of a phase; None when nothing was measured."""
    rows = read_rows(system.name, backend, version, CALIBRATION, shared)
    if rows is None or not len(rows):
        return None
    native, axes = rows.number("num_heads"), [rows.number(c) for c in ("step", "isl", "batch_size")]
    uniform, concentrated = (rows.is_in("score_mode", [score]) for score in SCORES[phase])
    used = uniform | concentrated
    if not used.any():
        return None
    knots = [np.unique(axis[used]) for axis in axes]
    padded = tuple(padded_knots(k) for k in knots)
    excess, latency = {}, rows.number("latency")
    for heads in np.unique(native[used]).tolist():
        cost = [dense_values(knots, axes, latency, scored & (native == heads)) for scored in (uniform, concentrated)]
        filled = np.maximum(cost[0] - cost[1], 0.0)
        for axis, (k, p) in enumerate(zip(knots, padded, strict=True)):
            last = np.minimum(np.arange(p.size), k.size - 1)
            filled = filled_values(filled, k, axis).take(last, axis)
        excess[heads] = filled
    return Selection(padded, excess)
