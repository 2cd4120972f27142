# SPDX-License-Identifier: Apache-2.0
"""Every kind of operator that a forward pass can hold, and how each binds and answers.

A kind is driven either by a token count alone or by a batch of sequences. Kernels loop over the kinds that a model
has; they name none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aicjax.constants import OpConstants
from aicjax.ops import attention, comm, gemm, traffic
from aicjax.ops.attention_tables import backend_lanes
from aicjax.ops.database import Database
from aicjax.ops.records import (
    P2P,
    AllReduce,
    ContextAttention,
    Elementwise,
    Embedding,
    EncoderAttention,
    Gemm,
    GenerationAttention,
    Nccl,
)
from aicjax.ops.roofline import Hardware


@dataclass(frozen=True)
class TokenKind:
    """Operators that a token count drives.

    Attributes:
        records: Their records.
        bind: `(database, records, rows=)` to bound rows.
        latency: `(rows, reads, counts, hardware, constants)` to `(latency_ms, provenance)` [row, point]; `reads[row]`
            names the row of `counts` [transform, point] that holds its token counts.
        sol: The same arguments to rooflines [row, point].
    """

    records: tuple[type, ...]
    bind: Callable[..., Any]
    latency: Callable[..., Any]
    sol: Callable[..., Any]


@dataclass(frozen=True)
class SequenceKind:
    """Operators that a batch of sequences drives.

    Attributes:
        records: Their records.
        bind: `(database, records, rows=)` to bound rows.
        ask: `(rows, batch, length, prefix, hardware, constants)` to a question [row, point].
        sol: The same arguments to rooflines [row, point].
    """

    records: tuple[type, ...]
    bind: Callable[..., Any]
    ask: Callable[..., Any]
    sol: Callable[..., Any]


def _bind_phase(phase: str) -> Callable[..., Any]:
    def bind(database: Database, records: Sequence[Any], *, rows: int) -> attention.AttentionRows:
        return attention.bind_attention(database, phase, records, backend_lanes(database, phase), rows=rows)

    return bind


def _ask_decode(rows, batch, length, prefix, hardware: Hardware, constants: OpConstants):
    return attention.ask_generation_attention(rows, batch, length, hardware)


def _decode_sol(rows, batch, length, prefix, hardware: Hardware, constants: OpConstants):
    return attention.generation_attention_sol(rows, batch, length, hardware)


TOKEN_KINDS = (
    TokenKind(
        (Gemm,),
        gemm.bind_gemm,
        gemm.gemm_latency,
        lambda rows, reads, counts, hardware, _: gemm.gemm_sol(rows, counts[reads], hardware),
    ),
    TokenKind(
        (AllReduce, Nccl),
        comm.bind_comm,
        lambda rows, reads, counts, *_: comm.comm_latency(rows, counts[reads]),
        lambda rows, reads, counts, *_: comm.comm_sol(rows, counts[reads]),
    ),
    TokenKind(
        (Elementwise, Embedding, P2P),
        lambda _, records, *, rows: traffic.bind_traffic(records, rows=rows),
        lambda rows, reads, counts, hardware, _: traffic.traffic_latency(rows, counts[reads], hardware),
        lambda rows, reads, counts, hardware, _: traffic.traffic_sol(rows, counts[reads], hardware),
    ),
)

SEQUENCE_KINDS = (
    SequenceKind(
        (ContextAttention,), _bind_phase("context"), attention.ask_context_attention, attention.context_attention_sol
    ),
    SequenceKind((GenerationAttention,), _bind_phase("generation"), _ask_decode, _decode_sol),
)

ENCODER = (EncoderAttention,)
SEQUENCE_RECORDS = tuple(record for kind in SEQUENCE_KINDS for record in kind.records)
