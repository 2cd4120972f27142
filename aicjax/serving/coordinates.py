# SPDX-License-Identifier: Apache-2.0
"""Collects the coordinates at which several estimates need step times, so that one compiled call answers them all."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aicjax.forward.bound import COORDINATES, StepCurves, step_queries
from aicjax.forward.steps import StepQueries

_DENSE_SPAN = 1 << 22  # counts up to which a table of all of them is quicker than sorting


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
        tuples, index = distinct([np.asarray(column, np.int64) for column in columns])
        start = self._sizes[part]
        self._sizes[part] = stop = start + tuples.shape[1]
        self._blocks[part].append(tuples)
        return Places(part, start, stop, index.astype(np.int32))


def distinct(columns: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct tuples of the columns in ascending order [column, distinct], and where each is found [...].

    The shape is that to which the columns broadcast; values that repeat along it are looked at once.
    """
    parts = [_unique(column) for column in columns]
    key = parts[0][1]
    for values, index in parts[1:]:
        key = key * values.size + index
    rest, index = _unique(key)
    picked = []
    for values, _ in reversed(parts):
        rest, at = np.divmod(rest, values.size)
        picked.append(values[at])
    return np.stack(picked[::-1]), index


def _unique(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct counts, ascending, and which of them each is; by a table of all counts where sorting is slower."""
    span = int(counts.max(initial=-1)) + 1
    if span > _DENSE_SPAN:
        values, index = np.unique(counts, return_inverse=True)
        return values, index.reshape(counts.shape)
    present = np.zeros(span, bool)
    present[counts] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[counts]
