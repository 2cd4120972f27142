# SPDX-License-Identifier: Apache-2.0
"""Dense causal attention as two kinds of operator: prefill and decode."""

from collections.abc import Sequence

from aicjax.constants import OpConstants
from aicjax.interp.grid import Question
from aicjax.ops import attention
from aicjax.ops.attention_tables import backend_lanes, load_attention
from aicjax.ops.database import Database
from aicjax.ops.records import ContextAttention, GenerationAttention
from aicjax.ops.roofline import Hardware

ask_context_attention = attention.ask_context_attention
context_attention_sol = attention.context_attention_sol


def bind_context_attention(
    database: Database, records: Sequence[ContextAttention], *, rows: int
) -> attention.AttentionRows:
    """Rows for prefill `records`, padded to `rows`."""
    return attention.bind_attention(database, "context", records, backend_lanes(database, "context"), rows=rows)


def bind_generation_attention(
    database: Database, records: Sequence[GenerationAttention], *, rows: int
) -> attention.AttentionRows:
    """Rows for decode `records`, padded to `rows`."""
    return attention.bind_attention(database, "generation", records, backend_lanes(database, "generation"), rows=rows)


def ask_generation_attention(
    rows: attention.AttentionRows, batch, length, prefix, hardware: Hardware, constants: OpConstants
) -> Question:
    """The question of a decode step; decode knows no prefix."""
    return attention.ask_generation_attention(rows, batch, length, hardware)


def generation_attention_sol(
    rows: attention.AttentionRows, batch, length, prefix, hardware: Hardware, constants: OpConstants
):
    """Roofline of a decode step [row, point]."""
    return attention.generation_attention_sol(rows, batch, length, hardware)


def causal_available(database: Database, record: ContextAttention | GenerationAttention) -> bool:
    """Whether the shape was measured."""
    phase = "context" if isinstance(record, ContextAttention) else "generation"
    table = load_attention(*database.where, phase)
    return table is not None and table.find(backend_lanes(database, phase), attention.slice_key(record)) is not None
