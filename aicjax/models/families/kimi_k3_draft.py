# SPDX-License-Identifier: Apache-2.0
"""The draft model that Kimi K3 speculates with: a few dense layers, run for every draft of a decode step."""

import dataclasses

from aicjax import quant
from aicjax.models.families.blocks import Operators, Phase
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation

# Two draft models are published: one with grouped-query attention, and one with latent attention for vLLM.
_LAYERS, _FFN_SIZE = 5, 14336
_HEADS, _KV_HEADS, _HEAD_DIM = 64, 16, 64
_LATENT_HEADS, _Q_RANK, _KV_RANK, _NOPE_DIM, _ROPE_DIM, _V_DIM = 64, 1536, 512, 128, 64, 128
_LATENT_WIDTH = _KV_RANK + _ROPE_DIM  # cached values of a token in a layer
_FFN = ("gate_up_gemm", "act_gate", "down_gemm")


def draft_operators(phase: Phase, nextn: int) -> Operators:
    """Operators of the draft model in a decode step that verifies `nextn` drafts and one token more.

    The tokens of the step are `nextn + 1` a sequence. The draft model runs on `nextn` of them, and takes over the
    cache and the first scores of one.
    """
    drafts = dataclasses.replace(phase, name="draft", once=nextn / (nextn + 1))
    taken = dataclasses.replace(phase, name="draft", once=1 / (nextn + 1))
    tp, hidden, layers = phase.parallel.tp, phase.model.hidden_size, _LAYERS * drafts.once
    latent = phase.backend == "vllm"
    cached = _LATENT_WIDTH if latent else 2 * _KV_HEADS * _HEAD_DIM // tp
    return (
        drafts.embedding(tp),
        drafts.elementwise("norm", 2 * layers, 2 * hidden, 2 * hidden),
        *(_latent_attention if latent else _grouped_attention)(drafts, layers),
        *drafts.gated_ffn(_FFN, layers, _FFN_SIZE, tp, low=True),
        drafts.all_reduce("ar", 2 * layers),
        taken.gemm("kv_proj_gemm", _LAYERS * taken.once, cached, hidden),
        taken.logits(),
    )


def draft_kv_bytes(parallel: Parallel, quantisation: Quantisation, backend: str) -> float:
    """Cached bytes of one token in all draft layers on one GPU."""
    width = _LATENT_WIDTH if backend == "vllm" else 2 * _kv_heads(parallel) * _HEAD_DIM
    return _LAYERS * width * quant.KVCACHE[quantisation.kvcache].bytes


def _kv_heads(parallel: Parallel) -> int:
    return max(1, _KV_HEADS // parallel.tp)


def _grouped_attention(phase: Phase, scale: float) -> Operators:
    tp, hidden = phase.parallel.tp, phase.model.hidden_size
    return (
        phase.gemm("qkv_gemm", scale, (_HEADS + 2 * _KV_HEADS) * _HEAD_DIM // tp, hidden),
        phase.attention(scale, _HEADS // tp, _kv_heads(phase.parallel), _HEAD_DIM),
        phase.gemm("proj_gemm", scale, hidden, _HEADS * _HEAD_DIM // tp, low=True),
    )


def _latent_attention(phase: Phase, scale: float) -> Operators:
    tp, hidden, heads = phase.parallel.tp, phase.model.hidden_size, _LATENT_HEADS // phase.parallel.tp
    return (
        phase.gemm("downscale_gemm", scale, _Q_RANK + _LATENT_WIDTH, hidden),
        phase.gemm("q_b_gemm", scale, _LATENT_HEADS * (_NOPE_DIM + _ROPE_DIM) // tp, _Q_RANK),
        phase.attention(scale, heads, heads, _V_DIM),
        phase.gemm("proj_gemm", scale, hidden, _LATENT_HEADS * _V_DIM // tp, low=True),
    )
