# SPDX-License-Identifier: Apache-2.0
"""Both kinds of attention layers of Kimi K3: delta-rule linear attention, and latent attention with a gate."""

from aicjax.models.families.blocks import Operators, Phase
from aicjax.ops.records import (
    ContextMla,
    Fallback,
    GenerationMla,
    Kda,
    MlaBmm,
    MlaModuleContext,
    MlaModuleGeneration,
)

# Kernels of a delta-rule layer by phase: name of the operator and implementation, vLLM's own where it has one.
_KERNELS = {
    "context": {"conv1d": "causal_conv1d_fn_qkv3", "scan": "chunk_kda"},
    "generation": {"conv1d": "causal_conv1d_update", "recurrent": "fused_recurrent_kda_packed_decode"},
    "verify": {"conv1d": "causal_conv1d_update", "verify": "fused_sigmoid_gating_delta_rule_update"},
}
_VLLM_KERNELS = {
    "context": {"conv1d": "causal_conv1d_fn_qkv3", "scan": "flashkda_fwd"},
    "generation": {"fused_decode": "fused_kda_decode"},
    "verify": {"conv1d": "causal_conv1d_update", "verify": "fused_recurrent_kda"},
}


def linear_layers(phase: Phase, scale: float, nextn: int) -> Operators:
    """Layers of linear attention; a decode step with drafts verifies them all at once."""
    facts, tp, hidden = phase.model.extra, phase.parallel.tp, phase.model.hidden_size
    head_dim, heads = facts["linear_head_dim"], facts["linear_heads"] // tp
    width = heads * head_dim
    step = "verify" if nextn and not phase.prefill else phase.name
    vllm = phase.backend == "vllm"
    kernels = (
        Kda(
            name=f"{phase.name}_kda_{name}",
            scale=scale,
            kernel=kernel,
            phase=step,
            d_model=hidden,
            d_conv=facts["linear_conv_kernel"],
            num_k_heads=heads,
            head_k_dim=head_dim,
            num_v_heads=heads,
            head_v_dim=head_dim,
            draft_tokens=nextn + 1 if step == "verify" else 0,
        )
        for name, kernel in (_VLLM_KERNELS if vllm else _KERNELS)[step].items()
    )
    norm_in_kernel = vllm and step == "generation"
    return (
        phase.elementwise("kda_norm", scale, 2 * hidden, 2 * hidden),
        phase.gemm("kda_qkvg_gemm", scale, 4 * width, hidden),
        phase.gemm("kda_bfa_gemm", scale, facts["linear_heads"] + head_dim, hidden),
        phase.gemm("kda_fb_gemm", scale, width, head_dim),
        *kernels,
        *(() if norm_in_kernel else (phase.elementwise("kda_onorm", scale, 2 * width, width),)),
        phase.gemm("kda_o_gemm", scale, hidden, width, low=True),
        phase.all_reduce("kda_ar", scale),
    )


def latent_layers(phase: Phase, scale: float) -> Operators:
    """Layers of latent attention, their results gated."""
    facts, tp, hidden = phase.model.extra, phase.parallel.tp, phase.model.hidden_size
    width = phase.model.num_heads * facts["v_head_dim"] // tp
    latent = facts["q_lora_rank"] + facts["kv_lora_rank"] + facts["qk_rope_head_dim"]
    return (
        phase.elementwise("mla_norm", scale, 2 * hidden, 2 * hidden),
        phase.gemm("mla_downscale_gemm", scale, latent, hidden),
        *(_measured_block if phase.backend == "vllm" else _parts)(phase, scale),
        phase.gemm("mla_gate_gemm", scale, width, hidden),
        phase.elementwise("mla_gate_mul", scale, 2 * width, width),
        phase.all_reduce("mla_ar", scale),
    )


def _measured_block(phase: Phase, scale: float) -> Operators:
    """The block as it was measured, or its parts where that shape was not."""
    model, modes = phase.model, phase.quantisation
    kind = MlaModuleContext if phase.prefill else MlaModuleGeneration
    block = kind(
        name=f"{phase.name}_mla_module",
        scale=scale,
        num_heads=model.num_heads // phase.parallel.tp,
        native_heads=model.num_heads,
        kv_quant=modes.kvcache,
        fmha_quant=modes.fmha,
        gemm_quant=modes.gemm,
    )
    return (Fallback(f"{phase.name}_mla_block", block, _parts(phase, scale)),)


def _parts(phase: Phase, scale: float) -> Operators:
    model, facts, tp = phase.model, phase.model.extra, phase.parallel.tp
    query = facts["qk_nope_head_dim"] + facts["qk_rope_head_dim"]
    expanded = facts["qk_nope_head_dim"] + facts["v_head_dim"]
    expand = phase.gemm("mla_kv_b_gemm", scale, model.num_heads * expanded // tp, facts["kv_lora_rank"])
    return (
        phase.gemm("mla_q_b_gemm", scale, model.num_heads * query // tp, facts["q_lora_rank"]),
        *((expand,) if phase.prefill else ()),
        *_kernels(phase, scale),
        phase.gemm("mla_o_gemm", scale, model.hidden_size, model.num_heads * facts["v_head_dim"] // tp, low=True),
    )


def _kernels(phase: Phase, scale: float) -> Operators:
    """Attention between its projections, with the absorbed products of a decode step; vLLM runs ordinary attention."""
    model, modes, tp = phase.model, phase.quantisation, phase.parallel.tp
    name, heads = f"{phase.name}_attention", model.num_heads // tp
    if phase.backend == "vllm":
        return (phase.attention(scale, heads, model.num_kv_heads // tp, model.extra["v_head_dim"]),)
    if phase.prefill:
        return (ContextMla(name, scale, heads, modes.kvcache, modes.fmha),)
    absorbed = "bfloat16" if modes.gemm == "bfloat16" else "fp8"
    before, after = (
        MlaBmm(f"{phase.name}_bmm_{place}", scale, heads, absorbed, pre=place == "pre") for place in ("pre", "post")
    )
    return before, GenerationMla(name, scale, heads, modes.kvcache), after
