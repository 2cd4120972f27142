# SPDX-License-Identifier: Apache-2.0
"""Attention operators: prefill, decode and encoder, bound to their measured slices."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax import quant
from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.hardware import System
from aicjax.interp.counts import floor_div
from aicjax.interp.grid import GridSlice, Question, answer, ask
from aicjax.ops.attention_estimate import (
    AttentionEstimates,
    bind_attention_estimates,
    with_attention_estimates,
)
from aicjax.ops.attention_tables import (
    SliceKey,
    bind_attention_slice,
    decode_fmha,
    load_attention,
    most_leaves,
    no_slice,
)
from aicjax.ops.database import Database
from aicjax.ops.ragged import padded_knots
from aicjax.ops.records import ContextAttention, EncoderAttention, GenerationAttention
from aicjax.ops.roofline import (
    Hardware,
    context_attention_sol_ms,
    dtype_index,
    encoder_attention_sol_ms,
    generation_attention_sol_ms,
    memory_ms,
)
from aicjax.ops.zigzag import Chunks, chunks

ACTIVATION_BYTES = 2  # queries, keys and values as the projections write them
DECODE_SAMPLES = 5  # lengths averaged around the one asked for
DECODE_SPREAD_TENTHS = 1  # distance of the outermost of them, in tenths of the length

Record = ContextAttention | GenerationAttention | EncoderAttention


class AttentionRows(eqx.Module):
    """Distinct attention operators of one phase.

    Attributes:
        slices: Bound slices, every field with a leading row axis.
        outer_knots, inner_knots: Coordinates that the slices share.
        heads, kv_heads, head_size, window: Shape of each operator [row].
        slice_kv_heads: Key/value heads in the roofline of measured points, 0 for as many as query heads [row].
        kv_bytes, fmha_bytes: Bytes per element of the cache and of the products [row].
        dtype: Position of the products' data type in `Hardware.peak` [row].
        qk_norm: 1 where queries and keys are normalised [row].
        cp: Context-parallel ranks that share a prompt [row].
        imbalance: Factor for uneven sequences [row].
        rotary: Share of each head that the encoder rotates [row].
        estimates: What answers for the operators that have no slice; None when nothing does.
    """

    slices: GridSlice
    outer_knots: Float[Array, " outer"]
    inner_knots: Float[Array, " inner"]
    heads: Float[Array, " row"]
    kv_heads: Float[Array, " row"]
    head_size: Float[Array, " row"]
    window: Float[Array, " row"]
    slice_kv_heads: Float[Array, " row"]
    kv_bytes: Float[Array, " row"]
    fmha_bytes: Float[Array, " row"]
    dtype: Int[Array, " row"]
    qk_norm: Float[Array, " row"]
    cp: Int[Array, " row"]
    imbalance: Float[Array, " row"]
    rotary: Float[Array, " row"]
    estimates: AttentionEstimates | None


def slice_key(record: Record) -> SliceKey:
    """Which measured slice an operator asks for."""
    if isinstance(record, EncoderAttention):
        return SliceKey(record.fmha_quant, "", 0, record.head_size, 0)
    own = 0 if record.num_kv_heads == record.num_heads else record.num_kv_heads
    fmha = record.fmha_quant if isinstance(record, ContextAttention) else ""
    return SliceKey(fmha, record.kv_quant, own, record.head_size, record.window)


def product_format(system: System, record: Record) -> str:
    """Format in which an operator multiplies: decode kernels choose it by the cache's."""
    return decode_fmha(system, record.kv_quant) if isinstance(record, GenerationAttention) else record.fmha_quant


