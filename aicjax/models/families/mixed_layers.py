# SPDX-License-Identifier: Apache-2.0
"""Decoders whose layers pair window or global attention with a dense or an expert feed-forward."""

from dataclasses import dataclass

from aicjax import quant
from aicjax.models.families.blocks import Operators, Phase
from aicjax.models.families.experts import LOAD, routed_experts
from aicjax.models.kvcache import UNBOUNDED, KvCache, KvTerm
from aicjax.ops.records import Nccl

_DENSE = ("dense_gate_up_gemm", "dense_act", "dense_down_gemm")
_GLOBAL, _WINDOW = "global", "swa"  # kinds of attention, as in names of operators
_ORDER = ((_GLOBAL, 1), (_WINDOW, 1), (_WINDOW, 0), (_GLOBAL, 0))  # kind and whether with experts, as listed


@dataclass(frozen=True)
class AttentionKind:
    """Attention of one kind of layer, heads on one GPU.

    Attributes:
        heads: Query heads.
        kv_heads: Key and value heads.
        query_width: Values of the queries of all heads.
        output_width: Values of the result of all heads.
        head_dim, v_dim: Sizes of a head of queries and keys, and of values.
        window: Tokens it sees; 0 for all.
    """

    heads: int
    kv_heads: int
    query_width: int
    output_width: int
    head_dim: int
    v_dim: int
    window: int = 0

    @property
    def kv_width(self) -> int:
        """Values of one token's keys and values."""
        return self.kv_heads * (self.head_dim + self.v_dim)

    @classmethod
    def of(cls, phase: Phase, tag: str) -> "AttentionKind":
        """The kind of a model; a size the config does not state for window layers is the common one."""
        model, tp, facts = phase.model, phase.parallel.tp, phase.model.extra
        heads, kv_heads, head_dim, window = model.num_heads, model.num_kv_heads, model.head_dim, 0
        if tag == _WINDOW:
            heads = facts.get("window_heads") or heads
            kv_heads = facts.get("window_kv_heads") or kv_heads
            head_dim, window = facts.get("window_head_dim") or head_dim, facts["window"]
        v_dim = facts.get(f"{'window' if tag == _WINDOW else 'global'}_v_head_dim") or model.head_dim
        widths = heads * head_dim // tp, heads * v_dim // tp
        return cls(heads // tp, -(-kv_heads // tp), *widths, head_dim, v_dim, window)


def decoder(phase: Phase, *, qk_norm: bool = False) -> Operators:
    """The list of a phase: one block for every pair of attention and feed-forward that occurs."""
    facts, kinds = phase.model.extra, {tag: AttentionKind.of(phase, tag) for tag in (_GLOBAL, _WINDOW)}
    layers = list(zip(facts["global_attention"], facts["expert_layers"], strict=True))
    blocks: Operators = ()
    for tag, with_experts in _ORDER:
        if count := layers.count((int(tag == _GLOBAL), with_experts)):
            scale = count * phase.once
            attention = _attention(phase, scale, kinds[tag], tag if with_experts else f"{tag}_dense", qk_norm=qk_norm)
            blocks += *attention, *(_expert_ffn if with_experts else _dense_ffn)(phase, scale, tag)
    gathers = (op for tag in (_GLOBAL, _WINDOW) for op in _kv_gather(phase, kinds[tag], tag))
    return phase.embedding(), *blocks, phase.logits(), phase.hand_over(), *gathers, *_shared_expert(phase)


def window_kv_cache(phase: Phase) -> KvCache:
    """Cache of layers of both kinds, each as wide as its heads, up to the window where there is one."""
    return KvCache(
        tuple(
            KvTerm(_kv_bytes(phase, AttentionKind.of(phase, tag)) * _layers(phase, tag), window or UNBOUNDED)
            for tag, window in ((_WINDOW, phase.model.extra["window"]), (_GLOBAL, 0))
        )
    )


def _shared_expert(phase: Phase) -> Operators:
    """The shared expert of all expert layers, listed last."""
    facts = phase.model.extra
    scale, size = facts["expert_layers"].count(1) * phase.once, facts.get("shared_expert_size", 0)
    return _gated_ffn(phase, scale, size // phase.parallel.tp, "shared_expert") if size else ()


def _gated_ffn(phase: Phase, scale: float, size: int, tag: str) -> Operators:
    """A gated feed-forward of so many values on one GPU."""
    gate_up, act, down = (f"{tag}_{name}" for name in _DENSE)
    return phase.gated_ffn((gate_up, act, down), scale, size, low=True)


def _attention(phase: Phase, scale: float, kind: AttentionKind, tag: str, *, qk_norm: bool) -> Operators:
    hidden, norm = phase.model.hidden_size, 2 * phase.model.hidden_size
    shape = (scale, kind.heads, kind.kv_heads, kind.head_dim)
    gate: Operators = ()
    if phase.model.extra.get("attention_gate"):  # one value a head
        gate = (
            phase.gemm(f"{tag}_attn_gate_gemm", scale, kind.heads, hidden),
            phase.elementwise(f"{tag}_attn_gate", scale, kind.output_width + kind.heads, kind.output_width),
        )
    return (
        phase.elementwise(f"{tag}_attn_norm", scale, norm, norm),
        phase.gemm(f"{tag}_qkv_gemm", scale, kind.query_width + kind.kv_width, hidden),
        phase.attention(*shape, window=kind.window, qk_norm=qk_norm, cp=phase.parallel.cp),
        *gate,
        phase.gemm(f"{tag}_proj_gemm", scale, hidden, kind.output_width, low=True),
    )


def _expert_ffn(phase: Phase, scale: float, tag: str) -> Operators:
    norm, cp = 2 * phase.model.hidden_size, phase.parallel.cp
    as_prefill = phase.prefill or cp == 1
    return (
        phase.elementwise(f"{tag}_moe_norm", scale, norm, norm),
        *routed_experts(phase, scale, LOAD, quant="bfloat16", cp=cp, context=as_prefill, tag=f"{tag}_"),
    )


def _dense_ffn(phase: Phase, scale: float, tag: str) -> Operators:
    model, norm = phase.model, 2 * phase.model.hidden_size
    size = (model.extra.get("dense_size") or model.intermediate_size) // phase.parallel.tp
    return phase.elementwise(f"{tag}_dense_ffn_norm", scale, norm, norm), *_gated_ffn(phase, scale, size, tag)


def _kv_gather(phase: Phase, kind: AttentionKind, tag: str) -> tuple[Nccl, ...]:
    count = _layers(phase, tag)
    return phase.kv_gather(count, _kv_bytes(phase, kind), f"cp_all_gather_{tag}") if count else ()


def _layers(phase: Phase, tag: str) -> int:
    return phase.model.extra["global_attention"].count(int(tag == _GLOBAL))


def _kv_bytes(phase: Phase, kind: AttentionKind) -> float:
    """Cached bytes of one token in one layer."""
    return kind.kv_width * quant.KVCACHE[phase.quantisation.kvcache].bytes
