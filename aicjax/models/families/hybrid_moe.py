# SPDX-License-Identifier: Apache-2.0
"""Layers that mix window and global attention with dense and expert feed-forwards: MiMo-V2-Flash, Llama-4."""

from collections.abc import Mapping
from typing import Any

from aicjax._results import DataError
from aicjax.models.families.base import Family, mixture
from aicjax.models.families.blocks import kv_layer_bytes, phases
from aicjax.models.families.mixed_layers import decoder, window_kv_cache
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists

_NO_ROPE_INTERVAL = 4  # of Llama 4 where the config does not say


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    """Kinds of every layer (1 global attention, 1 experts) and sizes that differ by kind; 0 means the common one."""
    if fields.architecture == "Llama4ForConditionalGeneration":
        return _llama4(fields)
    experts = fields.first("moe_layer_freq", default=())
    experts = experts if isinstance(experts, list) else [experts] * fields.layers
    windowed = fields.pattern("hybrid_layer_pattern", (0, 1))
    swapped = fields.compat.mimo_layer_kinds_swapped
    return {
        "global_attention": windowed if swapped else tuple(1 - kind for kind in windowed),
        "expert_layers": fields.pattern("moe_layer_freq", (0, 1), experts),
        "window": fields.first("sliding_window_size"),
        "dense_size": 0,
        "window_kv_heads": fields.first("swa_num_key_value_heads"),
        "window_head_dim": fields.first("swa_head_dim"),
        "window_v_head_dim": fields.first("swa_v_head_dim"),
        "global_v_head_dim": fields.first("v_head_dim"),
    }


def _llama4(fields: ConfigFields) -> Mapping[str, Any]:
    step = fields.first("interleave_moe_layer_step", default=1)
    if not isinstance(step, int) or step < 1:
        raise DataError(
            f"{fields.source}: key `interleave_moe_layer_step` must be a positive integer, but is {step!r}."
        )
    return {
        "global_attention": _llama4_global(fields),
        "expert_layers": tuple(int((layer + 1) % step == 0) for layer in range(fields.layers)),
        "window": fields.first("attention_chunk_size"),
        "dense_size": fields.first("intermediate_size_mlp"),
        "shared_expert_size": 0 if fields.compat.shared_experts_not_read else fields.first("intermediate_size"),
    }


def _llama4_global(fields: ConfigFields) -> tuple[int, ...]:
    """Layers whose attention sees every token: those without rotation, one in so many where they are not listed."""
    if fields.compat.llama4_every_other_layer_global:
        return tuple(layer % 2 for layer in range(fields.layers))
    interval = fields.first("no_rope_layer_interval", default=_NO_ROPE_INTERVAL)
    rotated = fields.first("no_rope_layers", default=()) or [
        int((layer + 1) % interval != 0) for layer in range(fields.layers)
    ]
    return tuple(1 - kind for kind in fields.pattern("no_rope_layers", (0, 1), rotated))


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step."""
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(context=decoder(context), generation=decoder(generation))


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values of both kinds of layers, up to the window in those that have one."""
    if model.compat.hybrid_kv_without_windows:
        return KvCache((KvTerm(kv_layer_bytes(model, parallel, quantisation) * model.layers),))
    context, _ = phases(model, parallel, quantisation, backend, nextn)
    return window_kv_cache(context)


HYBRIDMOE = Family("HYBRIDMOE", mixture, _extra, op_lists, kv_cache, context_parallel_backends=("sglang",))
