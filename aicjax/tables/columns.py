# SPDX-License-Identifier: Apache-2.0
"""The columns that identify a measurement: a name means the same in every table."""

import enum
from dataclasses import dataclass

from aicjax.quant import COMM, FMHA, GEMM, KVCACHE, MOE


class Kind(enum.Enum):
    """What the cells of a key column are."""

    TEXT = "text"
    COUNT = "count"
    FLAG = "flag"  # true or false, stored as 1 or 0
    RATIO = "ratio"


@dataclass(frozen=True)
class Column:
    """What a column may hold.

    Attributes:
        kind: What its cells are.
        minimum: Smallest count allowed.
        words: Texts allowed; any when None.
        absent: Value of an empty cell, and of every cell when a source lacks the column; None refuses both.
    """

    kind: Kind
    minimum: int = 1
    words: frozenset[str] | None = None
    absent: str | int | None = None


def _text(*words: str, absent: str | None = None) -> Column:
    return Column(Kind.TEXT, words=frozenset(words) or None, absent=absent)


_COUNT = Column(Kind.COUNT)
_COUNT_OR_0 = Column(Kind.COUNT, minimum=0)
_OPTIONAL_COUNT = Column(Kind.COUNT, minimum=0, absent=0)
_FLAG = Column(Kind.FLAG, minimum=0)

_FP8_NAMES = ("fp8_e4m3",)  # how some tables spell fp8

COLUMNS: dict[str, Column] = {
    "kernel_source": _text(absent=""),
    "backend": _text(absent=""),
    "op_name": _text(),
    "model": _text(),
    "model_name": _text(),
    "architecture": _text(),
    "distribution": _text(),
    "phase": _text("context", "generation", "verify", "prepare", "dispatch", "combine"),
    "score_mode": _text(),
    "comm_backend": _text(),
    "kernel_dtype": _text(),
    "source_policy": _text(),
    "pre_dispatch": _text(),
    "buffer_policy": _text(),
    "gemm_dtype": _text(*GEMM, "awq", "gptq"),
    "gemm_type": _text(*GEMM),
    "bmm_dtype": _text(*GEMM),
    "quant_dtype": _text(*GEMM),
    "quant_type": _text(*GEMM),
    "moe_dtype": _text(*MOE),
    "attn_dtype": _text(*FMHA, *_FP8_NAMES),
    "mla_dtype": _text(*FMHA, *_FP8_NAMES),
    "kv_cache_dtype": _text(*KVCACHE, *_FP8_NAMES),
    "nccl_dtype": _text(*COMM),
    "comm_dtype": _text(*MOE, "default", "fp4"),
    **dict.fromkeys(
        (
            *("m", "n", "k", "batch_size", "isl", "seq_len", "num_tokens", "num_token", "message_size"),
            *("num_heads", "num_key_value_heads", "head_dim", "tp_size", "num_gpus"),
            *("hidden_size", "inter_size", "intermediate_size", "topk", "num_topk", "num_experts", "num_slots"),
            *("moe_tp_size", "moe_ep_size", "ep_size", "node_num"),
            *("d_model", "d_state", "d_conv", "nheads", "n_groups", "chunk_size"),
            *("num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim"),
            *("hc_mult", "num_sites", "sinkhorn_iters"),
        ),
        _COUNT,
    ),
    **dict.fromkeys(("step", "num_fused_shared_experts", "dispatch_sms", "combine_sms"), _COUNT_OR_0),
    **dict.fromkeys(("window_size", "sms", "num_nodes"), _OPTIONAL_COUNT),
    **dict.fromkeys(("includes_routed_scale", "includes_gate_topk", "includes_buffer_init", "used_cuda_graph"), _FLAG),
    "routed_scaling_factor": Column(Kind.RATIO),
}