def bind_attention(
    database: Database, phase: str, records: Sequence[Record], lane_order: Sequence[str], *, rows: int
) -> AttentionRows:
    """Rows for `records` of one phase, padded to `rows`.

    Raises:
        MissingPeak: The system states no peak for the format of a product.
    """
    system = database.system
    for record in records:
        system.peak(quant.FMHA[product_format(system, record)].dtype)
    table = load_attention(*database.where, phase) if database.interpolates and records else None
    leaves = most_leaves(table)
    slices, answered = [], []
    for record in records:
        index = None if table is None else table.find(lane_order, slice_key(record))
        answered.append(index is not None)
        if table is None or index is None:
            slices.append(no_slice(table, leaves))
        else:
            slices.append(bind_attention_slice(system, table, index, record.num_heads, leaves))
    slices += [no_slice(table, leaves)] * (rows - len(slices))
    outer = padded_knots(np.ones(1)) if table is None else table.outer_knots
    inner = padded_knots(np.ones(1)) if table is None else table.inner_knots
    formats = [product_format(system, r) for r in records]

    def column(values, pad, dtype: type = np.float32):
        return np.array([*values, *[pad] * (rows - len(records))], dtype)

    return AttentionRows(
        slices=jax.tree.map(lambda *leaf: np.stack(leaf), *slices),
        outer_knots=outer.astype(np.float32),
        inner_knots=inner.astype(np.float32),
        heads=column([r.num_heads for r in records], 1),
        kv_heads=column([getattr(r, "num_kv_heads", r.num_heads) for r in records], 1),
        head_size=column([r.head_size for r in records], 1),
        window=column([getattr(r, "window", 0) for r in records], 0),
        slice_kv_heads=column([slice_key(r).kv_heads for r in records], 0),
        kv_bytes=column([quant.KVCACHE[k].bytes if (k := slice_key(r).kv) else 0 for r in records], 1),
        fmha_bytes=column([quant.FMHA[f].bytes for f in formats], 1),
        dtype=column([dtype_index(quant.FMHA[f].dtype) for f in formats], 0, np.int32),
        qk_norm=column([getattr(r, "qk_norm", False) for r in records], 0),
        cp=column([getattr(r, "cp", 1) for r in records], 1, np.int32),
        imbalance=column([getattr(r, "seq_imbalance", 1.0) for r in records], 1),
        rotary=column([getattr(r, "partial_rotary_factor", 0.0) for r in records], 0),
        estimates=bind_attention_estimates(
            database, phase, [slice_key(r) for r in records], answered, lane_order, rows=rows
        ),
    )


