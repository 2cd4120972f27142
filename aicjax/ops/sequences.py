# SPDX-License-Identifier: Apache-2.0
"""All operators of one part of a pass that a batch of sequences drives, as distinct rows."""

from collections.abc import Hashable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float, Int

from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.grid import Question, answer
from aicjax.ops.database import Database
from aicjax.ops.kinds import SEQUENCE_KINDS, Kind
from aicjax.ops.records import SequenceOp
from aicjax.ops.roofline import Hardware, bound_times
from aicjax.ops.tokens import distinct

Points = tuple[Int[Array, " point"], Int[Array, " point"], Int[Array, " point"]]
Times = tuple[Float[Array, "row point"], Int[Array, "row point"]]


class SequenceRows(eqx.Module):
    """Distinct sequence-driven operators, kind after kind in the order of `SEQUENCE_KINDS`.

    Attributes:
        kinds: Bound rows of each kind; None for a kind that no operator is of.
        sizes: Rows of each kind, padding included. Static.
    """

    kinds: tuple[Any, ...]
    sizes: tuple[int, ...] = eqx.field(static=True)

    @property
    def count(self) -> int:
        """Rows of all kinds, padding included."""
        return sum(self.sizes)


def bind_sequences(database: Database, ops: Sequence[SequenceOp]) -> tuple[SequenceRows, dict[Hashable, int]]:
    """Rows for all distinct operators, and the row of each.

    Args:
        database: Which tables.
        ops: Operators, repeats allowed.
    """
    firsts: dict[Hashable, Any] = {distinct(op): op for op in ops}
    kinds, sizes, place = [], [], {}
    for kind in SEQUENCE_KINDS:
        group = [key for key, op in firsts.items() if isinstance(op, kind.records)]
        size = 1 << (len(group) - 1).bit_length() if group else 0
        kinds.append(kind.bind(database, [firsts[key] for key in group], rows=size) if group else None)
        place |= {key: sum(sizes) + at for at, key in enumerate(group)}
        sizes.append(size)
    return SequenceRows(tuple(kinds), tuple(sizes)), place


def ask_sequences(rows: SequenceRows, points: Points, hardware: Hardware, constants: OpConstants) -> list[Question]:
    """A question for each kind, over `points` (batch, length, prefix)."""
    return [
        kind.ask(bound, *points, hardware, constants)
        for kind, bound in zip(SEQUENCE_KINDS, rows.kinds, strict=True)
        if bound is not None
    ]


def sequence_rooflines(rows: SequenceRows, points: Points, hardware: Hardware, constants: OpConstants) -> list[Times]:
    """Rooflines of each kind, over `points` (batch, length, prefix), in the form of answers."""
    answers = []
    for kind, bound in zip(SEQUENCE_KINDS, rows.kinds, strict=True):
        if bound is not None:
            answers.append(_roofline(kind, bound, points, hardware, constants))
    return answers


def sequence_paces(
    rows: SequenceRows, points: Points, hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """Times that change with the hardware as the latencies do: rooflines, of measured kernels too [ms]."""
    kinds = [(kind, bound) for kind, bound in zip(SEQUENCE_KINDS, rows.kinds, strict=True) if bound is not None]
    none = jnp.zeros((0, points[0].shape[0]))
    return jnp.concatenate([none, *(kind.sol(bound, *points, hardware, constants) for kind, bound in kinds)])


def _roofline(kind: Kind, bound: Any, points: Points, hardware: Hardware, constants: OpConstants) -> Times:
    if kind.modeless:
        return answer([kind.ask(bound, *points, hardware, constants)])[0]
    return bound_times(kind.sol(bound, *points, hardware, constants))
