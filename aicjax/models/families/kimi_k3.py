# SPDX-License-Identifier: Apache-2.0
"""Delta-rule linear attention between latent-attention layers, with latent experts: Kimi K3."""

from collections.abc import Mapping
from typing import Any

from aicjax import quant
from aicjax._results import DataError, InputError
from aicjax.models.families.base import MLA_TABLES, Family, mixture
from aicjax.models.families.blocks import BYTES_16BIT, Operators, Phase, phases
from aicjax.models.families.experts import DENSE_LAYER, LOAD, exchange, experts, router
from aicjax.models.families.kimi_k3_attention import latent_layers, linear_layers
from aicjax.models.families.kimi_k3_draft import draft_kv_bytes, draft_operators
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists

_REQUIRED = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_DEFAULT_CONV_KERNEL = 4
_STATES = 5  # recurrent states that an engine keeps of a sequence
_STATE_BYTES = 4  # of a value of the recurrent state
_SHARED = ("shared_gate_up_gemm", "shared_act_gate", "shared_down_gemm")


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    linear = fields.first("linear_attn_config", default={})
    if missing := [key for key in ("kda_layers", "num_heads", "head_dim") if not linear.get(key)]:
        raise DataError(
            f"{fields.source}: key `linear_attn_config.{missing[0]}` is missing, needed by architecture "
            f"{fields.architecture}."
        )
    layers = set(linear["kda_layers"])  # counted from 1
    if odd := sorted(layer for layer in layers if not 1 <= layer <= fields.layers):
        raise DataError(
            f"{fields.source}: key `linear_attn_config.kda_layers` must hold 1 to {fields.layers}, but has {odd}."
        )
    return {key: fields.required(key) for key in _REQUIRED} | {
        "linear_layers": len(layers),
        "linear_heads": linear["num_heads"],
        "linear_head_dim": linear["head_dim"],
        "linear_conv_kernel": linear.get("short_conv_kernel_size", _DEFAULT_CONV_KERNEL),
        "latent_size": fields.first("routed_expert_hidden_size"),
        "shared_experts": fields.first("num_shared_experts"),
        "dense_layers": fields.first("first_k_dense_replace"),
        "residual_block": fields.first("attn_res_block_size"),
    }


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step; drafts come from a model of their own, listed last."""
    if (heads := model.extra["linear_heads"]) % parallel.tp:
        raise InputError("tp", parallel.tp, f"a divisor of the {heads} linear-attention heads of {model.name}")
    context, generation = phases(model, parallel, quantisation, backend, 0)
    drafts = draft_operators(generation, nextn) if nextn else ()
    return OpLists(context=_decoder(context, nextn), generation=_decoder(generation, nextn) + drafts)


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """A latent vector a token in the layers of latent attention, recurrent states in the others."""
    facts, linear = model.extra, model.extra["linear_layers"]
    width = facts["kv_lora_rank"] + facts["qk_rope_head_dim"]
    token_bytes = (model.layers - linear) * width * quant.KVCACHE[quantisation.kvcache].bytes
    if nextn:
        token_bytes += draft_kv_bytes(parallel, quantisation, backend)
    head_dim = facts["linear_head_dim"]
    inputs = 3 * (facts["linear_conv_kernel"] - 1) * head_dim  # queries, keys and values of the last tokens
    head_bytes = head_dim**2 * _STATE_BYTES + inputs * BYTES_16BIT
    return KvCache((KvTerm(token_bytes),), _STATES * linear * facts["linear_heads"] / parallel.tp * head_bytes)


def _decoder(phase: Phase, nextn: int) -> Operators:
    model, tp, hidden, facts = phase.model, phase.parallel.tp, phase.model.hidden_size, phase.model.extra
    residual = phase.elementwise("attn_res", 2 * phase.every, 4 * hidden, 2 * hidden)
    linear, dense = facts["linear_layers"], facts["dense_layers"]
    return (
        phase.embedding(tp),
        phase.all_reduce("embedding_ar", phase.once),
        *linear_layers(phase, linear, nextn),
        *latent_layers(phase, model.layers - linear),
        *((residual,) if facts["residual_block"] > 0 else ()),
        phase.elementwise("ffn_norm", phase.every, 2 * hidden, 2 * hidden),
        *(_dense_ffn(phase, dense) if dense else ()),
        *_experts(phase, model.layers - dense),
        phase.logits(),
        phase.hand_over(),
    )


def _dense_ffn(phase: Phase, scale: float) -> Operators:
    ffn = phase.gated_ffn(DENSE_LAYER, scale, phase.model.intermediate_size, phase.parallel.tp, low=True)
    return *ffn, phase.all_reduce("dense_ffn_ar", scale)


def _experts(phase: Phase, scale: float) -> Operators:
    """Experts on latent tokens, the way to them and the shared experts in 16 bits."""
    model, hidden = phase.model, phase.model.hidden_size
    latent = model.extra["latent_size"] or hidden
    shared = model.extra["shared_experts"] * model.moe_intermediate_size
    before, after = (exchange(phase, scale, pre=pre, hidden_size=latent) for pre in (True, False))
    return (
        router(phase, scale),
        phase.gemm("latent_down_gemm", scale, latent, hidden, "bfloat16"),
        phase.elementwise("latent_norm", scale, 2 * latent, 2 * latent),
        before,
        experts(phase, scale, LOAD, hidden_size=latent),
        after,
        phase.gemm("latent_up_gemm", scale, hidden, latent, "bfloat16"),
        *(phase.gated_ffn(_SHARED, scale, shared, phase.parallel.tp, "bfloat16") if shared else ()),
    )


KIMIK3 = Family(
    "KIMIK3",
    mixture,
    _extra,
    op_lists,
    kv_cache,
    prefill_tables={"trtllm": MLA_TABLES, "sglang": MLA_TABLES},
)
