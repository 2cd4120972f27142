# SPDX-License-Identifier: Apache-2.0
"""Grouped-query attention with experts in every layer: Mixtral, Qwen2/3-MoE, gpt-oss, MiniMax-M2."""

from collections.abc import Mapping

from aicjax.models.families.base import Family, mixture
from aicjax.models.families.blocks import (
    Operators,
    Phase,
    grouped_attention,
    grouped_attention_block,
    kv_layer_bytes,
    phases,
)
from aicjax.models.families.experts import SHARED_EXPERT, STEEP_LOAD, beside_shared, routed_experts
from aicjax.models.families.large_experts import large_experts
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.large_ep import LargeEp
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists

_WINDOWS = {"GptOssForCausalLM": 128}  # tokens that every other layer sees


def _extra(fields: ConfigFields) -> Mapping[str, int]:
    unread = fields.compat.shared_experts_not_read
    return {"shared_expert_size": 0 if unread else fields.first("shared_expert_intermediate_size")}


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step; sums over attention ranks are part of the expert exchange."""
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(
        context=_decoder(context, _experts(context)) + _ends(context),
        generation=_decoder(generation, _experts(generation)) + _ends(generation),
    )


def large_op_lists(
    model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int, plan: LargeEp
) -> OpLists:
    """The same with experts over many GPUs; SGLang then holds the whole embedding on every rank."""
    lists = []
    for phase in phases(model, parallel, quantisation, backend, nextn):
        block = large_experts(phase, STEEP_LOAD, plan)
        whole = backend == "sglang"
        lists.append(_decoder(phase, block, whole_embedding=whole) + (() if whole else _ends(phase)))
    return OpLists(*lists)


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values of every layer, where layers alternate up to the window in one half of them."""
    layer_bytes = kv_layer_bytes(model, parallel, quantisation)
    window = _WINDOWS.get(model.architecture)
    if window is None:
        return KvCache((KvTerm(layer_bytes * model.layers),))
    windowed = model.layers // 2
    return KvCache((KvTerm(layer_bytes * windowed, window), KvTerm(layer_bytes * (model.layers - windowed))))


def _experts(phase: Phase) -> Operators:
    routed = routed_experts(phase, phase.every, STEEP_LOAD, cp=phase.parallel.cp if phase.prefill else 1)
    size = phase.model.extra.get("shared_expert_size", 0)
    shared = phase.gated_ffn(SHARED_EXPERT, phase.every, size, phase.parallel.tp) if size else ()
    return beside_shared(phase, routed, shared)


def _decoder(phase: Phase, experts: Operators, *, whole_embedding: bool = False) -> Operators:
    model, every = phase.model, phase.every
    window = _WINDOWS.get(model.architecture)
    return (
        *(() if window is None else (grouped_attention(phase, every / 2, window),)),
        phase.embedding(1 if whole_embedding else phase.parallel.tp),
        *grouped_attention_block(phase, every if window is None else every / 2),
        *experts,
        *(() if phase.prefill and model.compat.passes_without_head else (phase.logits(),)),
    )


def _ends(phase: Phase) -> Operators:
    return phase.all_reduce("embedding_ar", phase.once), phase.hand_over()


MOE = Family(
    "MOE",
    mixture,
    _extra,
    op_lists=op_lists,
    kv_cache=kv_cache,
    large_op_lists=large_op_lists,
    context_parallel_backends=("sglang",),
)
