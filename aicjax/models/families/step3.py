# SPDX-License-Identifier: Apache-2.0
"""Window and global attention with different head counts, experts and one shared expert: Step-3.7, Step-3.5."""

from collections.abc import Mapping
from typing import Any

from aicjax.models.families.base import Family, mixture
from aicjax.models.families.blocks import kv_layer_bytes, phases
from aicjax.models.families.mixed_layers import decoder
from aicjax.models.kvcache import UNBOUNDED, KvCache, KvTerm
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    kinds = fields.required("layer_types")
    drafts = int(fields.first("num_nextn_predict_layers"))
    if len(kinds) == fields.layers + drafts:
        kinds = kinds[: fields.layers]
    kinds = fields.pattern("layer_types", ("sliding_attention", "full_attention"), kinds)
    other = fields.first("attention_other_setting", default={})
    return {
        "global_attention": tuple(int(kind == "full_attention") for kind in kinds),
        "expert_layers": _expert_layers(fields),
        "window": fields.first_nonzero("sliding_window", "sliding_window_size"),
        "window_heads": int(other.get("num_attention_heads") or 0),
        "window_head_dim": int(other.get("head_dim") or 0),
        "attention_gate": bool(fields.first("use_head_wise_attn_gate", default=False)),
        "shared_expert_size": _shared_expert_size(fields),
    }


def _shared_expert_size(fields: ConfigFields) -> int:
    nested = 0 if fields.compat.shared_experts_not_read else fields.first("share_expert_dim")
    return int(fields.root.get("share_expert_dim") or nested)


def _expert_layers(fields: ConfigFields) -> tuple[int, ...]:
    listed = fields.first("moe_layers_enum", default="")
    if isinstance(listed, str):
        listed = [word for word in listed.split(",") if word.strip()]
    if listed:
        chosen = {int(layer) for layer in listed}
        return tuple(int(layer in chosen) for layer in range(fields.layers))
    dense = int(fields.first("first_k_dense_replace"))
    return tuple(int(layer >= dense) for layer in range(fields.layers))


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step: the shared expert of all expert layers comes last."""
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(context=decoder(context, qk_norm=True), generation=decoder(generation, qk_norm=True))


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values as wide as the config's common heads, up to the window in the layers that have one."""
    layer_bytes, kinds = kv_layer_bytes(model, parallel, quantisation), model.extra["global_attention"]
    windowed = KvTerm(layer_bytes * kinds.count(0), model.extra["window"] or UNBOUNDED)
    return KvCache((windowed, KvTerm(layer_bytes * kinds.count(1))))


STEP3P7 = Family("STEP3P7", mixture, _extra, op_lists, kv_cache, context_parallel_backends=("sglang",))
