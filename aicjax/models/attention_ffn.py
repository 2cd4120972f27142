# SPDX-License-Identifier: Apache-2.0
"""Attention and feed-forward operators of a model apart, for workers that run one of the two.

The names of operators say which side they are on, as in AIConfigurator 0.12.0: the first rule that fits decides.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from aicjax._results import UnsupportedModel
from aicjax.ops.kinds import SEQUENCE_RECORDS
from aicjax.ops.records import P2P, AllReduce, Gemm, Nccl, OpLists, Overlap

Side = Literal["attention", "ffn", "boundary", "internal"]

_INTERNAL = ("_p2p", "_ar", "all_reduce", "allreduce", "tp_all_gather", "tp_reduce_scatter", "dispatch")
_NOT_SPLIT = ("mamba", "gdn")
_BOUNDARY = ("logits_gemm", "reduce_add", "add_norm_2", "_ffn_norm", "_moe_norm", "_mlp_norm")
_ATTENTION = (
    *("embedding", "add_norm_1", "_attn_norm", "attention", "qkv", "q_a_layernorm", "q_b_proj", "kv_b_proj"),
    *("downscale_gemm", "mla", "bmm", "rope"),
)
_FFN_PROJECTIONS = ("down_proj", "up_proj", "gate_proj")
_FFN = (
    *("router", "moe", "ffn", "mlp", "shared", "expert", "_act", "act_gate", "gate_up", "up_gemm", "down_gemm"),
    *(*_FFN_PROJECTIONS, "relu"),
)


class Sides(NamedTuple):
    """Operators of the two kinds of workers."""

    attention: OpLists
    ffn: OpLists


def split_sides(lists: OpLists, *, boundary_on_attention: bool = True) -> Sides:
    """The operators of attention workers and those of feed-forward workers.

    Collectives within the model are on neither side: the workers exchange in their own way. A prefill runs the
    vocabulary projection on every token.

    Args:
        lists: Operators of a layout.
        boundary_on_attention: Whether norms between the two sides and the vocabulary projection run with attention.

    Feed-forward operators work on tokens alone.

    Raises:
        UnsupportedModel: An operator is on no side, overlaps with one of the other side, or is a feed-forward one that
            sees sequences.
    """
    context = [tuple(map(_on_every_token, side)) for side in _split(lists.context, boundary_on_attention)]
    generation = _split(lists.generation, boundary_on_attention)
    return Sides(*(OpLists(*phases) for phases in zip(context, generation, strict=True)))


def _split(ops: Sequence[Any], boundary_on_attention: bool) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    sides = [_side(op) for op in ops]
    boundary = "attention" if boundary_on_attention else "ffn"
    homes = [boundary if side == "boundary" else side for side in sides]
    attention, ffn = (
        tuple(op for op, home in zip(ops, homes, strict=True) if home == side) for side in ("attention", "ffn")
    )
    return attention, ffn


def _on_every_token(op: Any) -> Any:
    """The operator; the vocabulary projection under a name that does not limit it to last tokens."""
    if isinstance(op, Gemm) and op.last_token_only:
        return dataclasses.replace(op, name=op.name.replace("logits_gemm", "vocabulary_gemm"))
    return op


def _side(op: Any) -> Side:
    if isinstance(op, Overlap):
        inner: set[Side] = {_side(part) for part in (*op.first, *op.second)}
        inner.discard("internal")
        if len(inner) != 1:
            raise UnsupportedModel(
                f"Operators that overlap in {op.name} are on several sides: {sorted(inner) or 'none'}."
            )
        return inner.pop()
    name = op.name.lower()
    if isinstance(op, AllReduce | P2P | Nccl) or _has(name, _INTERNAL):
        return "internal"
    if not _has(name, _NOT_SPLIT):
        if _has(name, _BOUNDARY) or name.endswith("_combine"):
            return "boundary"
        projects = "proj_gemm" in name and not _has(name, tuple(f"{part}_gemm" for part in _FFN_PROJECTIONS))
        if _has(name, _ATTENTION) or projects:
            return "attention"
        if _has(name, _FFN) and not isinstance(op, SEQUENCE_RECORDS):
            return "ffn"
    raise UnsupportedModel(f"Operator {op.name} belongs neither to attention nor to feed-forward workers.")


def _has(name: str, marks: tuple[str, ...]) -> bool:
    return any(mark in name for mark in marks)
