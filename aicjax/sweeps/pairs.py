# SPDX-License-Identifier: Apache-2.0
"""Which prefill and decode workers form replicas, with which worker counts, and how such points are numbered."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax._results import NoFeasible
from aicjax.explore.roles import Worker

Ints = NDArray[np.int64]
NONE = -1  # kind of two layouts that form no replica


class Counts(NamedTuple):
    """Worker counts of a replica, by its GPUs, then decode workers ascending; arrays [count].

    Attributes:
        prefill, decode: Number of workers.
    """

    prefill: Ints
    decode: Ints


class Place(NamedTuple):
    """Where points lie; arrays [point].

    Attributes:
        prefill_layout, prefill_batch, decode_layout, decode_batch: Positions of the layouts, and of the batches.
        choice: Position among the worker counts of the two layouts.
    """

    prefill_layout: Ints
    prefill_batch: Ints
    decode_layout: Ints
    decode_batch: Ints
    choice: Ints


@dataclass(frozen=True)
class PairSpace:
    """The replicas that the layouts of an engine form.

    Attributes:
        counts: Worker counts of each kind of replica.
        kind: Kind of replica of two layouts, or `NONE` [prefill layout, decode layout].
    """

    counts: tuple[Counts, ...]
    kind: Ints

    @functools.cached_property
    def sizes(self) -> Ints:
        """Number of worker counts of each kind, and last that of `NONE`."""
        return np.array([*(len(counts.prefill) for counts in self.counts), 0])

    @property
    def choices(self) -> Ints:
        """Number of worker counts of two layouts [prefill layout, decode layout]."""
        return self.sizes[self.kind]

    def workers(self, prefill_layout: Ints, decode_layout: Ints, choice: Ints) -> Counts:
        """The worker counts at some positions among those of two layouts."""
        starts = np.cumsum(self.sizes) - self.sizes
        at = starts[self.kind[prefill_layout, decode_layout]] + choice
        prefill, decode = (np.concatenate(side)[at] for side in zip(*self.counts, strict=True))
        return Counts(prefill, decode)


@dataclass(frozen=True)
class PairNumbers:
    """Numbers of the points of a block of batches, from 0 on, without gaps.

    Decode layout, decode batch, prefill layout, prefill batch and worker counts, the last the fastest.

    Attributes:
        space: The replicas.
        prefill_batches, decode_batches: Number of batches of each side.
    """

    space: PairSpace
    prefill_batches: int
    decode_batches: int

    @property
    def points(self) -> int:
        """Number of points."""
        return int(self._starts[-1])

    def of(self, prefill_layout: Ints, prefill_batch: Ints, decode_layout: Ints, decode_batch: Ints) -> Ints:
        """Number of the first worker counts of pairs of workers; arguments broadcast."""
        inner = self._inner
        decode = self._starts[decode_layout] + decode_batch * inner[-1, decode_layout]
        prefill = prefill_batch * self.space.choices[prefill_layout, decode_layout]
        return decode + inner[prefill_layout, decode_layout] + prefill

    def place(self, number: Ints) -> Place:
        """Where the points with some numbers lie."""
        inner, starts = self._inner, self._starts
        decode_layout = np.searchsorted(starts, number, side="right") - 1
        decode_batch, rest = np.divmod(number - starts[decode_layout], inner[-1, decode_layout])
        prefill_layout = (inner[:, decode_layout] <= rest).sum(axis=0) - 1
        rest = rest - inner[prefill_layout, decode_layout]
        prefill_batch, choice = np.divmod(rest, self.space.choices[prefill_layout, decode_layout])
        return Place(prefill_layout, prefill_batch, decode_layout, decode_batch, choice)

    @functools.cached_property
    def _inner(self) -> Ints:
        """Points of one decode worker before those of each prefill layout, and all [prefill layout, decode layout]."""
        points = self.prefill_batches * self.space.choices
        return np.concatenate([np.zeros((1, points.shape[1]), np.int64), np.cumsum(points, axis=0)])

    @functools.cached_property
    def _starts(self) -> Ints:
        """Points before those of each decode layout, and all."""
        return np.concatenate([[0], np.cumsum(self.decode_batches * self._inner[-1])])


def pair_space(
    prefill: Worker, decode: Worker, *, max_prefill_workers: int, max_decode_workers: int, max_gpus: int
) -> PairSpace:
    """The replicas of prefill and decode workers of one engine.

    Engines that hand KV caches only to workers of the same tensor parallel size, or whose experts span many GPUs, pair
    just those.

    Raises:
        NoFeasible: No two layouts fit the GPUs together.
    """
    prefill_gpus, decode_gpus = (np.array([layout.gpus for layout in side.layouts]) for side in (prefill, decode))
    sizes: list[tuple[int, int]] = []
    kind = np.full((len(prefill_gpus), len(decode_gpus)), NONE)
    pairs = _hand_over(prefill, decode) & (prefill_gpus[:, None] + decode_gpus <= max_gpus)
    for at in zip(*np.nonzero(pairs), strict=True):
        size = int(prefill_gpus[at[0]]), int(decode_gpus[at[1]])
        if size not in sizes:
            sizes.append(size)
        kind[at] = sizes.index(size)
    if not sizes:
        raise NoFeasible(f"no prefill and decode worker of the listed layouts fit {max_gpus} GPUs together")
    counts = [_counts(size, (max_prefill_workers, max_decode_workers), max_gpus) for size in sizes]
    return PairSpace(tuple(counts), kind)


def _hand_over(prefill: Worker, decode: Worker) -> NDArray[np.bool_]:
    """Which layouts may hand over and take caches [prefill layout, decode layout]."""
    if not prefill.deployment.rules.same_tp_handover:
        return np.ones((len(prefill.layouts), len(decode.layouts)), bool)
    tp, spread = (
        [np.array([get(layout, side) for layout in side.layouts]) for side in (prefill, decode)]
        for get in (lambda layout, side: layout.tp, lambda layout, side: layout.label in side.libraries)
    )
    return (tp[0][:, None] == tp[1]) | spread[0][:, None] | spread[1]


def _counts(gpus: tuple[int, int], most: tuple[int, int], max_gpus: int) -> Counts:
    """Worker counts of workers with so many GPUs each, prefill and decode."""
    prefill, decode = np.indices(most).reshape(2, -1) + 1
    total = prefill * gpus[0] + decode * gpus[1]
    order = np.lexsort((decode, total))
    order = order[total[order] <= max_gpus]
    return Counts(prefill[order], decode[order])
