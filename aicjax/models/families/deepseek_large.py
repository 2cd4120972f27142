# SPDX-License-Identifier: Apache-2.0
"""DeepSeek V3 and its kin with experts over many GPUs: every engine has a list of its own."""

from aicjax.models.families.blocks import Operators, Phase, phases
from aicjax.models.families.experts import LOAD, dense_layers
from aicjax.models.families.large_experts import large_experts
from aicjax.models.families.latent import (
    KV_RANK,
    MEASURED_HEADS,
    Q_RANK,
    ROPE_DIM,
    Formats,
    attention_kernels,
    attention_parts,
    decoder,
    latent_bytes,
)
from aicjax.models.large_ep import LargeEp, decode_share
from aicjax.models.model import ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists, Overlap, WideEpContextMla, WideEpGenerationMla


def op_lists(
    model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int, plan: LargeEp
) -> OpLists:
    """Operators of a prefill and of a decode step."""
    formats = Formats.of(model, quantisation)
    write = {"trtllm": _trtllm, "sglang": _sglang}.get(backend, _vllm)
    context, generation = phases(model, parallel, quantisation, backend, nextn, decode_share(backend))
    return OpLists(context=write(context, formats, plan), generation=write(generation, formats, plan))


def _vllm(phase: Phase, formats: Formats, plan: LargeEp) -> Operators:
    return decoder(phase, formats, large_experts(phase, LOAD, plan, shared=formats.shared))


def _trtllm(phase: Phase, formats: Formats, plan: LargeEp) -> Operators:
    """Kernel by kernel; the rotation of a decode step runs beside the first product with absorbed weights."""
    every, hidden, latent = phase.every, phase.model.hidden_size, KV_RANK + ROPE_DIM
    kernels = attention_kernels(phase, formats)
    if not phase.prefill:
        rotation = phase.elementwise("rope_kvcache", every, latent, latent)
        kernels = (Overlap(f"{phase.name}_bmm_rope_overlap", kernels[:1], (rotation,)), *kernels[1:])
    return (
        phase.embedding(),
        phase.elementwise("add_norm_1", every, 2 * hidden, 2 * hidden),
        *attention_parts(phase, formats, kernels, (phase.elementwise("q_a_layernorm", every, Q_RANK, Q_RANK),)),
        phase.elementwise("add_norm_2", every, 2 * hidden, 2 * hidden),
        *dense_layers(phase),
        *large_experts(phase, LOAD, plan, shared=formats.shared),
        phase.logits(),
        phase.hand_over(),
    )


def _sglang(phase: Phase, formats: Formats, plan: LargeEp) -> Operators:
    """Ranks of attention share the tokens of a prefill outside attention; no second norm."""
    model, tp, every, hidden = phase.model, phase.parallel.tp, phase.every, phase.model.hidden_size
    down = (Q_RANK + KV_RANK + ROPE_DIM, hidden, formats.down)
    return (
        phase.gemm("qkv_a_proj_gemm", every, *down, token_divisor=tp if phase.prefill else 1),
        *phase.tp_exchange("all_gather"),
        phase.embedding(),
        phase.elementwise("add_norm_1", every, 2 * hidden, 2 * hidden),
        phase.gemm("downscale_gemm", every, *down),
        _wide_attention(phase, formats),
        *phase.kv_gather(every, latent_bytes(model, phase.quantisation)),
        *phase.tp_exchange("reduce_scatter"),
        *dense_layers(phase),
        *large_experts(phase, LOAD, plan, shared=formats.shared, routed_here=False),
        *(() if model.compat.passes_without_head else (phase.logits(),)),
    )


def _wide_attention(phase: Phase, formats: Formats) -> WideEpContextMla | WideEpGenerationMla:
    """The measured block; it holds the projections that are not listed."""
    parallel, modes = phase.parallel, phase.quantisation
    unlisted = () if phase.model.compat.attention_blocks_without_weights else attention_parts(phase, formats, ())[1:]
    shape = (f"{phase.name}_attention", phase.every, MEASURED_HEADS // parallel.tp, modes.kvcache, modes.fmha)
    held = sum(op.weight_bytes for op in unlisted)
    if phase.prefill:
        return WideEpContextMla(*shape, cp=parallel.cp, weight_bytes=held)
    return WideEpGenerationMla(*shape, weight_bytes=held)
