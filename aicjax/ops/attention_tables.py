# SPDX-License-Identifier: Apache-2.0
"""Measured attention: which slice (kernel, formats, head size, window) answers for an operator, as dense grids."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aicjax import quant
from aicjax.hardware import System
from aicjax.interp.grid import GridSlice, bind_slice, empty_slice
from aicjax.ops.database import Database
from aicjax.ops.ragged import coded_numbers, dense_grid, padded_knots, padded_leaves, ragged_table, shared_knots
from aicjax.ops.roofline import context_attention_sol_ms, encoder_attention_sol_ms, generation_attention_sol_ms
from aicjax.tables import lane_order, read_rows

TABLES = {
    "context": "context_attention_perf",
    "generation": "generation_attention_perf",
    "encoder": "encoder_attention_perf",
}
DEFAULT_LANE = "default"
FP8_ATTENTION_SM = 89  # first compute capability whose attention kernels multiply in FP8


@dataclass(frozen=True)
class SliceKey:
    """What selects the measured points of one attention shape.

    Attributes:
        fmha: Format of the products; empty for decode tables, which do not key on it.
        kv: Format of the cache; empty for the encoder.
        kv_heads: Key/value heads; 0 when each query head has its own, one slice then spans all head counts.
        head_size: Width of a head.
        window: Sliding window, 0 for none.
    """

    fmha: str
    kv: str
    kv_heads: int
    head_size: int
    window: int


@dataclass(frozen=True)
class AttentionTable:
    """One attention table: rows with the lane and slice of each.

    Attributes:
        phase: `context`, `generation` or `encoder`.
        lanes: Kernels in the order in which rows of them were first met.
        slices: `(lane, key)` of each slice.
        slice_of: Slice of each row [row].
        heads, outer, inner: Coordinates of each row: (heads, length, batch) in prefill and encoder, (heads, batch,
            length) in decode [row].
        latency_ms: Measured latency [row].
        outer_knots, inner_knots: Distinct coordinates of all rows, ascending, padded to a bucket.
    """

    phase: str
    lanes: tuple[str, ...]
    slices: tuple[tuple[str, SliceKey], ...]
    slice_of: np.ndarray
    heads: np.ndarray
    outer: np.ndarray
    inner: np.ndarray
    latency_ms: np.ndarray
    outer_knots: np.ndarray
    inner_knots: np.ndarray

    def find(self, lane_order: Sequence[str], key: SliceKey) -> int | None:
        """First slice of `key` along `lane_order`, then along the other lanes as first met; None when none has it."""
        rest = [lane for lane in self.lanes if lane not in lane_order]
        for lane in (*lane_order, *rest):
            if (lane, key) in self.slices:
                return self.slices.index((lane, key))
        return None


@functools.lru_cache(maxsize=32)
def load_attention(system: System, backend: str, version: str, shared: bool, phase: str) -> AttentionTable | None:
    """One attention table, the first row of each point; None when nothing was measured."""
    rows = read_rows(system.name, backend, version, TABLES[phase], shared)
    if rows is None or not len(rows):
        return None
    none = np.zeros(len(rows), np.int64)
    heads, head_size = rows.number("num_heads"), rows.number("head_dim")
    batch, length = rows.number("batch_size"), rows.number("isl")
    lane, lanes = (none, (DEFAULT_LANE,)) if phase == "encoder" else rows.text("kernel_source", DEFAULT_LANE)
    fmha, fmhas = (none, ("",)) if phase == "generation" else rows.text("attn_dtype")
    kv, kvs = (none, ("",)) if phase == "encoder" else rows.text("kv_cache_dtype")
    kv_heads = heads if phase == "encoder" else rows.number("num_key_value_heads")
    kv_heads = np.where(kv_heads == heads, 0, kv_heads)
    window = none if phase == "encoder" else rows.number("window_size", 0).astype(np.int64)
    outer, inner = (batch, length + rows.number("step")) if phase == "generation" else (length, batch)
    sizes = [coded_numbers(column) for column in (kv_heads, head_size, window)]
    columns = [(lane, lanes), (fmha, fmhas), (kv, kvs), *sizes]
    points = ragged_table(columns, heads, outer, inner, rows.number("latency"))
    slices = tuple((str(lane), SliceKey(*key)) for lane, *key in points.keys)
    axes = (points.heads, points.outer, points.inner)
    return AttentionTable(
        phase, tuple(lanes), slices, points.slice_of, *axes, points.latency_ms, *shared_knots([points])
    )


def backend_lanes(database: Database, phase: str) -> Sequence[str]:
    """Order in which a backend's attention kernels are tried, the asked-for or the framework's own first."""
    if database.lanes is not None:
        return database.lanes
    if not database.measured:
        return []
    system, backend, version, shared = database.where
    preferred = database.attention_backend
    return lane_order(
        system.name,
        backend,
        version,
        phase,
        sm_version=system.sm_version,
        attention_backend=preferred,
        shared=shared,
    )


def decode_fmha(system: System, kv: str) -> str:
    """Format in which decode attention multiplies."""
    return "fp8" if kv == "fp8" and (system.sm_version or 0) >= FP8_ATTENTION_SM else "bfloat16"


def slice_sol_ms(system: System, phase: str, key: SliceKey, heads, outer, inner) -> np.ndarray:
    """Roofline of measured points, on the host in float64: no prefix, the slice's own heads and window."""
    bandwidth = system.mem_bw_bytes_per_s / 1e3
    heads, outer, inner = (np.asarray(x, np.float64) for x in (heads, outer, inner))
    kv_heads = np.where(key.kv_heads == 0, heads, key.kv_heads)
    if phase == "encoder":
        peak = system.peak(quant.FMHA[key.fmha].dtype) / 1e3
        return encoder_attention_sol_ms(inner, outer, heads, key.head_size, peak, bandwidth, xp=np)
    kv_bytes = quant.KVCACHE[key.kv].bytes
    if phase == "context":
        peak = system.peak(quant.FMHA[key.fmha].dtype) / 1e3
        return context_attention_sol_ms(
            inner, outer, 0.0, heads, kv_heads, key.head_size, key.window, kv_bytes, peak, bandwidth, xp=np
        )
    peak = system.peak(decode_fmha(system, key.kv)) / 1e3
    return generation_attention_sol_ms(
        outer, inner, heads, kv_heads, key.head_size, key.window, kv_bytes, peak, bandwidth, xp=np
    )


