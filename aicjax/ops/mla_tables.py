# SPDX-License-Identifier: Apache-2.0
"""Measured latent attention: which table and which slice of it answers for an operator."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicjax._results import DataError
from aicjax.hardware import System
from aicjax.ops.database import Database
from aicjax.ops.ragged import RaggedTable, coded_numbers, ragged_table
from aicjax.ops.records import (
    ContextMla,
    GenerationMla,
    MlaModuleContext,
    MlaModuleGeneration,
    WideEpContextMla,
    WideEpGenerationMla,
)
from aicjax.tables.repair import is_repaired, read_repaired
from aicjax.tables.rows import Rows

GridRecord = (
    ContextMla | GenerationMla | MlaModuleContext | MlaModuleGeneration | WideEpContextMla | WideEpGenerationMla
)

# Attention heads of the models that blocks were measured with, before they are split over ranks.
NATIVE_HEADS = {
    "deepseek-ai/DeepSeek-V3": 128,
    "deepseek-ai/DeepSeek-R1": 128,
    "nvidia/DeepSeek-V3.1-NVFP4": 128,
    "moonshotai/Kimi-K3": 96,
}


@dataclass(frozen=True)
class MlaTable:
    """One measured table.

    Attributes:
        name: Its file.
        columns: Columns that select a slice.
        fields: What a record asks of each of them.
        decode: Whether points are (heads, batch, cached length); else (heads, length, batch).
        whole_block: Whether the model it was measured with selects a slice too, by its number of heads.
    """

    name: str
    columns: tuple[str, ...]
    fields: tuple[str, ...]
    decode: bool = False
    whole_block: bool = False


_FORMATS, _FORMAT_FIELDS = ("mla_dtype", "kv_cache_dtype"), ("fmha_quant", "kv_quant")
_KV, _KV_FIELD = ("kv_cache_dtype",), ("kv_quant",)  # decode tables do not tell formats of products apart
_GEMM, _GEMM_FIELD = ("gemm_type",), ("gemm_quant",)
_KERNEL, _KERNEL_FIELD = ("kernel_source",), ("kernel",)
TABLES: dict[type, MlaTable] = {
    ContextMla: MlaTable("context_mla_perf", _FORMATS, _FORMAT_FIELDS),
    GenerationMla: MlaTable("generation_mla_perf", _KV, _KV_FIELD, decode=True),
    MlaModuleContext: MlaTable(
        "mla_context_module_perf", _FORMATS + _GEMM, _FORMAT_FIELDS + _GEMM_FIELD, whole_block=True
    ),
    MlaModuleGeneration: MlaTable(
        "mla_generation_module_perf", _KV + _GEMM, _KV_FIELD + _GEMM_FIELD, decode=True, whole_block=True
    ),
    WideEpContextMla: MlaTable("wideep_context_mla_perf", _KERNEL + _FORMATS, _KERNEL_FIELD + _FORMAT_FIELDS),
    WideEpGenerationMla: MlaTable("wideep_generation_mla_perf", _KERNEL + _KV, _KERNEL_FIELD + _KV_FIELD, decode=True),
}


@functools.lru_cache(maxsize=64)
def load_mla(
    system: System, backend: str, version: str, shared: bool, record: type, repaired: bool = False
) -> RaggedTable | None:
    """Measured points of one kind of record; None when nothing was measured. The last key of a block is its heads."""
    table = TABLES[record]
    rows = read_repaired(system.name, backend, version, table.name, shared, repaired)
    if rows is None or not len(rows):
        return None
    columns: list[tuple[np.ndarray, Sequence[Any]]] = [rows.text(column) for column in table.columns]
    if table.whole_block:
        columns.append(_native_heads(rows))
    batch, length = rows.number("batch_size"), rows.number("isl")
    axes = (batch, length + rows.number("step", 0)) if table.decode else (length, batch)
    outer, inner = (axis.astype(np.int64) for axis in axes)
    return ragged_table(columns, rows.number("num_heads"), outer, inner, rows.number("latency"), is_repaired(rows))


def _native_heads(rows: Rows) -> tuple[np.ndarray, list[int]]:
    codes, models = rows.text("model")
    for code, model in enumerate(models):
        if model not in NATIVE_HEADS:
            row = int(np.argmax(codes == code))
            raise DataError(f"{rows.place(row)}, column model: {model!r} is none of {', '.join(NATIVE_HEADS)}")
    return coded_numbers(np.array([NATIVE_HEADS[model] for model in models])[codes])


def find_slice(database: Database, record: GridRecord) -> tuple[RaggedTable, int] | None:
    """Table that answers for a record and its slice there; None when its formats were never measured.

    Another attention kernel answers for one that was not measured.
    """
    spec, table = TABLES[type(record)], load_mla(*database.where, type(record), database.repaired)
    if table is None:
        return None
    key = tuple(getattr(record, field) for field in spec.fields)
    if spec.whole_block:
        bucket = native_bucket([known for *formats, known in table.keys if tuple(formats) == key], record)
        key = (*key, bucket)
    if spec.columns[:1] == _KERNEL and key not in table.keys:
        key = next((known for known in table.keys if known[1:] == key[1:]), key)
    return (table, table.keys.index(key)) if key in table.keys else None


def native_bucket(measured: list, record) -> int | None:
    """Head count of the measured model that stands for the record's: the largest up to its own, else the smallest.

    A record that states none is answered only when there is one to choose.
    """
    if record.native_heads is None or len(measured) < 2:
        return measured[0] if len(measured) == 1 else None
    return max((heads for heads in measured if heads <= record.native_heads), default=min(measured))


def mla_available(database: Database, record: GridRecord) -> bool:
    """Whether measured tables hold the slice that a record asks for."""
    return find_slice(database, record) is not None
