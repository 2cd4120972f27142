# SPDX-License-Identifier: Apache-2.0
"""Latent, sparse and compressed attention: kernels, products and whole blocks."""

from typing import Any

import numpy as np

from aicjax.ops.records import (
    ContextMla,
    DsaContext,
    DsaGeneration,
    DsaShape,
    DsaStandIn,
    Dsv4Context,
    Dsv4Generation,
    Dsv4Shape,
    GenerationMla,
    MlaBmm,
    MlaModuleContext,
    MlaModuleGeneration,
    MsaContext,
    MsaGeneration,
    MsaShape,
    Op,
    WideEpContextMla,
    WideEpGenerationMla,
)
from benchmarks.parity_cases.operator_file import TOKENS, OperatorFile

DSA_SHAPES = {
    "DeepseekV32ForCausalLM": DsaShape(7168, 1536, 512, 128, 64, 128, 64, 128, 2048),
    "GlmMoeDsaForCausalLM": DsaShape(6144, 2048, 512, 192, 64, 256, 32, 128, 2048),
}
_STAND_IN = "GlmMoeDsaForCausalLM"
_DSV4_SHAPE = Dsv4Shape(7168, 1536, 1024, 512, 64, 64, 128, 1024, 128)
_DSV4_RATIOS = {"csa": 4, "hca": 128}
_NATIVE_HEADS = 128  # of the models whose blocks were asked for
_FMHA = "bfloat16"  # of decode steps: their records state a format that no table reads


def _context_mla(row: dict[str, Any]) -> Op:
    return ContextMla("mla", 1.0, row["num_heads"], row["kv_cache_dtype"], row["fmha_quant_mode"], row["cp_size"])


def _generation_mla(row: dict[str, Any]) -> Op:
    return GenerationMla("mla", 1.0, row["num_heads"], row["kv_cache_dtype"])


def _bmm(row: dict[str, Any]) -> Op:
    return MlaBmm("bmm", 1.0, row["num_heads"], row["quant_mode"], row["if_pre"])


def _context_block(row: dict[str, Any]) -> Op:
    formats = row["kv_cache_dtype"], row["fmha_quant_mode"], row["gemm_quant_mode"]
    return MlaModuleContext("mla", 1.0, row["num_heads"], _NATIVE_HEADS, *formats)


def _generation_block(row: dict[str, Any]) -> Op:
    formats = row["kv_cache_dtype"], _FMHA, row["gemm_quant_mode"]
    return MlaModuleGeneration("mla", 1.0, row["num_heads"], _NATIVE_HEADS, *formats)


def _large_ep_context(row: dict[str, Any]) -> Op:
    formats, heads = (row["kv_cache_dtype"], row["fmha_quant_mode"]), _NATIVE_HEADS // row["tp_size"]
    return WideEpContextMla("mla", 1.0, heads, *formats, row["attn_backend"], row["cp_size"])


def _large_ep_generation(row: dict[str, Any]) -> Op:
    heads = _NATIVE_HEADS // row["tp_size"]
    return WideEpGenerationMla("mla", 1.0, heads, row["kv_cache_dtype"], _FMHA, row["attn_backend"])


def _dsa(row: dict[str, Any]) -> Op:
    kind = DsaContext if row["op"] == "dsa_context" else DsaGeneration
    gemm, share = row["gemm_quant_mode"], row["dsa_full_layer_fraction"]
    formats, shape = (row["kv_cache_dtype"], _FMHA, gemm), DSA_SHAPES[row["architecture"]]
    rest = (row["architecture"], shape, (gemm, gemm, gemm, gemm), 1.0 if np.isnan(share) else share)
    return kind("dsa", 1.0, row["num_heads"], *formats, *rest)


def _dsv4(row: dict[str, Any]) -> Op:
    kind = Dsv4Context if row["inference_phase"] == "context" else Dsv4Generation
    heads = _DSV4_RATIOS[row["attn_kind"]], row["num_heads"], row["native_heads"], row["tp_size"], row["o_groups"]
    formats = row["kv_cache_dtype"], row["fmha_quant_mode"], row["gemm_quant_mode"]
    return kind("dsv4", 1.0, *heads, *formats, "DeepseekV4ForCausalLM", _DSV4_SHAPE)


def _msa(row: dict[str, Any]) -> Op:
    kind = MsaContext if row["inference_phase"] == "context" else MsaGeneration
    shape = MsaShape(
        row["num_kv_heads"],
        row["hidden_size"],
        row["head_dim"],
        row["v_head_dim"],
        row["index_n_heads"],
        row["index_head_dim"],
        row["index_topk"],
        row["block_size"],
    )
    formats = row["kv_cache_dtype"], row["fmha_quant_mode"], row["gemm_quant_mode"]
    other = DsaStandIn(_STAND_IN, DSA_SHAPES[_STAND_IN], row["dsa_scale_k"])
    return kind("msa", 1.0, row["num_heads"], *formats, "MiniMaxM3ForCausalLM", shape, other)


_SEQUENCES = {"batch": "batch_size", "length": "s"}
_PROMPTS = {**_SEQUENCES, "prefix": "prefix"}

LATENT = {
    "ops_mla_context": OperatorFile(_context_mla, _PROMPTS, share=True),
    "ops_mla_generation": OperatorFile(_generation_mla, _SEQUENCES, share=True),
    "ops_mla_bmm": OperatorFile(_bmm, TOKENS, ("quant_mode",), share=True),
    "ops_mla_module_context": OperatorFile(_context_block, _PROMPTS, ("gemm_quant_mode",), share=True),
    "ops_mla_module_generation": OperatorFile(_generation_block, _SEQUENCES, ("gemm_quant_mode",), share=True),
    "ops_wideep_mla_context": OperatorFile(_large_ep_context, _PROMPTS, ("attn_backend",), share=True),
    "ops_wideep_mla_generation": OperatorFile(_large_ep_generation, _SEQUENCES, ("attn_backend",), share=True),
    "ops_dsa_context": OperatorFile(_dsa, _PROMPTS, ("gemm_quant_mode",), share=True),
    "ops_dsa_generation": OperatorFile(_dsa, _SEQUENCES, ("gemm_quant_mode",), share=True),
    "ops_dsv4_attention": OperatorFile(_dsv4, _PROMPTS, group=("inference_phase",), share=True),
    "ops_msa": OperatorFile(_msa, _PROMPTS, group=("inference_phase",), share=True),
}
