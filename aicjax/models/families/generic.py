# SPDX-License-Identifier: Apache-2.0
"""Any decoder with grouped-query attention, dense or with experts, from the numbers of its config alone.

The way in for an architecture that is not listed. A dense model has the operators of `llama`, one with experts in every
layer those of `moe`; layers before the first with experts are dense, and shared experts run beside the routed ones.
Windows of attention are not read: every layer sees every token, an upper bound of time and memory.
"""

from collections.abc import Mapping

from aicjax._results import DataError
from aicjax.models.families.base import Family, as_stated
from aicjax.models.families.blocks import DENSE_FFN, Operators, Phase, grouped_attention_block, kv_layer_bytes, phases
from aicjax.models.families.experts import SHARED_EXPERT, STEEP_LOAD, beside_shared, layer_facts, routed_experts
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists

_ATTENTION_LAYERS = ("full_attention", "sliding_attention", "chunked_attention")
_OTHER_LAYERS = {  # keys that only configs of other kinds of layers have
    "kv_lora_rank": "latent attention",
    "index_topk": "sparse attention",
    "linear_num_key_heads": "linear attention",
    "linear_attn_config": "linear attention",
    "ssm_state_size": "state-space layers",
    "mamba_d_state": "state-space layers",
    "block_configs": "layers that differ",
    "hybrid_override_pattern": "layers that differ",
    "layers_block_type": "layers that differ",
}


def _extra(fields: ConfigFields) -> Mapping[str, int]:
    """Dense layers and the width of the shared experts; refuses a config that lacks a number or means other layers."""
    _refuse_other_layers(fields)
    if not fields.experts:
        fields.required("intermediate_size")
        return {"dense_layers": fields.layers, "shared_expert_size": 0}
    dense_layers = layer_facts(fields)["dense_layers"]
    needed = ("moe_intermediate_size", "intermediate_size") if dense_layers else ()
    for key in needed if fields.topk else (*needed, "num_experts_per_tok"):
        fields.required(key)
    if not fields.first_nonzero("moe_intermediate_size", "intermediate_size"):
        fields.required("moe_intermediate_size")
    shared = fields.first("n_shared_experts", "num_shared_experts") * fields.first("moe_intermediate_size")
    return {
        "dense_layers": dense_layers,
        "shared_expert_size": fields.first("shared_expert_intermediate_size", default=shared),
    }


def _refuse_other_layers(fields: ConfigFields) -> None:
    stated = next((key for key in _OTHER_LAYERS if fields.text.get(key)), None)
    if stated is not None:
        what = f"key `{stated}` means {_OTHER_LAYERS[stated]}"
    elif other := sorted(set(fields.first("layer_types", default=())) - set(_ATTENTION_LAYERS)):
        what = f"key `layer_types` has {other}"
    else:
        return
    raise DataError(f"{fields.source}: {what}, which family={GENERIC.name} has not ({fields.architecture}).")


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step."""
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(context=_decoder(context), generation=_decoder(generation))


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values of every layer; heads are replicated where there are fewer than ranks."""
    return KvCache((KvTerm(kv_layer_bytes(model, parallel, quantisation) * model.layers),))


def _decoder(phase: Phase) -> Operators:
    model, tp = phase.model, phase.parallel.tp
    dense_layers = model.extra["dense_layers"]
    dense, sums = (), ()
    if dense_layers:
        scale = phase.layers(dense_layers)
        dense = phase.gated_ffn(DENSE_FFN, scale, model.intermediate_size, tp, low=True)
        sums = (phase.all_reduce("ar_1", scale), phase.all_reduce("ar_2", scale))
    return (
        phase.embedding(tp),
        *grouped_attention_block(phase),
        *dense,
        *(_experts(phase) if dense_layers < model.layers else ()),
        phase.logits(),
        phase.all_reduce("embedding_ar", phase.once),
        *sums,
        phase.hand_over(),
    )


def _experts(phase: Phase) -> Operators:
    scale, size = phase.with_experts, phase.model.extra["shared_expert_size"]
    routed = routed_experts(phase, scale, STEEP_LOAD, cp=phase.parallel.cp if phase.prefill else 1)
    shared = phase.gated_ffn(SHARED_EXPERT, scale, size, phase.parallel.tp) if size else ()
    return beside_shared(phase, routed, shared)


GENERIC = Family("GENERIC", as_stated, _extra, op_lists, kv_cache, context_parallel_backends=("sglang",))
