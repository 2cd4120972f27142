# SPDX-License-Identifier: Apache-2.0
"""Attention of a vision encoder as a kind of operator: patches of images see each other, and no cache is kept."""

from collections.abc import Sequence

from aicjax.constants import OpConstants
from aicjax.interp.grid import Question
from aicjax.ops import attention
from aicjax.ops.attention_tables import load_attention
from aicjax.ops.database import Database
from aicjax.ops.records import EncoderAttention
from aicjax.ops.roofline import Hardware

PHASE = "encoder"


def bind_encoder_attention(
    database: Database, records: Sequence[EncoderAttention], *, rows: int
) -> attention.AttentionRows:
    """Rows for encoder `records`, padded to `rows`."""
    return attention.bind_attention(database, PHASE, records, (), rows=rows)


def ask_encoder_attention(
    rows: attention.AttentionRows, batch, length, prefix, hardware: Hardware, constants: OpConstants
) -> Question:
    """The question of `batch` images of `length` patches; an encoder knows no prefix."""
    return attention.ask_encoder_attention(rows, batch, length, hardware, constants)


def encoder_attention_sol(
    rows: attention.AttentionRows, batch, length, prefix, hardware: Hardware, constants: OpConstants
):
    """Roofline of the same [row, point]."""
    return attention.encoder_attention_sol(rows, batch, length, hardware, constants)


def encoder_available(database: Database, record: EncoderAttention) -> bool:
    """Whether the shape was measured."""
    table = load_attention(*database.where, PHASE)
    return table is not None and table.find((), attention.slice_key(record)) is not None
