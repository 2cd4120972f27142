# SPDX-License-Identifier: Apache-2.0
"""Decoders whose layers were searched one by one: some without attention, some without feed-forward."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aicjax import quant
from aicjax._results import InputError
from aicjax.models.families.base import Family, dense
from aicjax.models.families.blocks import DENSE_FFN, Operators, Phase, kv_layer_bytes, phases
from aicjax.models.kvcache import KvCache, KvTerm
from aicjax.models.model import ConfigFields, ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists

_DEFAULT_FFN_MULT = 3.5
_FFN_MULTIPLE = 256  # the feed-forward's width is rounded up to it
_HEAD_DIM = 128  # of the attention kernels, whatever the config says


@dataclass(frozen=True)
class Block:
    """A run of equal layers.

    Attributes:
        heads_per_kv_head: Query heads that share one KV head; None without attention.
        no_attention: Whether the layers have no attention.
        ffn_mult: Width of the feed-forward relative to the hidden size, before rounding.
        no_ffn: Whether the layers have no feed-forward.
        count: Layers in the run.
    """

    heads_per_kv_head: int | None
    no_attention: bool
    ffn_mult: float
    no_ffn: bool
    count: int


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    shapes = (_shape(block) for block in fields.first("block_configs", default=()))
    return {"blocks": tuple(Block(*shape, len(list(run))) for shape, run in itertools.groupby(shapes))}


def _shape(block: Mapping[str, Any]) -> tuple[int | None, bool, float, bool]:
    attention, ffn = block.get("attention", {}), block.get("ffn", {})
    return (
        attention.get("n_heads_in_group"),
        attention.get("no_op", False),
        ffn.get("ffn_mult", _DEFAULT_FFN_MULT),
        ffn.get("no_op", False),
    )


def op_lists(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> OpLists:
    """Operators of a prefill and of a decode step, run by run; none where the config lists no blocks."""
    if nextn:
        raise InputError("nextn", nextn, f"0 for {model.name}")
    if not model.extra["blocks"]:
        return OpLists((), ())
    context, generation = phases(model, parallel, quantisation, backend, nextn)
    return OpLists(context=_decoder(context), generation=_decoder(generation))


def kv_cache(model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int) -> KvCache:
    """Keys and values of the layers with attention, by the KV heads of each."""
    if model.compat.searched_layers_without_kv:
        return KvCache((KvTerm(kv_layer_bytes(model, parallel, quantisation) * model.layers),))
    heads = sum(block.count * _kv_heads(model, parallel, block) for block in model.extra["blocks"])
    return KvCache((KvTerm(2 * heads * model.head_dim * quant.KVCACHE[quantisation.kvcache].bytes),))


def _kv_heads(model: ModelConfig, parallel: Parallel, block: Block) -> int:
    """Key and value heads of a layer on one GPU; none without attention."""
    if block.no_attention or block.heads_per_kv_head is None:
        return 0
    return -(-(model.num_heads // block.heads_per_kv_head) // parallel.tp)


def _decoder(phase: Phase) -> Operators:
    runs = (op for block in phase.model.extra["blocks"] for op in (*_attention(phase, block), *_ffn(phase, block)))
    return phase.embedding(), *runs, phase.hand_over(), phase.logits()


def _attention(phase: Phase, block: Block) -> Operators:
    model, tp, hidden, count = phase.model, phase.parallel.tp, phase.model.hidden_size, block.count
    if not (kv_heads := _kv_heads(model, phase.parallel, block)):
        return ()
    width = model.num_heads * model.head_dim // tp
    return (
        phase.elementwise("add_norm_1", count, 2 * hidden, 2 * hidden),
        phase.gemm("qkv_gemm", count, width + 2 * model.head_dim * kv_heads, hidden),
        phase.attention(count, model.num_heads // tp, kv_heads, _HEAD_DIM),
        phase.gemm("proj_gemm", count, hidden, width),
        phase.all_reduce("ar_1", count),
    )


def _ffn(phase: Phase, block: Block) -> Operators:
    if block.no_ffn:
        return ()
    hidden, count = phase.model.hidden_size, block.count
    size = -(-int(2 * block.ffn_mult * hidden / 3) // _FFN_MULTIPLE) * _FFN_MULTIPLE
    return (
        phase.elementwise("add_norm_2", count, 2 * hidden, 2 * hidden),
        *phase.gated_ffn(DENSE_FFN, count, size, phase.parallel.tp),
        phase.all_reduce("ar_2", count),
    )


NEMOTRONNAS = Family("NEMOTRONNAS", dense, _extra, op_lists, kv_cache)
