# SPDX-License-Identifier: Apache-2.0
"""Latent attention: prefill and decode, the kernel alone or measured as a block with its projections."""

from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from aicjax import quant
from aicjax._types import Array
from aicjax._units import MS_PER_S
from aicjax.constants import OpConstants
from aicjax.interp.grid import Question
from aicjax.ops.attention_tables import decode_fmha
from aicjax.ops.database import Database
from aicjax.ops.mla_grid import MlaGrid, ask_decode, ask_prefill, bind_grid, decode_sol, prefill_sol
from aicjax.ops.mla_roofline import context_mla_sol_ms, generation_mla_sol_ms
from aicjax.ops.mla_tables import mla_available as mla_available
from aicjax.ops.records import ContextMla, GenerationMla, MlaModuleContext, MlaModuleGeneration
from aicjax.ops.roofline import Hardware, dtype_index

BLOCK_PRODUCTS = 2  # absorbed products in the roofline of a decode block: before and after attention

ContextRecord = ContextMla | MlaModuleContext
GenerationRecord = GenerationMla | MlaModuleGeneration


class ContextMlaRows(eqx.Module):
    """Distinct latent-attention operators of a prefill.

    Attributes:
        grid: Their measured points.
        kv_bytes: Bytes per element of the cache [row].
        dtype: Position of the products' data type in `Hardware.peak` [row].
    """

    grid: MlaGrid
    kv_bytes: Float[Array, " row"]
    dtype: Int[Array, " row"]


class GenerationMlaRows(eqx.Module):
    """Distinct latent-attention operators of a decode step.

    Attributes:
        grid: Their measured points.
        kv_bytes: Bytes per element of the cache [row].
        dtype: Position of the attention's data type in `Hardware.peak` [row].
        products: Absorbed products that belong to the operator [row].
        product_bytes: Bytes per element of those [row].
        product_dtype: Position of their data type in `Hardware.peak` [row].
    """

    grid: MlaGrid
    kv_bytes: Float[Array, " row"]
    dtype: Int[Array, " row"]
    products: Float[Array, " row"]
    product_bytes: Float[Array, " row"]
    product_dtype: Int[Array, " row"]


def bind_context_mla(database: Database, records: Sequence[ContextRecord], *, rows: int) -> ContextMlaRows:
    """Rows for prefill `records`, padded to `rows`.

    Raises:
        MissingPeak: The system states no peak for the format of a product.
    """
    system, bandwidth = database.system, database.system.mem_bw_bytes_per_s / MS_PER_S
    peaks = {r.fmha_quant: system.peak(quant.FMHA[r.fmha_quant].dtype) / MS_PER_S for r in records}

    def roof(record, heads, length, batch):
        kv_bytes, peak = quant.KVCACHE[record.kv_quant].bytes, peaks[record.fmha_quant]
        return context_mla_sol_ms(batch, length, 0.0, heads, kv_bytes, peak, bandwidth, xp=np)

    pad = (0, rows - len(records))
    return ContextMlaRows(
        grid=bind_grid(database, records, roof, rows=rows),
        kv_bytes=_padded([quant.KVCACHE[r.kv_quant].bytes for r in records], pad),
        dtype=_padded([dtype_index(quant.FMHA[r.fmha_quant].dtype) for r in records], pad, np.int32),
    )


def bind_generation_mla(database: Database, records: Sequence[GenerationRecord], *, rows: int) -> GenerationMlaRows:
    """Rows for decode `records`, padded to `rows`; raises as `bind_context_mla`."""
    system, bandwidth = database.system, database.system.mem_bw_bytes_per_s / MS_PER_S
    attention = [decode_fmha(system, r.kv_quant) for r in records]
    product = [quant.GEMM[r.gemm_quant if isinstance(r, MlaModuleGeneration) else "bfloat16"] for r in records]
    count = [BLOCK_PRODUCTS if isinstance(r, MlaModuleGeneration) else 0 for r in records]
    known = {
        record: (
            quant.KVCACHE[record.kv_quant].bytes, system.peak(fmha) / MS_PER_S,
            times, form.bytes, system.peak(form.dtype) / MS_PER_S,
        )
        for record, fmha, times, form in zip(records, attention, count, product, strict=True)
    }  # fmt: skip

    def roof(record, heads, batch, length):
        return generation_mla_sol_ms(batch, length, heads, *known[record], bandwidth, xp=np)

    pad = (0, rows - len(records))
    return GenerationMlaRows(
        grid=bind_grid(database, records, roof, rows=rows),
        kv_bytes=_padded([quant.KVCACHE[r.kv_quant].bytes for r in records], pad),
        dtype=_padded([dtype_index(name) for name in attention], pad, np.int32),
        products=_padded(count, pad),
        product_bytes=_padded([form.bytes for form in product], pad),
        product_dtype=_padded([dtype_index(form.dtype) for form in product], pad, np.int32),
    )


def _padded(values: Sequence[float], pad: tuple[int, int], dtype: type = np.float32) -> np.ndarray:
    return np.pad(np.array(values, dtype), pad)


def ask_context_mla(
    rows: ContextMlaRows, batch, new, prefix, hardware: Hardware, constants: OpConstants
) -> Question:  # fmt: skip
    """The question of the latency of `batch` prompts of `new` tokens behind a cached `prefix`.

    Args:
        rows: Bound operators.
        batch, new, prefix: Coordinates, int32 [point] or [row, point].
        hardware: Peaks and bandwidths.
        constants: Not used: the table holds all that runs.
    """
    return ask_prefill(rows.grid, _context_roof, _context_shape(rows, hardware), batch, new, prefix, hardware)


def context_mla_sol(rows: ContextMlaRows, batch, new, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of `ask_context_mla` [row, point]."""
    return prefill_sol(rows.grid, _context_roof, _context_shape(rows, hardware), batch, new, prefix, hardware)


def ask_generation_mla(
    rows: GenerationMlaRows, batch, length, prefix, hardware: Hardware, constants: OpConstants
) -> Question:  # fmt: skip
    """The question of the latency of one decode step of `batch` sequences of `length` tokens, the new one included.

    Args:
        rows: Bound operators.
        batch, length: Coordinates, int32 [point] or [row, point].
        prefix: Not used: `length` counts cached tokens.
        hardware: Peaks and bandwidths.
        constants: Not used: the table holds all that runs.
    """
    return ask_decode(rows.grid, _generation_roof, _generation_shape(rows, hardware), batch, length, hardware)


def generation_mla_sol(rows: GenerationMlaRows, batch, length, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of `ask_generation_mla` [row, point]."""
    return decode_sol(rows.grid, _generation_roof, _generation_shape(rows, hardware), batch, length, hardware)


def _context_shape(rows: ContextMlaRows, hardware: Hardware):
    return rows.kv_bytes, hardware.peak[rows.dtype]


def _context_roof(heads, batch, full, prefix, kv_bytes, peak, hardware):
    return context_mla_sol_ms(batch, full, prefix, heads, kv_bytes, peak, hardware.mem_bw)


def _generation_shape(rows: GenerationMlaRows, hardware: Hardware):
    product_peak = hardware.peak[rows.product_dtype]
    return rows.kv_bytes, hardware.peak[rows.dtype], rows.products, rows.product_bytes, product_peak


def _generation_roof(heads, batch, length, kv_bytes, peak, products, product_bytes, product_peak, hardware):
    product = (products, product_bytes, product_peak)
    return generation_mla_sol_ms(batch, length, heads, kv_bytes, peak, *product, hardware.mem_bw)
