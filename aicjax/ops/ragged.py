# SPDX-License-Identifier: Apache-2.0
"""Ragged tables over (heads, outer, inner): measured points grouped into slices by the columns that select them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicjax.interp.axis import PAD_KNOT
from aicjax.tables import first_rows

LEAF_BUCKET = 1024
KNOT_BUCKET = 16

Knots = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class RaggedTable:
    """Measured points, the first row of each.

    Attributes:
        keys: What selects each slice, in the order of the columns.
        slice_of: Slice of each point [point].
        heads, outer, inner: Coordinates of each point [point].
        latency_ms: Measured latency [point].
        repaired: Whether the time of a host was taken out of it [point].
    """

    keys: tuple[tuple[Any, ...], ...]
    slice_of: np.ndarray
    heads: np.ndarray
    outer: np.ndarray
    inner: np.ndarray
    latency_ms: np.ndarray
    repaired: np.ndarray

    def of(self, index: int) -> "RaggedTable":
        """One slice alone, its points in ascending (heads, outer, inner)."""
        mine = np.flatnonzero(self.slice_of == index)
        mine = mine[np.lexsort((self.inner[mine], self.outer[mine], self.heads[mine]))]
        columns = (self.heads, self.outer, self.inner, self.latency_ms, self.repaired)
        return RaggedTable((self.keys[index],), np.zeros_like(mine), *(column[mine] for column in columns))


def ragged_table(
    columns: Sequence[tuple[np.ndarray, Sequence[Any]]],
    heads: np.ndarray,
    outer: np.ndarray,
    inner: np.ndarray,
    latency_ms: np.ndarray,
    repaired: np.ndarray | None = None,
) -> RaggedTable:
    """A table from its rows; of rows that measured the same point the first counts.

    Args:
        columns: Columns that select a slice: codes [row] and the words they stand for.
        heads, outer, inner: Coordinates [row].
        latency_ms: Measured latency [row].
        repaired: Whether the time of a host was taken out of it [row]; of none when None.
    """
    codes = [codes for codes, _ in columns]
    keep = first_rows(*codes, heads, outer, inner)
    combined = np.zeros(keep.size, np.int64)
    for code, words in columns:
        combined = combined * len(words) + code[keep]
    _, first, slice_of = np.unique(combined, return_index=True, return_inverse=True)
    keys = tuple(tuple(words[int(code[row])] for code, words in columns) for row in keep[first])
    lowered = np.zeros(heads.shape, bool) if repaired is None else repaired
    points = heads[keep], outer[keep], inner[keep], latency_ms[keep].astype(np.float64), lowered[keep]
    return RaggedTable(keys, slice_of, *points)


def coded_numbers(column: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """A column of integers as codes and the numbers they stand for, ascending."""
    numbers, codes = np.unique(column, return_inverse=True)
    return codes, numbers.tolist()


def shared_knots(tables: Sequence[RaggedTable]) -> Knots:
    """Distinct outer and inner coordinates of all tables, ascending, padded to a bucket."""
    if not tables:
        return padded_knots(np.ones(1)), padded_knots(np.ones(1))
    outer, inner = ([getattr(table, axis) for table in tables] for axis in ("outer", "inner"))
    return padded_knots(np.unique(np.concatenate(outer))), padded_knots(np.unique(np.concatenate(inner)))


def padded_knots(knots: np.ndarray) -> np.ndarray:
    """Ascending knots padded to a bucket, so that tables of like size share one compiled kernel."""
    return np.pad(knots.astype(np.float64), (0, -knots.size % KNOT_BUCKET), constant_values=PAD_KNOT)


def padded_leaves(points: int) -> int:
    """Number of points rounded up to a bucket."""
    return -(-max(points, 1) // LEAF_BUCKET) * LEAF_BUCKET


def dense_grid(heads, outer, inner, latency_ms, knots: Knots) -> tuple[np.ndarray, np.ndarray]:
    """Points of one slice as a grid.

    Args:
        heads, outer, inner, latency_ms: Coordinates and latency of the points [point].
        knots: Shared outer and inner coordinates.

    Returns:
        Distinct heads, ascending, and latency [head, outer, inner] on `knots`, NaN where nothing was measured.
    """
    keys, at = np.unique(heads, return_inverse=True)
    dense = np.full((keys.size, *(axis.size for axis in knots)), np.nan)
    dense[at, np.searchsorted(knots[0], outer), np.searchsorted(knots[1], inner)] = latency_ms
    return keys, dense