def slice_points(
    system: System, table: AttentionTable, index: int
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
    """Points of one slice in ascending (heads, outer, inner): these axes, latency and roofline, in float64.

    Decode points are raised to their roofline where they were measured below it.
    """
    mine = np.flatnonzero(table.slice_of == index)
    mine = mine[np.lexsort((table.inner[mine], table.outer[mine], table.heads[mine]))]
    axes = (table.heads[mine], table.outer[mine], table.inner[mine])
    latency, sol = table.latency_ms[mine], slice_sol_ms(system, table.phase, table.slices[index][1], *axes)
    return axes, np.maximum(latency, sol) if table.phase == "generation" else latency, sol


def bind_attention_slice(system: System, table: AttentionTable, index: int, heads: int, leaves: int) -> GridSlice:
    """One slice bound to a head count."""
    axes, latency, sol = slice_points(system, table, index)
    knots = (table.outer_knots, table.inner_knots)
    head_knots, dense = dense_grid(*axes, latency, knots)
    _, roofs = dense_grid(*axes, sol, knots)
    return bind_slice(head_knots, dense, knots, heads, roofs, leaves)


def most_leaves(table: AttentionTable | None) -> int:
    """Points of the largest slice of a table, rounded up to a bucket."""
    return padded_leaves(1 if table is None else int(np.bincount(table.slice_of).max()))


def no_slice(table: AttentionTable | None, leaves: int) -> GridSlice:
    """Slice of a shape that was never measured, of the table's shape."""
    spare = padded_knots(np.ones(1))
    knots = (spare, spare) if table is None else (table.outer_knots, table.inner_knots)
    return empty_slice(knots, leaves)
