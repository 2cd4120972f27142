# SPDX-License-Identifier: Apache-2.0
"""Collects the coordinates at which several estimates need step times, so that one compiled call answers them all."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aicjax.forward.bound import COORDINATES, StepCurves, step_queries
from aicjax.forward.steps import StepQueries

_DENSE_SPAN = 1 << 22  # combinations up to which a table of all of them is quicker than sorting


class Places(NamedTuple):
    """Where the values of one request for step times lie.

    Attributes:
        part: Part of a step.
        start, stop: Range of its distinct coordinates on the curve.
        inverse: Position within that range of each coordinate asked for, in the shape asked for.
    """

    part: str
    start: int
    stop: int
    inverse: NDArray[np.int32]

    def curve(self, curves: StepCurves) -> NDArray[np.float32]:
        """Values at the distinct coordinates [config, distinct], ms."""
        return getattr(curves, f"{self.part}_ms")[:, self.start : self.stop]

    def values(self, curves: StepCurves) -> NDArray[np.float64]:
        """Values at the coordinates asked for [config, ...], ms."""
        return self.curve(curves)[:, self.inverse].astype(np.float64)


class Coordinates:
    """A growing list of distinct coordinates for each part of a step."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[NDArray[np.int64]]] = {part: [] for part in COORDINATES}
        self._sizes = dict.fromkeys(COORDINATES, 0)

    def context_rest(self, batch: ArrayLike, new_tokens: ArrayLike, prefix: ArrayLike) -> Places:
        """Prefill without attention of `batch` prompts with `new_tokens` after `prefix` cached ones."""
        return self._add("context_rest", batch, new_tokens, prefix)

    def context_attention(self, batch: ArrayLike, new_tokens: ArrayLike, prefix: ArrayLike) -> Places:
        """Prefill attention of `batch` prompts with `new_tokens` after `prefix` cached ones."""
        return self._add("context_attention", batch, new_tokens, prefix)

    def generation_rest(self, rows: ArrayLike) -> Places:
        """What a token count drives in a decode pass, over query rows."""
        return self._add("generation_rest", rows)

    def generation_attention(self, rows: ArrayLike, kv_len: ArrayLike) -> Places:
        """Decode attention of query rows at a cached length."""
        return self._add("generation_attention", rows, kv_len)

    def generation_other(self, rows: ArrayLike, kv_len: ArrayLike) -> Places:
        """The other operators of a decode pass that sequences drive, of query rows at a cached length."""
        return self._add("generation_other", rows, kv_len)

    def queries(self) -> StepQueries:
        """All coordinates, as `BoundModel.evaluate` takes them."""
        groups = {}
        for part, names in COORDINATES.items():
            if self._blocks[part]:
                groups |= dict(zip(names, np.concatenate(self._blocks[part], axis=1), strict=True))
        return step_queries(**groups)

    def _add(self, part: str, *columns: ArrayLike) -> Places:
        arrays = np.broadcast_arrays(*(np.asarray(column, np.int64) for column in columns))
        distinct, index = _distinct([array.ravel() for array in arrays])
        start = self._sizes[part]
        self._sizes[part] = stop = start + distinct.shape[1]
        self._blocks[part].append(distinct)
        return Places(part, start, stop, index.reshape(arrays[0].shape).astype(np.int32))


def _distinct(columns: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct tuples of the columns in ascending order [column, distinct], and which of them each row is [row]."""
    widths = [int(column.max()) + 1 if column.size else 1 for column in columns]
    key = columns[0]
    for column, width in zip(columns[1:], widths[1:], strict=True):
        key = key * width + column
    if (span := math.prod(widths)) <= _DENSE_SPAN:
        present = np.zeros(span, bool)
        present[key] = True
        distinct = np.flatnonzero(present)
        place = np.zeros(span, np.int64)
        place[distinct] = np.arange(distinct.size)
        index = place[key]
    else:
        distinct, index = np.unique(key, return_inverse=True)
    parts = []
    rest = distinct
    for width in reversed(widths[1:]):
        rest, part = np.divmod(rest, width)
        parts.append(part)
    return np.stack([rest, *reversed(parts)]), index
