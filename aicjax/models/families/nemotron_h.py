# SPDX-License-Identifier: Apache-2.0
"""State-space, attention, expert and feed-forward layers in a written pattern: Nemotron-H, Nemotron-3."""

from collections.abc import Mapping
from typing import Any

from aicjax._results import DataError
from aicjax.models.families.base import Family, kv_heads_per_gpu
from aicjax.models.families.blocks import (
    BYTES_16BIT,
    STATE_BYTES,
    Operators,
    Phase,
    grouped_attention,
    kv_layer_bytes,
    phases,
)
from aicjax.models.families.experts import LOAD, exchange, experts, router
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import Mamba2, OpLists

_LETTERS = {"mamba": "M", "moe": "E", "attention": "*", "mlp": "-", "dense": "-", "ffn": "-"}
_LETTERS |= {letter: letter for letter in "ME*-"}
_REQUIRED = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "conv_kernel", "n_groups", "chunk_size")
_KERNELS = {
    "context": {"conv1d": "causal_conv1d_fn", "ssm": "mamba_chunk_scan_combined"},
    "generation": {"conv1d": "causal_conv1d_update", "ssm": "selective_state_update"},
}


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    state = fields.first("mamba_ssm_cache_dtype", default=None)
    return {key: fields.required(key) for key in _REQUIRED} | {
        "pattern": _pattern(fields),
        "shared_expert_size": fields.first("moe_shared_expert_intermediate_size"),
        "latent_size": fields.first("moe_latent_size"),
        "state_dtype": state if state in STATE_BYTES else "bfloat16",
    }


def _pattern(fields: ConfigFields) -> str:
    """One letter a layer: M state space, * attention, E experts, - feed-forward."""
    stated = fields.first("hybrid_override_pattern", default=None)
    if stated is not None:
        return stated
    blocks = [str(block) for block in fields.required("layers_block_type")]
    if odd := sorted(set(blocks) - set(_LETTERS)):
        raise DataError(f"{fields.source}: key `layers_block_type` must hold only {list(_LETTERS)}, but has {odd}.")
    return "".join(_LETTERS[block] for block in blocks)


def _is_moe(num_experts: int, extra: Mapping[str, Any]) -> bool:
    return "E" in extra["pattern"]


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step, layers of one kind together."""
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(context=_decoder(context), generation=_decoder(generation))


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values of the attention layers, recurrent state and last inputs of the state-space layers."""
    layer_bytes, pattern = kv_layer_bytes(model, parallel, quantisation), model.extra["pattern"]
    if model.compat.state_space_layers_with_kv:
        return KvCache((KvTerm(layer_bytes * model.layers),))
    facts = model.extra
    width, states = facts["mamba_num_heads"] * facts["mamba_head_dim"], facts["ssm_state_size"]
    inputs = (width + 2 * facts["n_groups"] * states) * (facts["conv_kernel"] - 1)
    layer_state = width * states * STATE_BYTES[facts["state_dtype"]] + inputs * BYTES_16BIT
    return KvCache((KvTerm(layer_bytes * pattern.count("*")),), pattern.count("M") * layer_state / parallel.tp)


def _decoder(phase: Phase) -> Operators:
    pattern = phase.model.extra["pattern"]
    blocks = {"M": _state_space, "*": _attention, "E": _experts, "-": _feed_forward}
    counts = {letter: pattern.count(letter) for letter in blocks}
    layers = (block(phase, counts[letter] * phase.once) for letter, block in blocks.items() if counts[letter])
    return phase.embedding(), *(op for layer in layers for op in layer), phase.hand_over(), phase.logits()


def _state_space(phase: Phase, scale: float) -> Operators:
    facts, tp, hidden = phase.model.extra, phase.parallel.tp, phase.model.hidden_size
    heads, states = facts["mamba_num_heads"] // tp, max(facts["n_groups"] // tp, 1) * facts["ssm_state_size"]
    width = heads * facts["mamba_head_dim"]
    kernels = (
        Mamba2(
            name=f"{phase.name}_mamba_{name}",
            scale=scale,
            kernel=kernel,
            phase=phase.name,
            d_model=hidden,
            d_state=facts["ssm_state_size"],
            d_conv=facts["conv_kernel"],
            num_heads=facts["mamba_num_heads"],
            head_dim=facts["mamba_head_dim"],
            n_groups=facts["n_groups"],
            chunk_size=facts["chunk_size"],
        )
        for name, kernel in _KERNELS[phase.name].items()
    )
    return (
        phase.elementwise("mamba_norm", scale, 2 * hidden, 2 * hidden),
        phase.gemm("mamba_in_proj_gemm", scale, 2 * width + 2 * states + heads, hidden),
        *kernels,
        phase.gemm("mamba_out_proj_gemm", scale, hidden, width),
        phase.all_reduce("mamba_ar", scale),
    )


def _attention(phase: Phase, scale: float) -> Operators:
    model, tp, hidden = phase.model, phase.parallel.tp, phase.model.hidden_size
    width, kv_width = (
        model.num_heads * model.head_dim // tp,
        2 * model.head_dim * kv_heads_per_gpu(model, phase.parallel),
    )
    return (
        phase.elementwise("attn_norm", scale, 2 * hidden, 2 * hidden),
        phase.gemm("qkv_gemm", scale, width + kv_width, hidden),
        grouped_attention(phase, scale),
        phase.gemm("proj_gemm", scale, hidden, width, low=True),
        phase.all_reduce("attn_ar", scale),
    )


def _experts(phase: Phase, scale: float) -> Operators:
    """Experts on latent tokens where the config has a latent size, beside a shared expert on whole ones."""
    facts, tp, hidden = phase.model.extra, phase.parallel.tp, phase.model.hidden_size
    shared, latent = facts["shared_expert_size"] // tp, facts["latent_size"]
    width = latent or hidden
    before, after = (exchange(phase, scale, pre=pre, hidden_size=width) for pre in (True, False))
    return (
        phase.elementwise("moe_norm", scale, 2 * hidden, 2 * hidden),
        phase.gemm("shared_up_gemm", scale, shared, hidden),
        phase.elementwise("shared_relu2", scale, shared, shared),
        phase.gemm("shared_down_gemm", scale, hidden, shared, low=True),
        router(phase, scale),
        *((phase.gemm("fc1_latent_proj_gemm", scale, latent // tp, hidden),) if latent else ()),
        before,
        experts(phase, scale, LOAD, hidden_size=width, gated=False),
        after,
        *((phase.gemm("fc2_latent_proj_gemm", scale, hidden, latent // tp, low=True),) if latent else ()),
        phase.all_reduce("moe_ar", scale),
    )


def _feed_forward(phase: Phase, scale: float) -> Operators:
    hidden, size = phase.model.hidden_size, phase.model.intermediate_size // phase.parallel.tp
    return (
        phase.elementwise("mlp_norm", scale, 2 * hidden, 2 * hidden),
        phase.gemm("mlp_up_gemm", scale, size, hidden),
        phase.elementwise("mlp_relu2", scale, size, size),
        phase.gemm("mlp_down_gemm", scale, hidden, size),
        phase.all_reduce("mlp_ar", scale),
    )


NEMOTRONH = Family("NEMOTRONH", _is_moe, _extra, op_lists, kv_cache)
