# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention with experts: DeepSeek V3, R1 and V3.1, Kimi K2 and K2.5."""

from collections.abc import Mapping

from aicjax.models.families import deepseek_large
from aicjax.models.families.base import MLA_TABLES, Family, mixture
from aicjax.models.families.blocks import Operators, Phase, phases
from aicjax.models.families.experts import LOAD, beside_shared, layer_facts, routed_experts, shared_expert
from aicjax.models.families.latent import Formats, decoder, latent_bytes
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists


def _extra(fields: ConfigFields) -> Mapping[str, int]:
    facts = {key: fields.first(key) for key in ("v_head_dim", "kv_lora_rank", "qk_rope_head_dim")}
    return facts | layer_facts(fields)


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step."""
    formats = Formats.of(model, quantisation)
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(
        context=decoder(context, formats, _experts(context, formats)),
        generation=decoder(generation, formats, _experts(generation, formats)),
    )


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """One latent vector a token and layer, whole on every GPU."""
    return KvCache((KvTerm(latent_bytes(model, quantisation) * model.layers),))


def _experts(phase: Phase, formats: Formats) -> Operators:
    parallel = phase.parallel
    routed = routed_experts(phase, phase.with_experts, LOAD, cp=parallel.cp, context=phase.prefill)
    return beside_shared(phase, routed, shared_expert(phase, parallel.tp, formats.shared))


DEEPSEEK, KIMIK25 = (
    Family(
        name,
        mixture,
        _extra,
        op_lists,
        kv_cache,
        large_op_lists=deepseek_large.op_lists,
        context_parallel_backends=("sglang",),
        prefill_tables={"trtllm": MLA_TABLES, "sglang": MLA_TABLES},
    )
    for name in ("DEEPSEEK", "KIMIK25")
)
