# SPDX-License-Identifier: Apache-2.0
"""Dense decoders with grouped-query attention and a gated feed-forward: Llama, Qwen2, Qwen3, MiMo."""

from aicjax import quant
from aicjax.models.families.base import Family, dense, kv_heads_per_gpu
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import (
    P2P,
    AllReduce,
    ContextAttention,
    Elementwise,
    Embedding,
    Gemm,
    GenerationAttention,
    Nccl,
    Op,
    OpLists,
)

_BYTES_16BIT = quant.GEMM["bfloat16"].bytes


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step; drafts add `nextn` layers' share to every decode operator."""
    width = (model.layers + nextn) / model.layers
    return OpLists(
        context=_phase(model, parallel, quantisation, "context", 1.0, parallel.cp),
        generation=_phase(model, parallel, quantisation, "generation", width, 1),
    )


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values of every layer; heads are replicated where there are fewer than ranks."""
    return KvCache((KvTerm(_kv_bytes_per_layer(model, parallel, quantisation) * model.layers),))


def _kv_bytes_per_layer(model: ModelConfig, parallel: Parallel, quantisation: Quantisation) -> float:
    element_bytes = quant.KVCACHE[quantisation.kvcache].bytes
    return 2 * kv_heads_per_gpu(model, parallel) * model.head_dim * element_bytes


def _phase(
    model: ModelConfig, parallel: Parallel, quantisation: Quantisation, phase: str, once: float, split: int
) -> tuple[Op, ...]:
    """One list: `once` scales what runs once a pass, `split` divides the tokens of everything but attention."""
    tp, hidden, vocab = parallel.tp, model.hidden_size, model.vocab_size // parallel.tp
    heads_width = model.num_heads * model.head_dim // tp
    kv_width = 2 * model.head_dim * kv_heads_per_gpu(model, parallel)
    ffn, gate_up = model.intermediate_size // tp, 2 * model.intermediate_size // tp
    every = model.layers * once

    def gemm(name: str, scale: float, n: int, k: int, mode: str = quantisation.gemm, low: bool = False) -> Gemm:
        return Gemm(f"{phase}_{name}", scale, n, k, mode, low_precision_input=low, seq_split=split)

    def elementwise(name: str, read: int, write: int) -> Elementwise:
        return Elementwise(f"{phase}_{name}", every, _BYTES_16BIT * (read + write), seq_split=split)

    def all_reduce(name: str, scale: float) -> AllReduce:
        return AllReduce(f"{phase}_{name}", scale, hidden, tp, seq_split=split)

    return (
        Embedding(f"{phase}_embedding", once, vocab, hidden, seq_split=split),
        elementwise("add_norm_1", 2 * hidden, 2 * hidden),
        gemm("qkv_gemm", every, heads_width + kv_width, hidden),
        *_attention(model, parallel, quantisation, phase, every),
        gemm("proj_gemm", every, hidden, heads_width, low=True),
        elementwise("add_norm_2", 2 * hidden, 2 * hidden),
        gemm("gate_ffn1_gemm", every, gate_up, hidden),
        elementwise("act_gate", gate_up, ffn),
        gemm("ffn2_gemm", every, hidden, ffn, low=True),
        gemm("logits_gemm", once, vocab, hidden, "bfloat16"),
        all_reduce("embedding_ar", once),
        all_reduce("ar_1", every),
        all_reduce("ar_2", every),
        P2P(f"{phase}_p2p", (parallel.pp - 1) * once, hidden, parallel.pp, seq_split=split),
    )


def _attention(
    model: ModelConfig, parallel: Parallel, quantisation: Quantisation, phase: str, scale: float
) -> tuple[Op, ...]:
    shape = (model.num_heads // parallel.tp, kv_heads_per_gpu(model, parallel), model.head_dim, quantisation.kvcache)
    if phase == "generation":
        return (GenerationAttention("generation_attention", scale, *shape),)
    attention = ContextAttention(
        "context_attention", scale, *shape, quantisation.fmha, qk_norm=model.qk_norm, cp=parallel.cp
    )
    if parallel.cp == 1:
        return (attention,)
    elements = _kv_bytes_per_layer(model, parallel, quantisation) / quant.COMM[quantisation.comm].bytes
    return attention, Nccl("context_cp_all_gather", scale, "all_gather", elements, parallel.cp, quantisation.comm)


LLAMA = Family("LLAMA", dense, op_lists=op_lists, kv_cache=kv_cache, context_parallel_backends=("sglang",))
