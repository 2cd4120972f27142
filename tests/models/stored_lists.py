# SPDX-License-Identifier: Apache-2.0
"""Operators in the form in which operator lists of AIConfigurator 0.12.0 are stored."""

from collections.abc import Callable, Mapping
from typing import Any

from aicjax.ops import records

STORED_DECIMALS = 12  # of the stored scale factors and shares

_ATTENTION = {
    "n": "num_heads",
    "n_kv": "num_kv_heads",
    "head_size": "head_size",
    "window_size": "window",
    "kv_cache_dtype": "kv_quant",
}
_EXPERTS = {"hidden_size": "hidden_size", "topk": "topk", "num_experts": "num_experts", "moe_ep_size": "moe_ep"}
_FUSED = _EXPERTS | {"moe_tp_size": "moe_tp", "attention_dp_size": "attention_dp"}
_MLA = {"num_heads": "num_heads", "kv_cache_dtype": "kv_quant"}
_MODULE = _MLA | {"fmha_quant_mode": "fmha_quant", "gemm_quant_mode": "gemm_quant"}
_DSA = _MODULE | {
    "architecture": "architecture",
    "index_topk": lambda op: op.shape.index_topk,
    "full_frac": lambda op: round(op.full_fraction, STORED_DECIMALS),
    "attn_projection_quant_modes": lambda op: dict(zip(("q", "kv", "o", "indexer"), op.projection_quants, strict=True)),
}
_DSV4 = _MODULE | {
    "attn_kind": lambda op: {4: "Csa", 128: "Hca"}[op.ratio],
    "native_heads": "native_heads",
    "tp_size": "tp",
    "architecture": "architecture",
    "o_groups": "o_groups",
    "window_size": lambda op: op.shape.window,
    "hidden_size": lambda op: op.shape.hidden_size,
    "q_lora_rank": lambda op: op.shape.q_rank,
    "o_lora_rank": lambda op: op.shape.o_rank,
    "head_dim": lambda op: op.shape.head_dim,
    "rope_head_dim": lambda op: op.shape.rope_dim,
    "index_n_heads": lambda op: op.shape.index_heads,
    "index_head_dim": lambda op: op.shape.index_dim,
    "index_topk": lambda op: op.shape.index_topk,
}
_KERNEL = {"kernel_source": "kernel", "phase": "phase", "d_model": "d_model", "d_conv": "d_conv"}
_DELTA = _KERNEL | {name: name for name in ("num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim")}
_MSA = _MODULE | {
    "num_kv_heads": lambda op: op.shape.num_kv_heads,
    "hidden_size": lambda op: op.shape.hidden_size,
    "head_dim": lambda op: op.shape.head_dim,
    "v_head_dim": lambda op: op.shape.v_dim,
    "index_n_heads": lambda op: op.shape.index_heads,
    "index_head_dim": lambda op: op.shape.index_dim,
    "index_topk": lambda op: op.shape.index_topk,
    "block_size": lambda op: op.shape.block_size,
    "dsa_architecture": lambda op: op.stand_in.architecture,
    "dsa_scale_k": lambda op: op.stand_in.scale,
}
_CP = {"cp_size": lambda op: getattr(op, "cp", 1)}