def context_attention_latency(
    rows: AttentionRows,
    batch: Int[Array, "*row point"],
    new: Int[Array, "*row point"],
    prefix: Int[Array, "*row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of prefill attention for `batch` prompts of `new` tokens behind a cached `prefix`, and its provenance.

    The table gives the whole causal triangle; a cached prefix takes its share off. Under context parallelism a rank
    computes the first and the last of its chunks. Rotary embedding, QK norm and the cache write are added once a
    call, as the memory traffic of one token.
    """
    return answer([ask_context_attention(rows, batch, new, prefix, hardware, constants)])[0]


def ask_context_attention(rows, batch, new, prefix, hardware: Hardware, constants: OpConstants) -> Question:
    """The question behind `context_attention_latency`."""
    count = rows.heads.shape[0]
    batch, new, prefix = _on_rows(count, batch.astype(jnp.float32), new, prefix)
    parts = chunks(new, prefix, rows.cp)

    def sol(shape, heads, length, batch):
        return context_attention_sol_ms(batch, length, 0.0, *_slice_shape(shape, heads), mem_bw=hardware.mem_bw)

    def finish(whole, code):
        latency = whole * parts.uncached()
        if rows.estimates is not None:
            coordinates = (rows.heads[:, None], parts.full, parts.both(batch))
            roof = _context_sol(rows, parts, batch, hardware)
            efficiency = constants.context_head_size_efficiency
            latency, code = with_attention_estimates(rows.estimates, coordinates, roof, latency, code, efficiency)
        extra = _context_extra_ms(rows, lambda moved: memory_ms(moved, hardware), constants)
        return (parts.total(latency) + extra[:, None]) * rows.imbalance[:, None], parts.worst(code)

    return _ask(rows, parts.full, parts.both(batch), hardware, sol, finish, sqrt_outer=True)


def context_attention_sol(rows, batch, new, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of `context_attention_latency` [row, point], its memory traffic at full bandwidth."""
    batch, new, prefix = _on_rows(rows.heads.shape[0], jnp.asarray(batch, jnp.float32), new, prefix)
    parts = chunks(new, prefix, rows.cp)
    each = _context_sol(rows, parts, batch, hardware)
    extra = _context_extra_ms(rows, lambda moved: moved / hardware.mem_bw, constants)
    return (parts.total(each) + extra[:, None]) * rows.imbalance[:, None]


def _context_sol(rows, parts: Chunks, batch, hardware: Hardware):
    """Roofline of the products of each part of a prompt [row, parts]."""
    shape = _columns(rows.heads, rows.kv_heads, rows.head_size, rows.window, rows.kv_bytes, hardware.peak[rows.dtype])
    return context_attention_sol_ms(parts.both(batch), parts.full, parts.cached, *shape, mem_bw=hardware.mem_bw)


def _context_extra_ms(rows, memory, constants):
    """Rotary embedding, QK norm and cache write of one call [row]."""
    queries, keys = rows.heads * rows.head_size, rows.kv_heads * rows.head_size
    norm = rows.qk_norm * 2 * (2 * memory(ACTIVATION_BYTES * queries) + 2 * memory(ACTIVATION_BYTES * keys))
    rotary = 2 * memory(ACTIVATION_BYTES * (queries + keys))
    cache_write = 2 * memory(keys * rows.fmha_bytes)
    return constants.context_attention_extra_factor * (norm + rotary + cache_write)


def generation_attention_latency(
    rows: AttentionRows, batch: Int[Array, "*row point"], length: Int[Array, "*row point"], hardware: Hardware
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of one decode step of `batch` sequences of `length` cached tokens, and its provenance.

    The mean over five lengths within a tenth of the one asked for: decode lengths differ between sequences, and the
    measured grid is coarse.
    """
    return answer([ask_generation_attention(rows, batch, length, hardware)])[0]


def ask_generation_attention(rows, batch, length, hardware: Hardware) -> Question:
    """The question behind `generation_attention_latency`."""
    count = rows.heads.shape[0]
    low = jnp.maximum(1, floor_div(length * (10 - DECODE_SPREAD_TENTHS), 10))
    high = jnp.maximum(low, floor_div(length * (10 + DECODE_SPREAD_TENTHS), 10))
    step = [floor_div((high - low) * at, DECODE_SAMPLES - 1) for at in range(DECODE_SAMPLES)]
    lengths = jnp.concatenate([low + by for by in step], -1).astype(jnp.float32)
    asked, whole = _on_rows(count, batch.astype(jnp.float32), length.astype(jnp.float32))
    batch, lengths = _on_rows(count, jnp.tile(batch, DECODE_SAMPLES).astype(jnp.float32), lengths)

    def sol(shape, heads, batch, length):
        return generation_attention_sol_ms(batch, length, *_slice_shape(shape, heads), mem_bw=hardware.mem_bw)

    def finish(latency, code):
        latency, code = (x.reshape(count, DECODE_SAMPLES, -1) for x in (latency, code))
        # A mean over lengths is never one measurement.
        latency, code = latency.mean(1), jnp.maximum(code.max(1), Provenance.INTERPOLATED)
        if rows.estimates is not None:
            coordinates = (rows.heads[:, None], asked, whole)
            roof = _generation_sol(rows, asked, whole, hardware)
            latency, code = with_attention_estimates(rows.estimates, coordinates, roof, latency, code)
        return latency * rows.imbalance[:, None], code

    return _ask(rows, batch, lengths, hardware, sol, finish, sqrt_outer=False)


def generation_attention_sol(rows, batch, length, hardware: Hardware):
    """Roofline of one decode step [row, point]."""
    batch, length = (jnp.asarray(x, jnp.float32) for x in (batch, length))
    return _generation_sol(rows, batch, length, hardware) * rows.imbalance[:, None]


def _generation_sol(rows, batch, length, hardware: Hardware):
    """Roofline of the products of one decode step [row, point]."""
    shape = _columns(rows.heads, rows.kv_heads, rows.head_size, rows.window, rows.kv_bytes, hardware.peak[rows.dtype])
    return generation_attention_sol_ms(batch, length, *shape, mem_bw=hardware.mem_bw)


def encoder_attention_latency(
    rows: AttentionRows,
    batch: Int[Array, "*row point"],
    length: Int[Array, "*row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of non-causal attention over `batch` sequences of `length`, with its rotary embedding; provenance."""
    return answer([ask_encoder_attention(rows, batch, length, hardware, constants)])[0]


def ask_encoder_attention(rows, batch, length, hardware: Hardware, constants: OpConstants) -> Question:
    """The question behind `encoder_attention_latency`."""
    points = (batch.astype(jnp.float32), length.astype(jnp.float32))
    batch, length = _on_rows(rows.heads.shape[0], *points)

    def sol(shape, heads, length, batch):
        _, head_size, _, _, peak = shape
        return encoder_attention_sol_ms(batch, length, heads, head_size, peak, hardware.mem_bw)

    def finish(table, code):
        if rows.estimates is not None:
            coordinates = (rows.heads[:, None], length, batch)
            roof = _encoder_sol(rows, batch, length, hardware)
            table, code = with_attention_estimates(rows.estimates, coordinates, roof, table, code)
        return table + _encoder_extra_ms(rows, batch, length, lambda b: memory_ms(b, hardware), constants), code

    return _ask(rows, length, batch, hardware, sol, finish, sqrt_outer=True)


def encoder_attention_sol(rows, batch, length, hardware: Hardware, constants: OpConstants):
    """Roofline of `encoder_attention_latency` [row, point], its memory traffic at full bandwidth."""
    batch, length = (jnp.asarray(x, jnp.float32) for x in (batch, length))
    table = _encoder_sol(rows, batch, length, hardware)
    return table + _encoder_extra_ms(rows, batch, length, lambda b: b / hardware.mem_bw, constants)


def _encoder_sol(rows, batch, length, hardware: Hardware):
    """Roofline of the products of non-causal attention [row, point]."""
    shape = _columns(rows.heads, rows.head_size, hardware.peak[rows.dtype])
    return encoder_attention_sol_ms(batch, length, *shape, mem_bw=hardware.mem_bw)


def _encoder_extra_ms(rows, batch, length, memory, constants):
    """Rotary embedding of queries and keys, read and written [row, point]."""
    moved = 2 * ACTIVATION_BYTES * (rows.heads * rows.head_size)[:, None] * (batch * length)
    return constants.context_attention_extra_factor * 2 * rows.rotary[:, None] * memory(moved)


def _columns(*values):
    return tuple(value[:, None] for value in values)


def _on_rows(count: int, *points):
    """Points that all rows share [point], or that each has for itself [row, point], as [row, point]."""
    return tuple(jnp.broadcast_to(point, (count, point.shape[-1])) for point in points)


def _ask(rows: AttentionRows, outer, inner, hardware: Hardware, sol, finish, *, sqrt_outer: bool) -> Question:
    """Table latency of all rows, as a question."""
    shapes = (rows.slice_kv_heads, rows.head_size, rows.window, rows.kv_bytes, hardware.peak[rows.dtype])
    knots = (rows.outer_knots, rows.inner_knots)
    axis = 0 if sqrt_outer else None
    return ask(rows.slices, knots, rows.heads, (outer, inner), sol, shapes, finish, sqrt_axis=axis)


def _slice_shape(shape, heads) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Shape of measured points as the causal rooflines take it; 0 key heads stand for as many as query heads."""
    kv_heads, head_size, window, kv_bytes, peak = shape
    return heads, jnp.where(kv_heads == 0, heads, kv_heads), head_size, window, kv_bytes, peak
