# SPDX-License-Identifier: Apache-2.0
"""Window and global attention, a dense feed-forward beside experts: Gemma 4."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from aicjax import quant
from aicjax._results import InputError
from aicjax.models.families.base import Family
from aicjax.models.families.blocks import Operators, Phase, phases
from aicjax.models.families.experts import LOAD, exchange, experts, router_of_many
from aicjax.models.kvcache import UNBOUNDED, KvCache, KvTerm
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists

_KINDS = {"swa": ("window", "sliding_attention"), "global": ("global", "full_attention")}  # by name in operators
_MLP = ("shared_mlp_gate_up_gemm", "shared_mlp_act", "shared_mlp_down_gemm")


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    kv_heads, head_dim = fields.required("num_key_value_heads"), fields.required("head_dim")
    return {
        "layer_types": fields.pattern("layer_types", ("sliding_attention", "full_attention")),
        "window": fields.first("sliding_window"),
        "window_kv_heads": kv_heads,
        "window_head_dim": head_dim,
        "global_kv_heads": fields.first("num_global_key_value_heads", default=kv_heads),
        "global_head_dim": fields.first("global_head_dim", default=head_dim),
        "values_are_keys": bool(fields.first("attention_k_eq_v", default=False)),
        "placed_as_experts": fields.compat.dense_gemma_as_experts or fields.experts > 0,
    }


def _is_moe(num_experts: int, extra: Mapping[str, Any]) -> bool:
    return extra["placed_as_experts"]


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step: every layer has a dense feed-forward, and experts beside it."""
    if not _has_experts(model) and parallel.moe_ep > 1:
        raise InputError("moe_ep", parallel.moe_ep, f"1 for {model.name}, which has no experts")
    projection = mlp = quantisation.gemm
    if not quantisation.gemm_chosen:
        kept = [pattern.lower() for pattern in model.checkpoint.excluded]
        if any("self_attn" in pattern for pattern in kept):
            projection = "bfloat16"
        if any(".mlp" in pattern for pattern in kept):
            mlp = "bfloat16"
            quantisation = dataclasses.replace(quantisation, moe="bfloat16")
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(context=_decoder(context, projection, mlp), generation=_decoder(generation, projection, mlp))


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values of both kinds of layers, up to the window in those that have one."""
    windows = {"swa": model.extra["window"] or UNBOUNDED, "global": UNBOUNDED}
    return KvCache(
        tuple(
            KvTerm(_kv_bytes(model, parallel, quantisation, tag) * _layers(model, tag), window)
            for tag, window in windows.items()
        )
    )


def _has_experts(model: ModelConfig) -> bool:
    return model.num_experts > 0 and model.topk > 0


def _layers(model: ModelConfig, tag: str) -> int:
    return model.extra["layer_types"].count(_KINDS[tag][1])


def _heads(model: ModelConfig, parallel: Parallel, tag: str) -> tuple[int, int]:
    """Key and value heads on one GPU and the size of a head."""
    prefix = _KINDS[tag][0]
    return -(-model.extra[f"{prefix}_kv_heads"] // parallel.tp), model.extra[f"{prefix}_head_dim"]


def _kv_bytes(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, tag: str) -> float:
    """Cached bytes of one token in one layer, keys and values apart even where they are the same."""
    kv_heads, head_dim = _heads(model, parallel, tag)
    return 2 * kv_heads * head_dim * quant.KVCACHE[quantisation.kvcache].bytes


def _decoder(phase: Phase, projection: str, mlp: str) -> Operators:
    model = phase.model
    tags = [tag for tag in _KINDS if _layers(model, tag)]
    gathers = (
        phase.kv_gather(
            _layers(model, tag), _kv_bytes(model, phase.parallel, phase.quantisation, tag), f"cp_all_gather_{tag}"
        )
        for tag in tags
    )
    return (
        phase.embedding(),
        *(op for tag in tags for op in _layer(phase, tag, projection, mlp)),
        phase.logits(),
        phase.hand_over(),
        *(op for ops in gathers for op in ops),
    )


def _layer(phase: Phase, tag: str, projection: str, mlp: str) -> Operators:
    model, parallel, hidden = phase.model, phase.parallel, phase.model.hidden_size
    scale, norm = _layers(model, tag) * phase.once, 2 * hidden
    (kv_heads, head_dim), is_global = _heads(model, parallel, tag), tag == "global"
    width = model.num_heads * head_dim // parallel.tp
    kv_width = kv_heads * head_dim * (1 if is_global and model.extra["values_are_keys"] else 2)
    window = 0 if is_global else model.extra["window"]
    heads = model.num_heads // parallel.tp
    gate_up, act, down = (f"{tag}_{name}" for name in _MLP)
    return (
        phase.elementwise(f"{tag}_attn_norm", scale, norm, norm),
        phase.gemm(f"{tag}_qkv_gemm", scale, width + kv_width, hidden, projection),
        phase.attention(scale, heads, kv_heads, head_dim, window=window, cp=parallel.cp),
        phase.gemm(f"{tag}_proj_gemm", scale, hidden, width, projection, low=True),
        phase.elementwise(f"{tag}_ffn_norm", scale, norm, norm),
        *phase.gated_ffn((gate_up, act, down), scale, model.intermediate_size // parallel.tp, 1, mlp, low=True),
        *(_experts(phase, scale, f"{tag}_") if _has_experts(model) else ()),
    )


def _experts(phase: Phase, scale: float, tag: str) -> Operators:
    cp = phase.parallel.cp
    before, after = (
        exchange(phase, scale, pre=pre, cp=cp, context=phase.prefill or cp == 1, tag=tag) for pre in (True, False)
    )
    scores = router_of_many(phase, scale, tag)
    return *scores, before, experts(phase, scale, LOAD, tag=tag), after


GEMMA4MIX = Family("GEMMA4MIX", _is_moe, _extra, op_lists, kv_cache, context_parallel_backends=("sglang",))
