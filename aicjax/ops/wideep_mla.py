# SPDX-License-Identifier: Apache-2.0
"""Latent-attention blocks under large expert parallelism: measured per attention kernel, query expansion to output."""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax import quant
from aicjax._results import InputError
from aicjax._types import Array
from aicjax._units import MS_PER_S
from aicjax.constants import OpConstants
from aicjax.interp.grid import Question
from aicjax.ops.attention_tables import decode_fmha
from aicjax.ops.database import Database
from aicjax.ops.mla_grid import MlaGrid, ask_decode, ask_prefill, bind_grid, decode_sol, prefill_sol
from aicjax.ops.mla_roofline import (
    nearest_sharded_heads,
    sharded_heads,
    wideep_context_mla_sol_ms,
    wideep_generation_mla_sol_ms,
)
from aicjax.ops.mla_tables import load_mla, mla_available
from aicjax.ops.records import WideEpContextMla, WideEpGenerationMla
from aicjax.ops.roofline import Hardware, dtype_index

KERNELS = ("flashinfer", "fa3")  # attention kernels whose tables may be interpolated; estimates take any
SCORE_DTYPE = "bfloat16"

Record = WideEpContextMla | WideEpGenerationMla


class WideEpMlaRows(eqx.Module):
    """Distinct latent-attention blocks of one phase.

    Attributes:
        grid: Their measured points.
        element_bytes: Bytes per element of weights and activations [row].
        dtype: Position of the projections' data type in `Hardware.peak` [row].
    """

    grid: MlaGrid
    element_bytes: Float[Array, " row"]
    dtype: Int[Array, " row"]


def bind_wideep_context_mla(database: Database, records: Sequence[WideEpContextMla], *, rows: int) -> WideEpMlaRows:
    """Rows for prefill `records`, padded to `rows`.

    Raises:
        InputError: An attention kernel whose table may not be interpolated.
        MissingPeak: The system states no peak for the format of a product.
    """

    def sol(heads, length, batch, *shape):
        return wideep_context_mla_sol_ms(batch, length, 0.0, heads, *shape, xp=np)

    return _bind(database, records, sol, rows)


def bind_wideep_generation_mla(
    database: Database, records: Sequence[WideEpGenerationMla], *, rows: int
) -> WideEpMlaRows:
    """Rows for decode `records`, padded to `rows`; raises as `bind_wideep_context_mla`."""

    def sol(heads, batch, length, *shape):
        return wideep_generation_mla_sol_ms(batch, length, heads, *shape, xp=np)

    return _bind(database, records, sol, rows)


def _bind(database: Database, records: Sequence[Record], sol: Callable[..., np.ndarray], rows: int) -> WideEpMlaRows:
    """Rows of one phase; `sol` of (heads, outer, inner) and what rooflines know of an operator."""
    system, bandwidth = database.system, database.system.mem_bw_bytes_per_s / MS_PER_S
    records = [_preferred(database, record) for record in records]
    for record in records:
        _check_kernel(database, record)
    forms = [quant.FMHA[product_format(database, record)] for record in records]
    score_peak = system.peak(SCORE_DTYPE) / MS_PER_S
    known = {
        record: (form.bytes, system.peak(form.dtype) / MS_PER_S) for record, form in zip(records, forms, strict=True)
    }
    whole_ranks = sharded_heads if database.interpolates else nearest_sharded_heads

    def roof(record, heads, outer, inner):
        return sol(whole_ranks(heads, xp=np), outer, inner, *known[record], score_peak, bandwidth)

    pad = (0, rows - len(records))
    return WideEpMlaRows(
        grid=bind_grid(database, records, roof, rows=rows),
        element_bytes=np.pad([float(form.bytes) for form in forms], pad).astype(np.float32),
        dtype=np.pad([dtype_index(form.dtype) for form in forms], pad).astype(np.int32),
    )


def _preferred(database: Database, record: Record) -> Record:
    """The record with the attention kernel that the caller prefers, if it is one of these blocks."""
    kernel = database.attention_backend
    return dataclasses.replace(record, kernel=kernel) if kernel in KERNELS else record


def _check_kernel(database: Database, record: Record) -> None:
    measured = database.interpolates and load_mla(*database.where, type(record)) is not None
    if measured and record.kernel not in KERNELS:
        raise InputError("attention_backend", record.kernel, f"one of {', '.join(KERNELS)}")


def wideep_mla_available(database: Database, record: Record) -> bool:
    """Whether measured tables hold the slice that a record asks for, of a kernel that may answer."""
    record = _preferred(database, record)
    return mla_available(database, record) and (record.kernel in KERNELS or not database.interpolates)


def product_format(database: Database, record: Record) -> str:
    """Format of a block's projections: in decode it follows the cache's, whatever the record says."""
    if isinstance(record, WideEpContextMla):
        return record.fmha_quant
    return decode_fmha(database.system, record.kv_quant)


def ask_wideep_context_mla(
    rows: WideEpMlaRows, batch, new, prefix, hardware: Hardware, constants: OpConstants
) -> Question:  # fmt: skip
    """The question of the latency of `batch` prompts of `new` tokens behind a cached `prefix`.

    Args:
        rows: Bound operators.
        batch, new, prefix: Coordinates, int32 [point] or [row, point].
        hardware: Peaks and bandwidths.
        constants: Not used: the table holds all that runs.
    """
    roof = _context_roof if rows.grid.samples is not None else _sharded(_context_roof)
    return ask_prefill(rows.grid, roof, _shape(rows, hardware), batch, new, prefix, hardware)


def wideep_context_mla_sol(rows: WideEpMlaRows, batch, new, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of `ask_wideep_context_mla` [row, point]."""
    return prefill_sol(rows.grid, _context_roof, _shape(rows, hardware), batch, new, prefix, hardware)


def ask_wideep_generation_mla(
    rows: WideEpMlaRows, batch, length, prefix, hardware: Hardware, constants: OpConstants
) -> Question:  # fmt: skip
    """The question of the latency of one decode step of `batch` sequences of `length` tokens, the new one included.

    Args:
        rows: Bound operators.
        batch, length: Coordinates, int32 [point] or [row, point].
        prefix: Not used: `length` counts cached tokens.
        hardware: Peaks and bandwidths.
        constants: Not used: the table holds all that runs.
    """
    roof = _generation_roof if rows.grid.samples is not None else _sharded(_generation_roof)
    return ask_decode(rows.grid, roof, _shape(rows, hardware), batch, length, hardware)


def wideep_generation_mla_sol(rows: WideEpMlaRows, batch, length, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of `ask_wideep_generation_mla` [row, point]."""
    return decode_sol(rows.grid, _generation_roof, _shape(rows, hardware), batch, length, hardware)


def _shape(rows: WideEpMlaRows, hardware: Hardware):
    peak = hardware.peak[rows.dtype]
    return rows.element_bytes, peak, jnp.broadcast_to(hardware.peak[dtype_index(SCORE_DTYPE)], peak.shape)


def _sharded(roof):
    """The same roofline, of a whole number of ranks: grids hold and scale by it."""
    return lambda heads, *point: roof(sharded_heads(heads), *point)


def _context_roof(heads, batch, full, prefix, element_bytes, peak, score_peak, hardware):
    return wideep_context_mla_sol_ms(batch, full, prefix, heads, element_bytes, peak, score_peak, hardware.mem_bw)


def _generation_roof(heads, batch, length, element_bytes, peak, score_peak, hardware):
    return wideep_generation_mla_sol_ms(batch, length, heads, element_bytes, peak, score_peak, hardware.mem_bw)
