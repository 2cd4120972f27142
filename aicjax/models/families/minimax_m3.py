# SPDX-License-Identifier: Apache-2.0
"""Block-sparse attention with an indexer, and experts: MiniMax-M3."""

from aicjax import quant
from aicjax.models.families.base import Family, mixture
from aicjax.models.families.blocks import Operators, Phase, kv_layer_bytes, phases
from aicjax.models.families.deepseek_v32 import SHAPES
from aicjax.models.families.experts import LOAD, beside_shared, dense_layers, layer_facts, routed_experts, shared_expert
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import DsaStandIn, MsaContext, MsaGeneration, MsaShape, OpLists

# Widths of the attention block that its config does not state.
_V_DIM, _INDEX_HEADS, _INDEX_DIM = 128, 4, 128
_BLOCK_SIZE, _BLOCKS_KEPT = 128, 16  # tokens of a block, blocks that the indexer keeps
_MEASURED = "MiniMaxM3ForCausalLM"  # its language model alone, under which the block was measured
_STAND_IN = "GlmMoeDsaForCausalLM"  # the sparse attention nearest in kind


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step: every layer has sparse attention."""
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(context=_decoder(context), generation=_decoder(generation))


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values of every layer."""
    return KvCache((KvTerm(kv_layer_bytes(model, parallel, quantisation) * model.layers),))


def _decoder(phase: Phase) -> Operators:
    every, norm = phase.every, 2 * phase.model.hidden_size
    experts = beside_shared(
        phase, routed_experts(phase, phase.with_experts, LOAD), shared_expert(phase, phase.parallel.tp)
    )
    return (
        phase.embedding(),
        phase.elementwise("add_norm_1", every, norm, norm),
        _attention(phase),
        phase.elementwise("add_norm_2", every, norm, norm),
        *dense_layers(phase),
        *experts,
        phase.logits(),
        phase.hand_over(),
    )


def _attention(phase: Phase) -> MsaContext | MsaGeneration:
    """The measured block, projections included."""
    model, tp, modes = phase.model, phase.parallel.tp, phase.quantisation
    kind = MsaContext if phase.prefill else MsaGeneration
    heads, kv_heads = max(1, model.num_heads // tp), max(1, model.num_kv_heads // tp)
    held = 0 if model.compat.attention_blocks_without_weights else _weights(model, heads, kv_heads)
    return kind(
        name=f"{phase.name}_attention",
        scale=phase.every,
        num_heads=heads,
        kv_quant=modes.kvcache,
        fmha_quant=modes.fmha,
        gemm_quant=modes.gemm,
        architecture=_MEASURED,
        shape=MsaShape(
            num_kv_heads=kv_heads,
            hidden_size=model.hidden_size,
            head_dim=model.head_dim,
            v_dim=_V_DIM,
            index_heads=_INDEX_HEADS,
            index_dim=_INDEX_DIM,
            index_topk=_BLOCKS_KEPT * _BLOCK_SIZE,
            block_size=_BLOCK_SIZE,
        ),
        stand_in=DsaStandIn(_STAND_IN, SHAPES[_STAND_IN]),
        weight_bytes=held * quant.GEMM[modes.gemm].bytes * phase.every,
    )


def _weights(model: ModelConfig, heads: int, kv_heads: int) -> int:
    """Weights of one attention layer on one GPU: projections, and the indexer's, which every GPU holds."""
    width = heads * (model.head_dim + _V_DIM) + kv_heads * (model.head_dim + _V_DIM)
    return model.hidden_size * (width + (_INDEX_HEADS + 1) * _INDEX_DIM)


MINIMAXM3 = Family("MINIMAXM3", mixture, layer_facts, op_lists=op_lists, kv_cache=kv_cache)
