# SPDX-License-Identifier: Apache-2.0
"""Cells of in-flight workers behind encode workers: which an in-flight batching search keeps, and their rows."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.constants import DisaggConstants
from aicjax.explore import columns
from aicjax.explore import frame as frames
from aicjax.explore.agg_points import AggPoints
from aicjax.explore.columns import DECIMALS
from aicjax.explore.encode_pool import EncodePool
from aicjax.explore.frame import Frame
from aicjax.explore.objective import Objective
from aicjax.explore.pareto import front_of_groups
from aicjax.explore.targets import Bounds
from aicjax.serving.encoder import Encoders

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CellLimits(NamedTuple):
    """What a cell may be.

    Attributes:
        sizes: GPU counts allowed, ascending.
        max_agg_workers, max_encode_workers: Most workers of a role.
    """

    sizes: tuple[int, ...]
    max_agg_workers: int
    max_encode_workers: int


class Cells(NamedTuple):
    """Kept cells; arrays [cell].

    Attributes:
        row: Position of the in-flight worker among the rows asked for.
        agg, encode: Workers of a cell.
    """

    row: Ints
    agg: Ints
    encode: Ints

    @classmethod
    def one(cls, agg: int, encode: int) -> "Cells":
        """One cell of the first row."""
        return cls(np.zeros(1, np.int64), np.array([agg]), np.array([encode]))

    @classmethod
    def joined(cls, parts: "Sequence[Cells]") -> "Cells":
        """The cells of all parts, row by row."""
        row, agg, encode = (
            np.concatenate([[], *column]).astype(np.int64) for column in zip(_NONE, *parts, strict=True)
        )
        order = np.argsort(row, kind="stable")
        return cls(row[order], agg[order], encode[order])


_NONE = Cells(*(np.zeros(0, np.int64) for _ in range(3)))


def behind_encoders(points: AggPoints, latency_ms: float) -> AggPoints:
    """Points of workers that wait for an encode worker: TTFT as a cell reports it."""
    return dataclasses.replace(
        points,
        ttft_ms=np.round(points.ttft_ms, DECIMALS) + latency_ms,
        request_latency_ms=points.request_latency_ms + latency_ms,
    )


def cells(seq_per_s: Floats, gpus: Ints, encoders: Encoders, limits: CellLimits, constants: DisaggConstants) -> Cells:
    """The cells of in-flight workers with encode workers of one choice that a budget of some size may want.

    Of each worker and GPU count, the counts with the highest rate, the smaller of both sides; of these, the ones that
    yield more than every smaller cell, and more than whole copies of a smaller one.

    Args:
        seq_per_s: Requests per second of one in-flight worker [row].
        gpus: Its GPUs [row].
        encoders: One encode worker.
        limits: Sizes of a cell.
        constants: Degradation of the encode side.
    """
    return Cells.joined(
        [
            _of_size(np.flatnonzero(gpus == size), seq_per_s, int(size), encoders, limits, constants)
            for size in np.unique(gpus)
        ]
    )


def _of_size(
    rows: Ints, seq_per_s: Floats, gpus: int, encoders: Encoders, limits: CellLimits, constants: DisaggConstants
) -> Cells:
    """Cells of the workers of one size, GPU count by GPU count."""
    agg = np.arange(1, limits.max_agg_workers + 1)
    kept_rate = np.zeros((len(limits.sizes), len(rows)))
    found: list[Cells] = []
    for position, size in enumerate(limits.sizes):
        encode, beyond = np.divmod(size - gpus * agg, encoders.gpus)
        allowed = (beyond == 0) & (encode >= 1) & (encode <= limits.max_encode_workers)
        if not allowed.any():
            continue
        counts = agg[allowed], encode[allowed]
        rate = np.minimum(seq_per_s[rows, None] * counts[0], encoders.rate(counts[1], constants))
        best = rate.argmax(axis=1)
        rate = rate[np.arange(len(rows)), best]
        copies = np.array([size // other if size % other == 0 else 0 for other in limits.sizes[:position]])
        smaller = kept_rate[:position]
        ruled_out = (rate <= smaller.max(axis=0, initial=0.0)) | (
            (smaller > 0) & (copies[:, None] > 0) & (rate <= copies[:, None] * smaller)
        ).any(axis=0)
        keeps = (rate > 0) & ~ruled_out
        kept_rate[position] = np.where(keeps, rate, 0.0)
        found.append(Cells(rows[keeps], counts[0][best[keeps]], counts[1][best[keeps]]))
    return Cells.joined(found)


def cell_frame(rows: Sequence[Frame], pool: EncodePool, limits: CellLimits, constants: DisaggConstants) -> Frame:
    """Rows of the cells of workers behind each choice, by tokens/s/GPU descending.

    Args:
        rows: Rows of the workers behind each choice, rounded; cells are not rounded again.
        pool: The choices.
        limits: Sizes of a cell.
        constants: Degradation of the encode side.
    """
    parts = []
    for choice, frame in enumerate(rows):
        encoders = pool.workers.take(choice)
        found = cells(frame["seq/s"], frame["num_total_gpus"], encoders, limits, constants)
        parts.append(cell_rows(frames.take(frame, found.row), found, choice, pool, constants))
    joined = frames.concatenate(parts)
    return frames.take(joined, np.argsort(-joined["tokens/s/gpu"], kind="stable"))


def front_cells(frame: Frame, bounds: Bounds, objectives: Sequence[Objective]) -> Frame:
    """Rows of the cells that are on the front of their layout in latency and some objective."""
    layout = np.unique(frame["parallel"], return_inverse=True)[1]
    latency_ms = frame["request_latency" if bounds.on_request else "tpot"]
    fronts = []
    for objective in objectives:
        rate = frame["seq/s" if objective.gpus is None else "tokens/s"]  # what picking reads; both are rounded
        score = objective.score(rate, frame["num_total_gpus"], frame["concurrency"])
        fronts.append(front_of_groups(layout, latency_ms, score, frame["ttft"]))
    return frames.take(frame, np.unique(np.concatenate(fronts)))


def cell_rows(frame: Frame, found: Cells, choice: int, pool: EncodePool, constants: DisaggConstants) -> Frame:
    """Rows of cells from the rows of their workers, not rounded again."""
    encoders = pool.workers.take(choice)
    whole = frame["seq/s"] * found.agg
    capacity = encoders.rate(found.encode, constants)
    capped = capacity < whole
    seq_per_s = np.where(capped, capacity, whole)
    tokens_per_s = frame["tokens/s"] * found.agg * np.where(capped, capacity / whole, 1.0)
    gpus = frame["num_total_gpus"] * found.agg + encoders.gpus * found.encode
    values = {
        **frame,
        **pool.columns(np.full(len(found.row), choice), found.encode),
        "(a)workers": found.agg,
        "concurrency": frame["concurrency"] * found.agg,
        "request_rate": seq_per_s,
        "ttft": frame["ttft"] + encoders.latency_ms,
        "request_latency": frame["request_latency"] + encoders.latency_ms,
        "seq/s": seq_per_s,
        "seq/s/gpu": seq_per_s / gpus,
        "tokens/s": tokens_per_s,
        "tokens/s/gpu": tokens_per_s / gpus,
        "num_total_gpus": gpus,
    }
    return frames.build(columns.AGG_CELL, values, len(found.row), decimals=None)