Reader = str | Callable[[Any], Any]
# type under which a record is stored, and how each stored field is read from it
FIELDS: dict[type, tuple[str, Mapping[str, Reader]]] = {
    records.Embedding: (
        "Embedding",
        {"vocab_size": "vocab_size", "hidden_size": "hidden_size", "quant_mode": "quant", "seq_split": "seq_split"},
    ),
    records.Elementwise: (
        "Elementwise",
        {"bytes_per_token": "bytes_per_token", "scale_num_tokens": "token_divisor", "seq_split": "seq_split"},
    ),
    records.Gemm: (
        "Gemm",
        {
            "n": "n",
            "k": "k",
            "quant_mode": "quant",
            "scale_num_tokens": "token_divisor",
            "low_precision_input": "low_precision_input",
            "below_grid_sol": "below_grid_sol",
            "seq_split": "seq_split",
        },
    ),
    records.ContextAttention: (
        "ContextAttention",
        _ATTENTION | _CP | {"fmha_quant_mode": "fmha_quant", "use_qk_norm": "qk_norm"},
    ),
    records.GenerationAttention: ("GenerationAttention", _ATTENTION),
    records.EncoderAttention: (
        "EncoderAttention",
        {
            "n": "num_heads",
            "head_size": "head_size",
            "fmha_quant_mode": "fmha_quant",
            "partial_rotary_factor": "partial_rotary_factor",
        },
    ),
    records.AllReduce: (
        "CustomAllReduce",
        {"hidden_size": "hidden_size", "tp_size": "tp", "quant": "quant", "seq_split": "seq_split"},
    ),
    records.Nccl: (
        "Nccl",
        {
            "hidden_size": "elements_per_token",
            "num_gpus": "num_gpus",
            "dtype": "quant",
            "operation": "operation",
            "seq_split": "seq_split",
        },
    ),
    records.P2P: ("P2P", {"pp_size": "pp", "hidden_size": "hidden_size", "seq_split": "seq_split"}),
    records.Moe: (
        "Moe",
        _FUSED
        | {
            "inter_size": "inter_size",
            "quant_mode": "quant",
            "workload_distribution": "distribution",
            "is_gated": "gated",
            "enable_eplb": "eplb",
            "is_context": "context",
        },
    ),
    records.MoeDispatch: (
        "MoeDispatch",
        _FUSED
        | {
            "pre_dispatch": "pre",
            "attn_ar_modeled": "attention_reduced",
            "comm_quant": "comm_quant",
            "moe_quant": "quant",
            "attn_cp_size": "attention_cp",
            "is_context": "context",
        },
    ),
    records.MoeAllToAll: (
        "MoeAllToAll",
        _EXPERTS
        | {
            "phase": "phase",
            "comm_backend": "comm_backend",
            "comm_dtype": "comm_dtype",
            "node_num": "nodes",
            "sms": "sms",
            "attention_tp_size": "attention_tp",
        },
    ),
    records.MoeExpertCompute: (
        "MoeExpertCompute",
        _EXPERTS
        | {
            "inter_size": "inter_size",
            "quant_mode": "quant",
            "workload_distribution": "distribution",
            "attention_dp_size": "attention_dp",
            "inference_phase": "phase",
            "num_slots": "num_slots",
            "is_gated": "gated",
            "enable_eplb": "eplb",
        },
    ),
    records.ContextMla: ("ContextMla", _MLA | _CP | {"fmha_quant_mode": "fmha_quant"}),
    records.GenerationMla: ("GenerationMla", _MLA),
    records.MlaBmm: ("MlaBmm", {"num_heads": "num_heads", "quant_mode": "quant", "is_pre": "pre"}),
    records.MlaModuleContext: ("MlaModuleContext", _MODULE | {"native_num_heads": "native_heads"}),
    records.MlaModuleGeneration: ("MlaModuleGeneration", _MODULE | {"native_num_heads": "native_heads"}),
    records.WideEpContextMla: (
        "WideEpContextMla",
        _MLA | _CP | {"fmha_quant_mode": "fmha_quant", "attn_backend": "kernel"},
    ),
    records.WideEpGenerationMla: (
        "WideEpGenerationMla",
        _MLA | {"fmha_quant_mode": "fmha_quant", "attn_backend": "kernel"},
    ),
    records.DsaContext: ("DsaContext", _DSA | _CP),
    records.DsaGeneration: ("DsaGeneration", _DSA | _CP),
    records.Dsv4Context: ("Dsv4Context", _DSV4 | _CP),
    records.Dsv4Generation: ("Dsv4Generation", _DSV4 | _CP),
    records.MsaContext: ("MsaContext", _MSA),
    records.MsaGeneration: ("MsaGeneration", _MSA),
    records.Mamba2: (
        "Mamba2",
        _KERNEL
        | {
            "d_state": "d_state",
            "nheads": "num_heads",
            "head_dim": "head_dim",
            "n_groups": "n_groups",
            "chunk_size": "chunk_size",
        },
    ),
    records.Gdn: ("Gdn", _DELTA | {"mamba_ssm_dtype": "state_dtype"}),
    records.Kda: ("Kda", _DELTA | {"draft_tokens": "draft_tokens"}),
    records.Mhc: (
        "Mhc",
        {
            "op": "part",
            "hc_mult": "hc_mult",
            "hidden_size": "hidden_size",
            "sinkhorn_iters": "sinkhorn_iters",
            "quant_mode": "quant",
            "seq_split": "seq_split",
        },
    ),
}


def stored_form(op: Any) -> dict[str, Any]:
    """An operator as it is stored, composites with their parts."""
    if isinstance(op, records.Overlap):
        parts = {"group_a": op.first, "group_b": op.second}
        return {"type": "Overlap", "name": op.name} | {key: stored_forms(part) for key, part in parts.items()}
    if isinstance(op, records.Fallback):
        form = {"type": "Fallback", "name": op.name, "primary": stored_form(op.primary)}
        return form | {"fallback": stored_forms(op.fallback)}
    kind, fields = FIELDS[type(op)]
    form = {"type": kind, "name": op.name, "scale_factor": round(op.scale, STORED_DECIMALS)}
    return form | {key: read(op) if callable(read) else getattr(op, read) for key, read in fields.items()}


def stored_forms(ops: Any) -> list[dict[str, Any]]:
    """A list as it is stored."""
    return [stored_form(op) for op in ops]
