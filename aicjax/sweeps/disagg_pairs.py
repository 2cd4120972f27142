# SPDX-License-Identifier: Apache-2.0
"""All pairs of the workers of a case in tiles, through the kernel and back."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from aicjax._types import Device
from aicjax.constants import DisaggConstants
from aicjax.interp.counts import config_bucket, point_bucket
from aicjax.sweeps.disagg_kernel import DECODE_ROWS, PREFILL_ROWS, Choices, Matched, Tiles, matcher
from aicjax.sweeps.disagg_points import CasePairs
from aicjax.sweeps.disagg_prepare import Sides
from aicjax.sweeps.pairs import PairSpace

TILES_PER_DEVICE = 64
AT_ONCE = {"cpu": 1}
AT_ONCE_ON_ACCELERATORS = TILES_PER_DEVICE

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Stack(NamedTuple):
    """Decode workers that pair with the same prefill workers, and what their pairs yield.

    Workers are named by layout * batches + batch.

    Attributes:
        prefill: Prefill workers, some repeated to fill a tile [row].
        repeated: Whether a row is such a repetition [row].
        decode: Decode workers, ascending [column].
        rates: Rate per GPU of the best worker counts of each pair [block, row, lane]; lanes of blocks are columns.
        choice: Position of those among the worker counts of the pair.
        best: Highest rate per GPU over the prefill workers within each limit on TTFT; -inf where there is none
            [limit, column].
    """

    prefill: Ints
    repeated: Mask
    decode: Ints
    rates: NDArray[np.float32]
    choice: NDArray[np.int32]
    best: NDArray[np.float32]

    def pairs(self, columns: Ints) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """`rates` and `choice` of all prefill workers with some decode workers [row, column]."""
        block, lane = np.divmod(columns, DECODE_ROWS)
        at = block[None], np.arange(len(self.prefill))[:, None], lane[None]
        return self.rates[at], self.choice[at]


class Matcher:
    """Matches the workers of cases on some devices."""

    def __init__(self, devices: Sequence[Device]):
        self._run = matcher(tuple(devices), AT_ONCE.get(devices[0].platform, AT_ONCE_ON_ACCELERATORS))
        self._step = TILES_PER_DEVICE * len(devices)

    def stacks(self, pairs: CasePairs, in_time: Mask) -> list[Stack]:
        """All pairs of usable workers of a case.

        Args:
            pairs: The case.
            in_time: Prefill workers that meet each limit on TTFT [limit, worker].
        """
        sides, space = pairs.sides, pairs.numbers.space
        batches = [side.seq_per_s.shape[1] for side in sides]
        rates = [np.asarray(side.seq_per_s.ravel(), np.float32) for side in sides]
        gpus = [np.array([layout.gpus for layout in worker.layouts], np.float32) for worker in pairs.workers]
        stacks, parts = [], []
        for prefill, decode in _stacked(sides, space):
            rows, columns = prefill.reshape(-1, PREFILL_ROWS), _filled(decode, DECODE_ROWS).reshape(-1, DECODE_ROWS)
            row, column = (at.ravel() for at in np.indices((len(columns), len(rows)))[::-1])
            layouts = rows[row, 0] // batches[0], columns[column, 0] // batches[1]
            kind = space.kind[layouts]
            parts.append(
                Tiles(
                    prefill_seq_per_s=rates[0][rows[row]],
                    decode_seq_per_s=rates[1][columns[column]],
                    prefill_gpus=gpus[0][layouts[0]],
                    decode_gpus=gpus[1][layouts[1]],
                    kind=kind.astype(np.int32),
                    counts=space.sizes[kind].astype(np.int32),
                    in_time=in_time[:, rows[row]].swapaxes(0, 1),
                )
            )
            stacks.append((prefill, decode))
        if not parts:
            return []
        tiles = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        found = self._matched(tiles, choices_of(space), pairs.constants)
        ends = np.cumsum([len(part.kind) for part in parts]).tolist()
        return [
            _stack(prefill, decode, jax.tree.map(lambda leaf: leaf[end - len(part.kind) : end], found))  # noqa: B023
            for (prefill, decode), part, end in zip(stacks, parts, ends, strict=True)
        ]

    def _matched(self, tiles: Tiles, choices: Choices, constants: DisaggConstants) -> Matched:
        """What the kernel makes of the tiles, numpy."""
        count, constants = len(tiles.kind), jax.tree.map(np.float32, constants)
        found = []
        for start in range(0, count, self._step):
            at = np.arange(start, start + self._step)
            part = jax.tree.map(lambda leaf: leaf[np.minimum(at, count - 1)], tiles)  # noqa: B023
            found.append(self._run(part._replace(counts=np.where(at < count, part.counts, 0)), choices, constants))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *jax.device_get(found))


def choices_of(space: PairSpace) -> Choices:
    """The worker counts of each kind of replica as the kernel takes them."""
    longest = point_bucket(max(len(counts.prefill) for counts in space.counts))
    kinds = config_bucket(len(space.counts))

    def table(side: Sequence[Ints]) -> NDArray[np.float32]:
        rows = [np.pad(workers, (0, longest - len(workers)), mode="edge") for workers in side]
        return np.pad(np.stack(rows), ((0, kinds - len(rows)), (0, 0)), mode="edge").astype(np.float32)

    prefill, decode = (table(side) for side in zip(*space.counts, strict=True))
    return Choices(prefill, decode)


def _stacked(sides: Sides, space: PairSpace) -> list[tuple[Ints, Ints]]:
    """Prefill workers, in whole tiles of layouts that pair alike, and the decode workers that pair with all of them."""
    prefill, decode = (
        _alike(side.usable, kinds) for side, kinds in zip(sides, (space.kind, space.kind.T), strict=True)
    )
    stacks: list[tuple[Ints, Ints]] = []
    for layout, columns in decode:
        rows = [_filled(rows, PREFILL_ROWS) for own, rows in prefill if space.kind[own, layout] >= 0]
        if rows:
            stacks.append((np.concatenate(rows), columns))
    return stacks


def _alike(usable: Mask, kinds: Ints) -> list[tuple[int, Ints]]:
    """Usable workers by layouts that pair alike: one of the layouts, and the workers."""
    _, layout, pairing = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    classes = []
    for own, first in enumerate(layout.tolist()):
        workers = np.flatnonzero(usable & (pairing.ravel() == own)[:, None])
        if len(workers):
            classes.append((first, workers))
    return classes


def _filled(workers: Ints, size: int) -> Ints:
    """The workers in whole tiles, the last repeated."""
    return np.pad(workers, (0, -len(workers) % size), mode="edge")


def _stack(prefill: Ints, decode: Ints, found: Matched) -> Stack:
    tile_rows = len(prefill) // PREFILL_ROWS
    blocks = len(found.choice) // tile_rows
    best = np.asarray(found.best).reshape(blocks, tile_rows, -1, DECODE_ROWS).max(axis=1)
    shape = blocks, len(prefill), DECODE_ROWS
    return Stack(
        prefill=prefill,
        repeated=np.concatenate([[False], prefill[1:] == prefill[:-1]]),
        decode=decode,
        rates=np.asarray(found.seq_per_s_per_gpu).reshape(shape),
        choice=np.asarray(found.choice).reshape(shape),
        best=best.swapaxes(0, 1).reshape(best.shape[1], -1)[:, : len(decode)],
    )
