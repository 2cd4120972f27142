# SPDX-License-Identifier: Apache-2.0
"""Latent attention as families with experts write it: number formats, projections, kernels, and the layers around."""

from dataclasses import dataclass

from aicjax import quant
from aicjax.models.families.blocks import Operators, Phase
from aicjax.models.families.exceptions import keeps_shared_expert, projection_quants
from aicjax.models.families.experts import dense_layers
from aicjax.models.model import ModelConfig
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import (
    ContextMla,
    Fallback,
    GenerationMla,
    MlaBmm,
    MlaModuleContext,
    MlaModuleGeneration,
)

Q_RANK, KV_RANK = 1536, 512  # widths of the latent queries and of the latent keys and values
NOPE_DIM, ROPE_DIM, V_DIM = 128, 64, 128  # a head: keys without and with rotation, values
MEASURED_HEADS = 128  # of the model that the latent-attention kernels were measured with


@dataclass(frozen=True)
class Formats:
    """Number formats of the parts of a layer that a checkpoint may choose apart.

    Attributes:
        down: First projection, to the latent vectors.
        q, kv, o: Projections of queries, of keys and values, and of the output.
        bmm: Products with absorbed weights.
        shared: Shared expert.
    """

    down: str
    q: str
    kv: str
    o: str
    bmm: str
    shared: str

    @property
    def uniform(self) -> bool:
        """Whether one format serves the whole attention block, as in measured blocks."""
        return self.q == self.kv == self.o

    @classmethod
    def of(cls, model: ModelConfig, quantisation: Quantisation) -> "Formats":
        """The formats of a checkpoint under the worker's dense format."""
        gemm = quantisation.gemm
        modes = projection_quants(model, gemm)
        absorbed = "bfloat16" if "bfloat16" in (modes["kv"], gemm) else "fp8"
        shared = "bfloat16" if keeps_shared_expert(model) and not quantisation.gemm_chosen else gemm
        down = "bfloat16" if modes["q"] == modes["kv"] == "bfloat16" else gemm
        return cls(down, modes["q"], modes["kv"], modes["o"], absorbed, shared)


def latent_bytes(model: ModelConfig, quantisation: Quantisation) -> float:
    """Cached bytes of one token in one layer."""
    width = (model.extra["kv_lora_rank"] or KV_RANK) + (model.extra["qk_rope_head_dim"] or ROPE_DIM)
    return width * quant.KVCACHE[quantisation.kvcache].bytes


def kernel_heads(model: ModelConfig) -> int:
    """Heads whose kernel measurements price the attention of a model."""
    return MEASURED_HEADS if model.compat.latent_kernels_of_128_heads else model.num_heads


def decoder(phase: Phase, formats: Formats, experts: Operators) -> Operators:
    """The list of a phase around its expert block."""
    model, every, hidden = phase.model, phase.every, phase.model.hidden_size
    return (
        phase.embedding(),
        phase.elementwise("add_norm_1", every, 2 * hidden, 2 * hidden),
        *_attention_block(phase, formats),
        *phase.kv_gather(every, latent_bytes(model, phase.quantisation)),
        phase.elementwise("add_norm_2", every, 2 * hidden, 2 * hidden),
        *dense_layers(phase, summed=phase.backend != "vllm"),
        *experts,
        phase.logits(),
        *((phase.whole.all_reduce("tp_allreduce", 2 * every),) if phase.backend == "vllm" else ()),
        phase.whole.hand_over(),
    )


def _attention_block(phase: Phase, formats: Formats) -> Operators:
    """The measured block, or its parts where that shape was not measured; the parts alone where formats differ."""
    chain = attention_parts(phase, formats, attention_kernels(phase, formats))
    if not formats.uniform:
        return chain
    kind = MlaModuleContext if phase.prefill else MlaModuleGeneration
    modes = phase.quantisation
    block = kind(
        name=f"{phase.name}_mla_module",
        scale=phase.every / phase.split,
        num_heads=phase.model.num_heads // phase.parallel.tp,
        native_heads=phase.model.num_heads,
        kv_quant=modes.kvcache,
        fmha_quant=modes.fmha,
        gemm_quant=formats.q,
    )
    return (Fallback(f"{phase.name}_mla_block", block, chain),)


def attention_parts(phase: Phase, formats: Formats, kernels: Operators, query_norm: Operators = ()) -> Operators:
    """Projections around the kernels of attention, and a norm of the latent queries where it is listed."""
    model, tp, every, hidden = phase.model, phase.parallel.tp, phase.every, phase.model.hidden_size
    expand = phase.gemm("kv_b_proj_gemm", every, model.num_heads * (NOPE_DIM + V_DIM) // tp, KV_RANK, formats.kv)
    return (
        phase.gemm("downscale_gemm", every, Q_RANK + KV_RANK + ROPE_DIM, hidden, formats.down),
        *query_norm,
        phase.gemm("q_b_proj_gemm", every, model.num_heads * (NOPE_DIM + ROPE_DIM) // tp, Q_RANK, formats.q),
        *((expand,) if phase.prefill else ()),
        *kernels,
        phase.gemm("proj_gemm", every, hidden, model.num_heads * V_DIM // tp, formats.o),
    )


def attention_kernels(phase: Phase, formats: Formats) -> Operators:
    """Attention between its projections, with the absorbed products of a decode step."""
    model, parallel, every, modes = phase.model, phase.parallel, phase.every, phase.quantisation
    if phase.backend == "vllm":  # expands the latent cache and runs ordinary attention
        heads, kv_heads = model.num_heads // parallel.tp, model.num_kv_heads // parallel.tp
        head_dim = model.extra["v_head_dim"] or model.head_dim
        return (phase.attention(every / phase.split, heads, kv_heads, head_dim),)
    name, heads = f"{phase.name}_attention", kernel_heads(model) // parallel.tp
    if phase.prefill:
        return (ContextMla(name, every, heads, modes.kvcache, modes.fmha, cp=parallel.cp),)
    before, after = (
        MlaBmm(f"{phase.name}_bmm_{place}", every, model.num_heads // parallel.tp, formats.bmm, pre=place == "pre")
        for place in ("pre", "post")
    )
    return before, GenerationMla(name, every, heads, modes.kvcache), after
