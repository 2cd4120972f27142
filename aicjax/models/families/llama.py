# SPDX-License-Identifier: Apache-2.0
"""Dense decoders with grouped-query attention and a gated feed-forward: Llama, Qwen2, Qwen3, MiMo."""

from aicjax.models.families.base import Family, dense
from aicjax.models.families.blocks import DENSE_FFN, Phase, grouped_attention_block, kv_layer_bytes, phases
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import Op, OpLists


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step; drafts add `nextn` layers' share to every decode operator."""
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(context=_decoder(context), generation=_decoder(generation))


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values of every layer; heads are replicated where there are fewer than ranks."""
    return KvCache((KvTerm(kv_layer_bytes(model, parallel, quantisation) * model.layers),))


def _decoder(phase: Phase) -> tuple[Op, ...]:
    tp, every = phase.parallel.tp, phase.every
    return (
        phase.embedding(tp),
        *grouped_attention_block(phase),
        *phase.gated_ffn(DENSE_FFN, every, phase.model.intermediate_size, tp, low=True),
        phase.logits(),
        phase.all_reduce("embedding_ar", phase.once),
        phase.all_reduce("ar_1", every),
        phase.all_reduce("ar_2", every),
        phase.hand_over(),
    )


LLAMA = Family("LLAMA", dense, op_lists=op_lists, kv_cache=kv_cache, context_parallel_backends=("sglang",))
