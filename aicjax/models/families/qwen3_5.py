# SPDX-License-Identifier: Apache-2.0
"""Gated delta-rule layers between full-attention layers, dense or with experts: Qwen3.5, Qwen3.6."""

from collections.abc import Mapping
from typing import Any

from aicjax._results import InputError
from aicjax.models.families.base import Family, as_stated, kv_heads_per_gpu
from aicjax.models.families.blocks import (
    BYTES_16BIT,
    DENSE_FFN,
    STATE_BYTES,
    Operators,
    Phase,
    kv_layer_bytes,
    phases,
)
from aicjax.models.families.experts import STEEP_LOAD, exchange, experts, router_of_many
from aicjax.models.families.qwen3_5_formats import Formats
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import Gdn, OpLists, Overlap

_REQUIRED = (
    "linear_num_key_heads",
    "linear_key_head_dim",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
_KERNELS = {
    "context": {"conv1d": "causal_conv1d_fn", "scan": "chunk_gated_delta_rule"},
    "generation": {"conv1d": "causal_conv1d_update", "recurrence": "fused_sigmoid_gating_delta_rule_update"},
}


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    state = fields.first("mamba_ssm_dtype", default=fields.root.get("mamba_ssm_dtype"))
    return {key: fields.required(key) for key in _REQUIRED} | {
        "layer_types": fields.pattern("layer_types", ("linear_attention", "full_attention")),
        "shared_expert_size": fields.first("shared_expert_intermediate_size"),
        "state_dtype": state if state in STATE_BYTES else "float32",
    }


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step."""
    for key in ("linear_num_key_heads", "linear_num_value_heads"):
        if model.extra[key] % parallel.tp:
            raise InputError("tp", parallel.tp, f"a divisor of the {model.extra[key]} `{key}` of {model.name}")
    formats = Formats.of(model, quantisation)
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(context=_decoder(context, formats), generation=_decoder(generation, formats))


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values of the full-attention layers, and the recurrent state and last inputs of the others."""
    facts, tp = model.extra, parallel.tp
    keys, values = _widths(model)
    state = facts["linear_num_value_heads"] // tp * facts["linear_key_head_dim"] * facts["linear_value_head_dim"]
    inputs = (2 * keys + values) // tp * (facts["linear_conv_kernel_dim"] - 1)
    layer_state = state * STATE_BYTES[facts["state_dtype"]] + inputs * BYTES_16BIT
    full, linear = (facts["layer_types"].count(kind) for kind in ("full_attention", "linear_attention"))
    return KvCache((KvTerm(kv_layer_bytes(model, parallel, quantisation) * full),), layer_state * linear)


def _widths(model: ModelConfig) -> tuple[int, int]:
    """Values of the keys and of the values of a delta-rule layer, over all heads."""
    facts = model.extra
    keys = facts["linear_num_key_heads"] * facts["linear_key_head_dim"]
    return keys, facts["linear_num_value_heads"] * facts["linear_value_head_dim"]


def _decoder(phase: Phase, formats: Formats) -> Operators:
    kinds = phase.model.extra["layer_types"]
    linear, full = (kinds.count(kind) * phase.once for kind in ("linear_attention", "full_attention"))
    return (
        phase.embedding(phase.parallel.tp),
        phase.all_reduce("embedding_ar", phase.once),
        *((*_linear_attention(phase, linear, formats), *_ffn(phase, linear, formats, "gdn_")) if linear else ()),
        *((*_full_attention(phase, full, formats), *_ffn(phase, full, formats, "full_")) if full else ()),
        phase.logits(),
        phase.hand_over(),
    )


def _attention_sum(phase: Phase, name: str, scale: float) -> Operators:
    """Sum over attention ranks, where the exchange of tokens does not carry it."""
    carried = phase.backend == "sglang" and phase.model.is_moe and phase.parallel.dp > 1
    return () if carried else (phase.all_reduce(name, scale),)


def _linear_attention(phase: Phase, scale: float, formats: Formats) -> Operators:
    model, tp, hidden, facts = phase.model, phase.parallel.tp, phase.model.hidden_size, phase.model.extra
    keys, values = _widths(model)
    value_heads, mode = facts["linear_num_value_heads"], formats.projection
    kernels = (
        Gdn(
            name=f"{phase.name}_gdn_{name}",
            scale=scale,
            kernel=kernel,
            phase=phase.name,
            d_model=hidden,
            d_conv=facts["linear_conv_kernel_dim"],
            num_k_heads=facts["linear_num_key_heads"] // tp,
            head_k_dim=facts["linear_key_head_dim"],
            num_v_heads=value_heads // tp,
            head_v_dim=facts["linear_value_head_dim"],
            state_dtype=facts["state_dtype"],
        )
        for name, kernel in _KERNELS[phase.name].items()
    )
    return (
        phase.elementwise("gdn_norm", scale, 2 * hidden, 2 * hidden),
        phase.gemm("gdn_in_proj_gemm", scale, (2 * keys + 2 * values) // tp, hidden, mode),
        phase.gemm("gdn_in_proj_ba_gemm", scale, 2 * value_heads // tp, hidden, mode, below_grid_sol=True),
        *kernels,
        phase.gemm("gdn_out_proj_gemm", scale, hidden, values // tp, mode, low=True),
        *_attention_sum(phase, "gdn_ar", scale),
    )


def _full_attention(phase: Phase, scale: float, formats: Formats) -> Operators:
    model, hidden, mode = phase.model, phase.model.hidden_size, formats.projection
    heads, kv_heads = model.num_heads // phase.parallel.tp, kv_heads_per_gpu(model, phase.parallel)
    projected = 2 * (heads + kv_heads) * model.head_dim  # queries and their gate, keys and values
    return (
        phase.elementwise("full_attn_norm", scale, 2 * hidden, 2 * hidden),
        phase.gemm("qkv_gemm", scale, projected, hidden, mode),
        phase.attention(scale, heads, kv_heads, model.head_dim, qk_norm=True),
        phase.gemm("proj_gemm", scale, hidden, heads * model.head_dim, mode, low=True),
        *_attention_sum(phase, "full_ar", scale),
    )


def _ffn(phase: Phase, scale: float, formats: Formats, tag: str) -> Operators:
    model, tp, hidden = phase.model, phase.parallel.tp, phase.model.hidden_size
    norm = phase.elementwise(f"{tag}ffn_norm", scale, 2 * hidden, 2 * hidden)
    if model.is_moe:
        return norm, *_experts(phase, scale, formats, tag)
    gate, act, down = (f"{tag}{name}" for name in DENSE_FFN)
    ffn = phase.gated_ffn((gate, act, down), scale, model.intermediate_size, tp, formats.ffn, low=True)
    return norm, *ffn, phase.all_reduce(f"{tag}ffn_ar", scale)


def _experts(phase: Phase, scale: float, formats: Formats, tag: str) -> Operators:
    """Routed experts and the shared one, at the same time in a decode step of vLLM and SGLang."""
    sglang, hidden = phase.backend == "sglang", phase.model.hidden_size
    before, after = (
        exchange(phase, scale, pre=pre, context=phase.prefill, attention_reduced=True, tag=tag) for pre in (True, False)
    )
    sent = () if sglang and phase.parallel.dp == 1 else (before,)
    scores = router_of_many(phase, scale, tag)
    routed = (experts(phase, scale, STEEP_LOAD, context=phase.prefill, tag=tag),)
    shared = _shared_expert(phase, scale, formats, tag)
    merged = (phase.elementwise(f"{tag}shared_merge", scale, (3 if sglang else 2) * hidden, hidden),) if shared else ()
    if phase.prefill:
        return *scores, *sent, *routed, after, *shared, *merged
    first, chain = (sent, (*scores, *routed)) if sglang else ((), (*scores, *sent, *routed))
    if shared and phase.backend != "trtllm":
        return *first, Overlap(f"{phase.name}_{tag}moe_overlap", chain, shared), *merged, after
    return *first, *chain, *shared, *merged, after


def _shared_expert(phase: Phase, scale: float, formats: Formats, tag: str) -> Operators:
    """The shared expert and, where it is not part of the merge, its gate."""
    size, hidden, tp = phase.model.extra["shared_expert_size"], phase.model.hidden_size, phase.parallel.tp
    if not size:
        return ()
    names = (f"{tag}shared_gate_up_gemm", f"{tag}shared_act_gate", f"{tag}shared_down_gemm")
    ffn = phase.gated_ffn(names, scale, size, tp, formats.shared, low=True)
    if phase.backend == "sglang":
        return ffn
    return (
        phase.gemm(f"{tag}shared_expert_gate_gemm", scale, 1, hidden, "bfloat16", below_grid_sol=True),
        *ffn,
        phase.elementwise(f"{tag}shared_expert_gate_mul", scale, hidden, hidden),
    )


QWEN35 = Family("QWEN35", as_stated, _extra, op_lists, kv_cache)
