# SPDX-License-Identifier: Apache-2.0
"""Dense operators: products, attention, collectives and memory traffic."""

from collections.abc import Sequence
from typing import Any

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
    Op,
)
from benchmarks.parity_cases.operator_file import TOKENS, OperatorFile

_SEQUENCES = {"batch": "batch", "length": "s"}
_PROMPTS = {**_SEQUENCES, "prefix": "prefix"}


def _gemm(row: dict[str, Any]) -> Op:
    return Gemm("gemm", 1.0, row["n"], row["k"], row["quant_mode"], row["low_precision_input"])


def _all_reduce(row: dict[str, Any]) -> Op:
    return AllReduce("all_reduce", 1.0, row["hidden_size"], row["tp_size"], seq_split=row["seq_split"])


def _nccl(row: dict[str, Any]) -> Op:
    return Nccl("nccl", 1.0, row["operation"], row["elements_per_token"], row["num_gpus"], row["dtype"])


def _traffic(row: dict[str, Any]) -> Op:
    kind, scale, split = row["op"], row["scale_factor"], row["seq_split"]
    if kind == "elementwise":
        return Elementwise(kind, scale, row["bytes_per_token"], int(row["scale_num_tokens"]), split)
    hidden = int(row["hidden_size"])
    if kind == "embedding":
        return Embedding(kind, scale, 1, hidden, row["quant_mode"], split)  # latency does not read the vocabulary
    return P2P(kind, scale, hidden, int(row["pp_size"]), split)


def _attention(row: dict[str, Any]) -> Op:
    return {"context": _context_attention, "generation": _generation_attention}[row["phase"]](row)


def _context_attention(row: dict[str, Any]) -> Op:
    return ContextAttention(
        "context_attention",
        1.0,
        *_attention_shape(row),
        fmha_quant=row["fmha_quant_mode"],
        window=row["window_size"],
        qk_norm=row.get("use_qk_norm", False),
        cp=row.get("cp_size", 1),
        seq_imbalance=row.get("seq_imbalance_scale", 1.0),
    )


def _generation_attention(row: dict[str, Any]) -> Op:
    return GenerationAttention(
        "generation_attention",
        1.0,
        *_attention_shape(row),
        window=row["window_size"],
        seq_imbalance=row.get("gen_seq_imbalance_scale", 1.0),
    )


def _encoder_attention(row: dict[str, Any]) -> Op:
    return EncoderAttention(
        "encoder_attention",
        1.0,
        row["num_heads"],
        row["head_size"],
        row["fmha_quant_mode"],
        row["partial_rotary_factor"],
    )


def _attention_shape(row: dict[str, Any]) -> Sequence[Any]:
    return row["num_heads"], row["num_kv_heads"], row["head_size"], row["kv_cache_dtype"]


DENSE = {
    "ops_gemm": OperatorFile(_gemm, {"tokens": "m"}, ("quant_mode",)),
    "ops_context_attention": OperatorFile(_context_attention, _PROMPTS, ("fmha_quant_mode",)),
    "ops_generation_attention": OperatorFile(_generation_attention, _SEQUENCES, ("kv_cache_dtype",)),
    "ops_encoder_attention": OperatorFile(_encoder_attention, _SEQUENCES, ("fmha_quant_mode",)),
    "ops_attention_lanes": OperatorFile(
        _attention, _PROMPTS, ("fmha_quant_mode", "kv_cache_dtype"), group=("phase", "lane_order")
    ),
    "ops_custom_allreduce": OperatorFile(_all_reduce, TOKENS),
    "ops_nccl": OperatorFile(_nccl, TOKENS),
    "ops_mem": OperatorFile(_traffic, TOKENS, ("quant_mode",)),
}
