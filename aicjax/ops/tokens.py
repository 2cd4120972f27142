# SPDX-License-Identifier: Apache-2.0
"""All operators that a token count alone drives, as distinct rows evaluated on distinct counts."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.counts import ceil_div, floor_div
from aicjax.ops.database import Database
from aicjax.ops.kinds import TOKEN_KINDS, Kind
from aicjax.ops.records import Gemm, Op, TokenOp
from aicjax.ops.roofline import Hardware, bound_times

ROW_BUCKET = 8


class TokenRows(eqx.Module):
    """Distinct token-driven operators, kind after kind in the order of `TOKEN_KINDS`.

    Attributes:
        last_only: Whether a count is that of the last tokens of requests [transform].
        divisor: Floor divisor of the count [transform].
        split: Ceil divisor of the count, after `divisor` [transform].
        kinds: Bound rows of each kind; None for a kind that no operator is of.
        reads: Which transform each row reads, one array a kind.
    """

    last_only: Bool[Array, " transform"]
    divisor: Int[Array, " transform"]
    split: Int[Array, " transform"]
    kinds: tuple[Any, ...]
    reads: tuple[Int[Array, " row"], ...]

    @property
    def count(self) -> int:
        """Rows of all kinds, padding included."""
        return sum(reads.shape[0] for reads in self.reads)


def distinct(op: Op) -> Hashable:
    """What makes two operators one row: everything but name and scale."""
    return type(op), _shape(type(op))(op), isinstance(op, Gemm) and op.last_token_only


@functools.cache
def _shape(kind: type[Op]) -> Callable[[Op], Hashable]:
    """What tells operators of a kind apart, but for name and scale."""
    compared = (field.name for field in dataclasses.fields(kind) if field.compare)
    return operator.attrgetter(*(name for name in compared if name not in ("name", "scale")))


def bind_tokens(database: Database, ops: Sequence[TokenOp]) -> tuple[TokenRows, dict[Hashable, int]]:
    """Rows for all distinct operators, and the row of each.

    Args:
        database: Which tables.
        ops: Operators, repeats allowed.
    """
    firsts: dict[Hashable, Any] = {distinct(op): op for op in reversed(ops)}
    keys = list(dict.fromkeys(distinct(op) for op in ops))
    transform: dict[tuple[bool, int, int], int] = {}
    place: dict[Hashable, int] = {}
    kinds, reads, offset = [], [], 0
    for kind in TOKEN_KINDS:
        group = [key for key in keys if isinstance(firsts[key], kind.records)]
        size = -(-len(group) // ROW_BUCKET) * ROW_BUCKET
        used = [transform.setdefault(_transform(firsts[key]), len(transform)) for key in group]
        kinds.append(kind.bind(database, [firsts[key] for key in group], rows=size) if group else None)
        reads.append(np.array(used + [0] * (size - len(group)), np.int32))
        place |= {key: offset + at for at, key in enumerate(group)}
        offset += size
    listed = [*transform, *[(False, 1, 1)] * (-len(transform) % 2)]
    rows = TokenRows(
        last_only=np.array([t[0] for t in listed], bool),
        divisor=np.array([t[1] for t in listed], np.int32),
        split=np.array([t[2] for t in listed], np.int32),
        kinds=tuple(kinds),
        reads=tuple(reads),
    )
    return rows, place


def _transform(op: Any) -> tuple[bool, int, int]:
    last_only = isinstance(op, Gemm) and op.last_token_only
    return last_only, getattr(op, "token_divisor", 1), getattr(op, "seq_split", 1)


def token_times(
    rows: TokenRows,
    tokens: Int[Array, " point"],
    last_tokens: Int[Array, " point"],
    hardware: Hardware,
    constants: OpConstants,
    *,
    roofline: bool = False,
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of every row at every token count and how it was obtained.

    Args:
        rows: Bound operators.
        tokens: Tokens of a step.
        last_tokens: Tokens that the vocabulary projection sees.
        hardware: Peaks and bandwidths.
        constants: Operator constants.
        roofline: Whether rooflines answer instead of tables. Static.
    """
    counts, parts = _counts(rows, tokens, last_tokens), []
    for kind, bound, reads in _bound_kinds(rows):
        if roofline:
            parts.append(bound_times(kind.token_sol(bound, reads, counts, hardware, constants)))
        else:
            parts.append(kind.latency(bound, reads, counts, hardware, constants))
    return jnp.concatenate([p[0] for p in parts]), jnp.concatenate([p[1] for p in parts])


def token_paces(
    rows: TokenRows,
    tokens: Int[Array, " point"],
    last_tokens: Int[Array, " point"],
    hardware: Hardware,
    constants: OpConstants,
    *,
    roofline: bool = False,
) -> Float[Array, "row point"]:
    """Times that change with the hardware as the latencies of `token_times` do, whose arguments these are [ms].

    The roofline of an operator; where its latency is a formula in the hardware, that formula. NaN where neither is
    known.
    """
    counts = _counts(rows, tokens, last_tokens)
    paces = [
        (kind.token_sol if roofline else kind.token_pace)(bound, reads, counts, hardware, constants)
        for kind, bound, reads in _bound_kinds(rows)
    ]
    return jnp.concatenate(paces)


def _bound_kinds(rows: TokenRows) -> list[tuple[Kind, Any, Int[Array, " row"]]]:
    """The kinds that there are, their bound rows, and which transform each row reads."""
    kinds = zip(TOKEN_KINDS, rows.kinds, rows.reads, strict=True)
    return [(kind, bound, reads) for kind, bound, reads in kinds if bound is not None]


def _counts(rows: TokenRows, tokens, last_tokens) -> Float[Array, "transform point"]:
    """Distinct token counts that rows read."""
    count = floor_div(jnp.where(rows.last_only[:, None], last_tokens, tokens), rows.divisor[:, None])
    return ceil_div(count, rows.split[:, None]).astype(jnp.float32)
