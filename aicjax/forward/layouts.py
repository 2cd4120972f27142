# SPDX-License-Identifier: Apache-2.0
"""Operator lists of layouts as rows: which part of a pass each operator belongs to, and how often its row runs."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aicjax._results import Provenance
from aicjax.forward.steps import Weights
from aicjax.interp.counts import config_bucket
from aicjax.ops.composites import chains
from aicjax.ops.database import Database
from aicjax.ops.kinds import SEQUENCE_RECORDS
from aicjax.ops.records import OpLists
from aicjax.ops.tokens import distinct

Runs = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Operator:
    """One operator of a layout.

    Attributes:
        name: Its name.
        sides: Rows that answer for it and how often each runs; several sides where chains overlap.
    """

    name: str
    sides: tuple[Runs, ...]

    @property
    def runs(self) -> Runs:
        """Rows of all sides."""
        return tuple(run for side in self.sides for run in side)

    def spent(self, latency_ms: np.ndarray, provenance: np.ndarray) -> tuple[float, int]:
        """Latency of the longest side and its worst provenance, from those of all rows; NaN where either is missing."""
        sides = [
            (
                float(sum(scale * latency_ms[row] for row, scale in side if scale > 0)),
                max([int(provenance[row]) for row, scale in side if scale > 0], default=int(Provenance.NONE)),
            )
            for side in self.sides
        ]
        return max(sides, key=lambda side: (np.isnan(side[0]), side[0]))


@dataclass
class Part:
    """Operators of one part of a pass of one layout, before their rows are known."""

    operators: list[tuple[str, tuple[tuple[Any, ...], ...]]] = field(default_factory=list)

    def _ops(self) -> Iterator[Any]:
        return (op for _, sides in self.operators for side in sides for op in side)

    @property
    def token_ops(self) -> list[Any]:
        """Operators that a token count drives."""
        return [op for op in self._ops() if not isinstance(op, SEQUENCE_RECORDS)]

    @property
    def sequence_ops(self) -> list[Any]:
        """Operators that a batch of sequences drives."""
        return [op for op in self._ops() if isinstance(op, SEQUENCE_RECORDS)]

    def placed(
        self, tokens: Mapping[Hashable, int], sequences: Mapping[Hashable, int], offset: int
    ) -> tuple[Operator, ...]:
        """The operators with their rows; those of sequences come after `offset` rows of tokens."""

        def row(op: Any) -> int:
            if isinstance(op, SEQUENCE_RECORDS):
                return offset + sequences[distinct(op)]
            return tokens[distinct(op)]

        return tuple(
            Operator(name, tuple(tuple((row(op), op.scale) for op in side) for side in sides))
            for name, sides in self.operators
        )


def part_operators(database: Database, lists: OpLists) -> list[Part]:
    """Operators of one layout by part, in the order of `StepTimes`.

    Attention is what is named so; what else sequences drive runs with the rest of a pass.
    """
    rest, attention, decode_rest, decode_attention, decode_other = (Part() for _ in range(5))
    for phase, listed, others in (
        ("context", lists.context, (rest, attention, rest)),
        ("generation", lists.generation, (decode_rest, decode_attention, decode_other)),
    ):
        for item in listed:
            named = 1 if item.name == f"{phase}_attention" else 2
            first, *more = chains(database, (item,))
            if more:  # what runs at the same time is timed at the same coordinates
                together = any(isinstance(op, SEQUENCE_RECORDS) for side in (first, *more) for op in side)
                others[2 if together else 0].operators.append((item.name, (first, *more)))
                continue
            for part, driven in ((others[0], False), (others[named], True)):
                if side := tuple(op for op in first if isinstance(op, SEQUENCE_RECORDS) == driven):
                    part.operators.append((item.name, (side,)))
    return [rest, attention, decode_rest, decode_attention, decode_other]


def part_weights(layouts: Sequence[tuple[Operator, ...]], rows: int) -> Weights:
    """How often each row runs in one part of each layout, the config axis padded."""
    configs = config_bucket(len(layouts))
    overlaps = max(sum(len(op.sides) > 1 for op in layout) for layout in layouts)
    width = max([len(op.sides) for layout in layouts for op in layout] + [2])
    runs, sides = np.zeros((configs, rows)), np.zeros((overlaps, width, configs, rows))
    for config, layout in enumerate(layouts):
        overlap = 0
        for op in layout:
            for at, side in enumerate(op.sides):
                for row, scale in side:
                    if len(op.sides) > 1:
                        sides[overlap, at, config, row] += scale
                    else:
                        runs[config, row] += scale
            overlap += len(op.sides) > 1
    return Weights(runs.astype(np.float32), sides.astype(np.float32))
