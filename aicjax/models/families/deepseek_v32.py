# SPDX-License-Identifier: Apache-2.0
"""Sparse attention with an indexer, and experts: DeepSeek-V3.2, GLM-5."""

from collections.abc import Mapping
from typing import Any

from aicjax import quant
from aicjax.models.families.base import Family, mixture
from aicjax.models.families.blocks import BYTES_16BIT, Operators, Phase, phases
from aicjax.models.families.exceptions import PROJECTIONS, keeps_shared_expert, projection_quants
from aicjax.models.families.experts import LOAD, beside_shared, dense_layers, layer_facts, routed_experts, shared_expert
from aicjax.models.families.large_experts import large_experts
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.large_ep import LargeEp, decode_share
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import DsaContext, DsaGeneration, DsaShape, OpLists

_REQUIRED = (
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "index_head_dim",
    "index_n_heads",
    "index_topk",
)

# Widths the attention blocks were measured with, by architecture; the first stands for any other.
SHAPES = {
    "DeepseekV32ForCausalLM": DsaShape(7168, 1536, 512, 128, 64, 128, index_heads=64, index_dim=128, index_topk=2048),
    "GlmMoeDsaForCausalLM": DsaShape(6144, 2048, 512, 192, 64, 256, index_heads=32, index_dim=128, index_topk=2048),
}
_INDEX_BLOCK = 128  # cached indexer values that share one scale
_SCALE_BYTES = 4


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    facts = {key: fields.required(key) for key in _REQUIRED} | {"indexer_fraction": _indexer_fraction(fields)}
    return facts | layer_facts(fields)


def _indexer_fraction(fields: ConfigFields) -> float:
    """Share of the layers that run the indexer; the others reuse the tokens an earlier layer chose."""
    frequency = int(fields.root.get("index_topk_freq") or 1)
    pattern, offset = fields.root.get("index_topk_pattern"), fields.root.get("index_skip_topk_offset")
    if frequency <= 1 and not pattern:
        return 1.0
    if pattern is not None:
        skipped = pattern[: fields.layers].count("S")
    else:
        first = 1 if offset is None else offset - 1
        skipped = sum(max(layer - first, 0) % frequency != 0 for layer in range(fields.layers))
    return (fields.layers - skipped) / fields.layers


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step."""
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(context=_decoder(context, _experts(context)), generation=_decoder(generation, _experts(generation)))


def large_op_lists(
    model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int, plan: LargeEp
) -> OpLists:
    """The same with experts over many GPUs; SGLang then lists no more than attention and experts."""
    shared = "bfloat16" if backend == "trtllm" and keeps_shared_expert(model) else quantisation.gemm
    lists = []
    for phase in phases(model, parallel, quantisation, backend, nextn, decode_share(backend)):
        block = large_experts(phase, LOAD, plan, shared=shared, routed_here=backend != "sglang")
        lists.append(_sglang(phase, block) if backend == "sglang" else _decoder(phase, block))
    return OpLists(*lists)


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """A latent vector, its rotated keys in 16 bits and an 8-bit indexer key with scales, whole on every GPU."""
    facts, element_bytes = model.extra, quant.KVCACHE[quantisation.kvcache].bytes
    latent = facts["kv_lora_rank"] * element_bytes + facts["qk_rope_head_dim"] * BYTES_16BIT
    index = facts["index_head_dim"] + -(-facts["index_head_dim"] // _INDEX_BLOCK) * _SCALE_BYTES
    return KvCache((KvTerm((latent + index) * model.layers),))


def _experts(phase: Phase) -> Operators:
    parallel, phase = phase.parallel, phase.whole
    kept = "bfloat16" if keeps_shared_expert(phase.model) else None
    routed = routed_experts(phase, phase.with_experts, LOAD, cp=parallel.cp, context=phase.prefill)
    return beside_shared(phase, routed, shared_expert(phase, parallel.moe_tp, kept))


def _sglang(phase: Phase, experts: Operators) -> Operators:
    head = () if phase.model.compat.passes_without_head else (phase.whole.logits(),)
    return (
        *phase.tp_exchange("all_gather"),
        _attention(phase),
        *phase.tp_exchange("reduce_scatter"),
        *dense_layers(phase.whole),
        *experts,
        *head,
    )


def _decoder(phase: Phase, experts: Operators) -> Operators:
    every, hidden, cp, phase = phase.every, phase.model.hidden_size, phase.split, phase.whole
    return (
        phase.embedding(),
        phase.elementwise("add_norm_1", every, 2 * hidden, 2 * hidden, token_divisor=cp),
        _attention(phase),
        phase.elementwise("add_norm_2", every, 2 * hidden, 2 * hidden, token_divisor=cp),
        *dense_layers(phase),
        *experts,
        phase.logits(),
        phase.hand_over(),
    )


def _attention(phase: Phase) -> DsaContext | DsaGeneration:
    """The measured block, projections included; it stands for the one format of all, or else for the output's."""
    model, modes = phase.model, phase.quantisation
    quants = tuple(projection_quants(model, modes.gemm)[part] for part in PROJECTIONS)
    facts = {
        "name": f"{phase.name}_attention",
        "scale": phase.every,
        "num_heads": model.num_heads // phase.parallel.tp,
        "kv_quant": modes.kvcache,
        "fmha_quant": modes.fmha,
        "gemm_quant": quants[PROJECTIONS.index("o")],
        "architecture": model.architecture,
        "shape": SHAPES.get(model.architecture, SHAPES["DeepseekV32ForCausalLM"]),
        "projection_quants": quants,
        "full_fraction": model.extra["indexer_fraction"] if phase.backend == "sglang" else 1.0,
    }
    return DsaContext(**facts, cp=phase.parallel.cp) if phase.prefill else DsaGeneration(**facts)


_MODULE = (("dsa_context_module_perf", "mla_dtype"),)
DEEPSEEKV32 = Family(
    "DEEPSEEKV32",
    mixture,
    _extra,
    op_lists,
    kv_cache,
    large_op_lists,
    context_parallel_backends=("sglang",),
    prefill_tables=dict.fromkeys(("trtllm", "vllm", "sglang"), _MODULE),
)
