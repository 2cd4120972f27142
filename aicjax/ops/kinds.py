# SPDX-License-Identifier: Apache-2.0
"""Every kind of operator that a forward pass can hold, and how each binds and answers.

A kind is driven either by a token count alone or by a batch of sequences. Kernels loop over the kinds that a model
has and name none. The module of a kind is imported when a model first has one.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aicjax.ops import records as r


@dataclass(frozen=True)
class Kind:
    """Operators of one module, `aicjax.ops.<module>`, whose functions are named after `stem`.

    Attributes:
        records: Their records.
        module: Where the functions are.
        stem: `bind_<stem>`, `<stem>_sol`, and `<stem>_latency` (token-driven) or `ask_<stem>`
            (sequence-driven).
        shares_counts: Whether the latency takes distinct token counts and which of them each row reads, not counts of
            its own.
        modeless: Whether measurements answer in every mode, in place of rooflines too.
        paced: Whether `<stem>_pace` tells how the latency moves with the hardware, rather than the roofline.
    """

    records: tuple[type, ...]
    module: str
    stem: str
    shares_counts: bool = False
    modeless: bool = False
    paced: bool = False

    @property
    def bind(self) -> Callable[..., Any]:
        """`(database, records, rows=)` to bound rows."""
        return self._function("bind_{}")

    def latency(self, rows: Any, reads: Any, counts: Any, hardware: Any, constants: Any) -> tuple[Any, Any]:
        """`(latency_ms, provenance)` [row, point] of token-driven rows; `reads` names each one's row of `counts`."""
        tokens = (reads, counts) if self.shares_counts else (counts[reads],)
        return self._function("{}_latency")(rows, *tokens, hardware, constants)

    def token_sol(self, rows: Any, reads: Any, counts: Any, hardware: Any, constants: Any) -> Any:
        """Rooflines [row, point] of token-driven rows."""
        return self.sol(rows, counts[reads], hardware, constants)

    def token_pace(self, rows: Any, reads: Any, counts: Any, hardware: Any, constants: Any) -> Any:
        """Times [row, point] that move with the hardware as the latencies of token-driven rows do."""
        if not self.paced:
            return self.token_sol(rows, reads, counts, hardware, constants)
        return self._function("{}_pace")(rows, counts[reads], hardware, constants)

    @property
    def ask(self) -> Callable[..., Any]:
        """`(rows, batch, length, prefix, hardware, constants)` to a question [row, point]."""
        return self._function("ask_{}")

    @property
    def sol(self) -> Callable[..., Any]:
        """`(rows, tokens, hardware, constants)`, or the arguments of `ask`, to rooflines [row, point]."""
        return self._function("{}_sol")

    @property
    def available(self) -> Callable[..., bool]:
        """`(database, record)` to whether the record's shape was measured."""
        return getattr(importlib.import_module(f"aicjax.ops.{self.module}"), f"{self.module}_available")

    def _function(self, name: str) -> Callable[..., Any]:
        return getattr(importlib.import_module(f"aicjax.ops.{self.module}"), name.format(self.stem))


TOKEN_KINDS = (
    Kind((r.Gemm,), "gemm", "gemm", shares_counts=True),
    Kind((r.AllReduce, r.Nccl), "comm", "comm"),
    Kind((r.Elementwise, r.Embedding, r.P2P), "traffic", "traffic", paced=True),
    Kind((r.Moe,), "moe", "moe"),
    Kind((r.MoeAllToAll,), "all_to_all", "all_to_all"),
    Kind((r.MoeExpertCompute,), "expert_compute", "expert_compute", paced=True),
    Kind((r.MegaMoe,), "megamoe", "megamoe"),
    Kind((r.MlaBmm,), "mla_bmm", "mla_bmm"),
    Kind((r.Mhc,), "mhc", "mhc"),
)

SEQUENCE_KINDS = (
    Kind((r.ContextAttention,), "causal", "context_attention"),
    Kind((r.GenerationAttention,), "causal", "generation_attention"),
    Kind((r.EncoderAttention,), "encoder", "encoder_attention"),
    Kind((r.ContextMla, r.MlaModuleContext), "mla", "context_mla"),
    Kind((r.GenerationMla, r.MlaModuleGeneration), "mla", "generation_mla"),
    Kind((r.WideEpContextMla,), "wideep_mla", "wideep_context_mla"),
    Kind((r.WideEpGenerationMla,), "wideep_mla", "wideep_generation_mla"),
    Kind((r.DsaContext,), "dsa", "dsa_context"),
    Kind((r.DsaGeneration,), "dsa", "dsa_generation"),
    Kind((r.MsaContext,), "msa", "msa_context"),
    Kind((r.MsaGeneration,), "msa", "msa_generation"),
    Kind((r.Dsv4Context,), "dsv4", "dsv4_context"),
    Kind((r.Dsv4Generation,), "dsv4", "dsv4_generation"),
    Kind((r.Mamba2, r.Gdn, r.Kda), "recurrent", "recurrent", modeless=True),
)
SEQUENCE_RECORDS = tuple(record for kind in SEQUENCE_KINDS for record in kind.records)


def kind_of(op: Any) -> Kind:
    """The kind that an operator is of."""
    return next(kind for kind in (*TOKEN_KINDS, *SEQUENCE_KINDS) if isinstance(op, kind.records))
