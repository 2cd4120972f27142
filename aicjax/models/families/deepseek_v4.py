# SPDX-License-Identifier: Apache-2.0
"""Hyper-connections, compressed sparse attention and experts: DeepSeek-V4."""

from collections.abc import Callable, Mapping
from typing import Any

from aicjax import quant
from aicjax._results import InputError
from aicjax.models.families.base import Family, mixture
from aicjax.models.families.blocks import Operators, Phase, phases
from aicjax.models.families.experts import LOAD, SHARED_EXPERT, beside_shared, routed_experts, router, shared_experts
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import Dsv4Context, Dsv4Generation, Dsv4Shape, MegaMoe, Mhc, OpLists

WINDOW_ONLY, LIGHT, HEAVY = RATIOS = (0, 4, 128)  # tokens of one compressed entry of a layer's cache
_INDEX_BYTES, _STATE_BYTES = 0.5, 4  # an element of a compressed indexer key; of a block not yet compressed
_REQUIRED = (
    "q_lora_rank",
    "o_lora_rank",
    "o_groups",
    "head_dim",
    "qk_rope_head_dim",
    "index_head_dim",
    "index_n_heads",
    "index_topk",
    "sliding_window",
    "compress_rope_theta",
    "num_hash_layers",
    "hc_mult",
    "hc_sinkhorn_iters",
    "hc_eps",
    "n_shared_experts",
)


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    ratios = fields.required("compress_ratios")[: fields.layers]
    return {key: fields.required(key) for key in _REQUIRED} | {
        "compress_ratios": fields.pattern("compress_ratios", RATIOS, ratios),
        "shared_experts": shared_experts(fields),
    }


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step: every layer has experts and one shared expert."""
    return _lists(*phases(model, parallel, quantisation, backend, nextn), _exchanged_experts)


def mega_op_lists(
    model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int
) -> OpLists:
    """The same with dispatch, experts and combine in one kernel.

    Raises:
        InputError: The engine has no such kernel, or the experts are not spread by expert parallelism alone.
    """
    if backend != "sglang":
        raise InputError("backend", backend, "sglang, the engine with MegaMoE")
    if parallel.moe_tp != 1:
        raise InputError("moe_tp", parallel.moe_tp, "1 for MegaMoE")
    if parallel.moe_ep == 1:
        raise InputError("moe_ep", parallel.moe_ep, "above 1 for MegaMoE")
    return _lists(*phases(model, parallel, quantisation, backend, nextn), _mega_experts)


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """A window in every layer, compressed entries of the rest, and the blocks being compressed."""
    facts, layers = model.extra, model.extra["compress_ratios"]
    entry = facts["head_dim"] * quant.KVCACHE[quantisation.kvcache].bytes
    light, heavy = layers.count(LIGHT), layers.count(HEAVY)
    blocks = sum(count * ratio * _overlap(ratio) for count, ratio in ((light, LIGHT), (heavy, HEAVY)))
    index_blocks = light * LIGHT * _overlap(LIGHT)
    return KvCache(
        terms=(
            KvTerm(entry * len(layers), window=facts["sliding_window"]),
            KvTerm((entry + facts["index_head_dim"] * _INDEX_BYTES) * light, stride=LIGHT),
            KvTerm(entry * heavy, stride=HEAVY),
        ),
        state_bytes=2 * _STATE_BYTES * (blocks * facts["head_dim"] + index_blocks * facts["index_head_dim"]),
    )


def _overlap(ratio: int) -> int:
    """Blocks that each token takes part in."""
    return 2 if ratio == LIGHT else 1


def _lists(context: Phase, generation: Phase, experts: Callable[[Phase], Operators]) -> OpLists:
    return OpLists(context=_decoder(context, experts(context)), generation=_decoder(generation, experts(generation)))


def _exchanged_experts(phase: Phase) -> Operators:
    return routed_experts(phase, phase.every, LOAD, cp=phase.parallel.cp)


def _mega_experts(phase: Phase) -> Operators:
    model = phase.model
    kernel = MegaMoe(
        name=f"{phase.name}_megamoe",
        scale=phase.every,
        hidden_size=model.hidden_size,
        inter_size=model.moe_intermediate_size,
        topk=model.topk,
        num_experts=model.num_experts,
        moe_ep=phase.parallel.moe_ep,
        quant=phase.quantisation.moe,
        distribution=LOAD,
        phase=phase.name,
    )
    return router(phase, phase.every), kernel


def _decoder(phase: Phase, routed: Operators) -> Operators:
    model, every, hidden = phase.model, phase.every, phase.model.hidden_size
    shared_size = model.extra["shared_experts"] * model.moe_intermediate_size // phase.parallel.tp
    shared = phase.gated_ffn(SHARED_EXPERT, every, shared_size) if shared_size else ()
    return (
        phase.embedding(),
        _hyper_connection(phase, "pre"),
        phase.elementwise("attn_norm", every, hidden, hidden),
        *_attention_blocks(phase),
        _hyper_connection(phase, "post"),
        phase.elementwise("ffn_norm", every, hidden, hidden),
        *beside_shared(phase, routed, shared),
        phase.logits(),
        phase.whole.hand_over(),
    )


def _hyper_connection(phase: Phase, part: str) -> Mhc:
    model, facts = phase.model, phase.model.extra
    return Mhc(
        name=f"{phase.name}_mhc_{part}",
        scale=phase.every,
        part=part,
        hc_mult=facts["hc_mult"],
        hidden_size=model.hidden_size,
        sinkhorn_iters=facts["hc_sinkhorn_iters"],
        seq_split=phase.split,
    )


def _attention_blocks(phase: Phase) -> tuple[Dsv4Context | Dsv4Generation, ...]:
    """One measured block for each compression, in order of appearance; layers without any count as heavy."""
    model, parallel, modes, facts = phase.model, phase.parallel, phase.quantisation, phase.model.extra
    layers = facts["compress_ratios"]
    counts = {ratio: layers.count(ratio) for ratio in dict.fromkeys((*layers, HEAVY)) if ratio != WINDOW_ONLY}
    counts[HEAVY] += layers.count(WINDOW_ONLY)
    common = {
        "name": f"{phase.name}_attention",
        "num_heads": model.num_heads // parallel.tp,
        "native_heads": model.num_heads,
        "tp": parallel.tp,
        "o_groups": max(1, facts["o_groups"] // parallel.tp),
        "kv_quant": modes.kvcache,
        "fmha_quant": modes.fmha,
        "gemm_quant": modes.gemm,
        "architecture": model.architecture,
        "shape": _shape(model),
    }
    blocks = [common | {"ratio": ratio, "scale": count * phase.once} for ratio, count in counts.items() if count]
    if phase.prefill:
        return tuple(Dsv4Context(**block, cp=parallel.cp) for block in blocks)
    return tuple(Dsv4Generation(**block) for block in blocks)


def _shape(model: ModelConfig) -> Dsv4Shape:
    facts = model.extra
    return Dsv4Shape(
        hidden_size=model.hidden_size,
        q_rank=facts["q_lora_rank"],
        o_rank=facts["o_lora_rank"],
        head_dim=facts["head_dim"],
        rope_dim=facts["qk_rope_head_dim"],
        index_heads=facts["index_n_heads"],
        index_dim=facts["index_head_dim"],
        index_topk=facts["index_topk"],
        window=facts["sliding_window"],
    )


_MODULES = (("dsv4_csa_context_module_perf", "mla_dtype"), ("dsv4_hca_context_module_perf", "mla_dtype"))
DEEPSEEKV4 = Family(
    "DEEPSEEKV4",
    mixture,
    _extra,
    op_lists,
    kv_cache,
    mega_op_lists=mega_op_lists,
    context_parallel_backends=("sglang",),
    prefill_tables=dict.fromkeys(("trtllm", "vllm", "sglang"), _MODULES),
)
