# SPDX-License-Identifier: Apache-2.0
"""Measured sparse attention modules: which points belong to a shape, and those points bound as a grid or as samples."""

import functools
from collections import namedtuple
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aicjax import quant
from aicjax._units import MS_PER_S
from aicjax.hardware import System
from aicjax.interp.axis import NO_KEY, PAD_KNOT, neighbour_keys
from aicjax.interp.grid import GridSlice, bind_slice, empty_slice
from aicjax.ops.roofline import Hardware, dtype_index
from aicjax.ops.sparse_rooflines import Limits
from aicjax.tables import first_rows

LEAF_BUCKET = 1024
KNOT_BUCKET = 16
AXES = {"context": 3, "generation": 2}  # prefix, new tokens and batch; batch and length

Knots = tuple[np.ndarray, ...]
PointSol = Callable[..., np.ndarray]  # roofline [ms] of (heads, *coordinates), on the host in float64


@dataclass(frozen=True)
class Points:
    """Measured points of one shape, ascending in their coordinates.

    Attributes:
        coordinates: Heads and the inner coordinates, outer to inner, an array each [point].
        latency_ms: Latency [point].
        repaired: Whether the time of a host was taken out of any.
    """

    coordinates: tuple[np.ndarray, ...]
    latency_ms: np.ndarray
    repaired: bool = False

    def select(self, mask: np.ndarray) -> "Points":
        """The points of a mask."""
        return Points(tuple(axis[mask] for axis in self.coordinates), self.latency_ms[mask], self.repaired)


@dataclass(frozen=True)
class ModuleTable:
    """One table of a module.

    Attributes:
        slices: The points of each shape by what selects it.
    """

    slices: Mapping[Hashable, Points]


def module_table(
    key: np.ndarray,
    name: Callable[[int], Hashable],
    coordinates: Sequence[np.ndarray],
    latency: np.ndarray,
    repaired: np.ndarray | None = None,
) -> dict:
    """Points by shape.

    Args:
        key: Shape of each point [point].
        name: What a shape is looked up by.
        coordinates: Coordinates, outer to inner [point] each; no point is repeated.
        latency: Latency [point].
        repaired: Whether the time of a host was taken out [point]; of none when None.
    """
    order = np.lexsort((*reversed(coordinates), key))
    key, latency = key[order], latency[order].astype(np.float64)
    lowered = np.zeros(key.size, bool) if repaired is None else repaired[order]
    columns = [axis[order].astype(np.float64) for axis in coordinates]
    shapes, first = np.unique(key, return_index=True)
    ends = [*first[1:], key.size]
    return {
        name(int(shape)): Points(
            tuple(axis[low:high] for axis in columns), latency[low:high], bool(lowered[low:high].any())
        )
        for shape, low, high in zip(shapes, first, ends, strict=True)
    }


def shared_knots(tables: Sequence[ModuleTable], axes: int) -> Knots:
    """Distinct inner coordinates of all tables, ascending, padded to a bucket."""
    parts = [points for table in tables for points in table.slices.values()]
    if not parts:
        return (padded_knots(np.ones(1)),) * axes
    return tuple(
        padded_knots(np.unique(np.concatenate([np.unique(points.coordinates[1 + axis]) for points in parts])))
        for axis in range(axes)
    )


def padded_knots(knots: np.ndarray) -> np.ndarray:
    """Ascending coordinates padded to a bucket."""
    return np.pad(knots.astype(np.float64), (0, -knots.size % KNOT_BUCKET), constant_values=PAD_KNOT)


def most_leaves(tables: Sequence[ModuleTable]) -> int:
    """Points of the largest shape, rounded up to a bucket."""
    largest = max((points.latency_ms.size for table in tables for points in table.slices.values()), default=1)
    return -(-largest // LEAF_BUCKET) * LEAF_BUCKET


def dense_values(
    knots: Sequence[np.ndarray], axes: Sequence[np.ndarray], values: np.ndarray, mask: np.ndarray
) -> np.ndarray:
    """Values on knots, NaN where no row is.

    Args:
        knots: Distinct coordinates of each axis.
        axes: Coordinates of each row, an array an axis [row].
        values: Value of each row; of rows of one point the first counts [row].
        mask: Rows that count [row].
    """
    rows = np.flatnonzero(mask)
    rows = rows[first_rows(*(axis[rows] for axis in axes))]
    dense = np.full([k.size for k in knots], np.nan)
    dense[tuple(np.searchsorted(k, axis[rows]) for k, axis in zip(knots, axes, strict=True))] = values[rows]
    return dense


def filled_values(values: np.ndarray, knots: np.ndarray, axis: int) -> np.ndarray:
    """Values filled along one axis: linear between measured ones, constant beyond; lines without any stay empty."""
    lines = np.moveaxis(values, axis, -1)
    lower, upper = neighbour_keys(np.isfinite(lines))
    lower, upper = lower[..., 1:], upper[..., :-1]  # nearest at or below, and at or above, each knot
    low, high = np.where(lower == NO_KEY, upper, lower), np.where(upper == NO_KEY, lower, upper)
    first, second = (np.take_along_axis(lines, np.maximum(at, 0), -1) for at in (low, high))
    span = np.where(high > low, knots[high] - knots[low], 1)
    weight = (knots - knots[low]) / span
    return np.moveaxis(np.where(high > low, first + (second - first) * weight, first), -1, axis)


def bind_points(points: Points | None, knots: Knots, head: float, sol: PointSol, leaves: int) -> GridSlice:
    """The grid of one shape, bound to a head count."""
    if points is None:
        return empty_slice(knots, leaves)
    heads, at = np.unique(points.coordinates[0], return_inverse=True)
    dense = np.full((heads.size, *(axis.size for axis in knots)), np.nan)
    sol_ms = dense.copy()
    where = (at, *(np.searchsorted(k, axis) for k, axis in zip(knots, points.coordinates[1:], strict=True)))
    dense[where], sol_ms[where] = points.latency_ms, sol(*points.coordinates)
    return bind_slice(heads, dense, knots, head, sol_ms, leaves)


def stacked(parts: Sequence[Any]) -> Any:
    """Bound parts of one kind with a leading row axis."""
    return jax.tree.map(lambda *leaf: np.stack(leaf), *parts)


def padded(records: Sequence[Any], rows: int) -> list[Any]:
    """Operators, the first one repeated to fill `rows`."""
    return [*records, *[records[0]] * (rows - len(records))]


def stacked_shapes(shapes: Sequence[Any]) -> Any:
    """Widths of operators as float32 arrays [row] under their own names."""
    kind = type(shapes[0])
    return _arrays_of(kind)(*(np.array([getattr(s, f.name) for s in shapes], np.float32) for f in fields(kind)))


@functools.cache
def _arrays_of(kind: Any) -> Any:
    """A tuple type with the fields of a dataclass, which a kernel can take."""
    return namedtuple(kind.__name__, [f.name for f in fields(kind)])


def on_rows(count: int, *coordinates) -> tuple[Any, ...]:
    """Points that all rows share [point], or that each has for itself [row, point], as float32 [row, point]."""
    return tuple(jnp.broadcast_to(x, (count, jnp.shape(x)[-1])).astype(jnp.float32) for x in coordinates)


def as_columns(values: Any) -> Any:
    """Arrays [row] as [row, 1]."""
    return jax.tree.map(lambda x: jnp.asarray(x)[:, None], values)


class FormatRows(NamedTuple):
    """Formats of operators: bytes per element, and the place of each data type in `Hardware.peak` [row]."""

    gemm_bytes: Any
    kv_bytes: Any
    fmha_bytes: Any
    gemm_dtype: Any
    fmha_dtype: Any

    def limits(self, hardware: Hardware) -> Limits:
        """What bounds each operator on some hardware [row]."""
        names = (self.gemm_dtype, self.fmha_dtype, dtype_index("bfloat16"), dtype_index("fp8"))
        gemm, fmha, bfloat16, fp8 = (jnp.broadcast_to(hardware.peak[n], self.gemm_bytes.shape) for n in names)
        bandwidth = jnp.broadcast_to(hardware.mem_bw, self.gemm_bytes.shape)
        return Limits(self.gemm_bytes, self.kv_bytes, self.fmha_bytes, gemm, fmha, bfloat16, fp8, bandwidth)


def format_rows(names: Sequence[tuple[str, str, str]]) -> FormatRows:
    """Formats from the `(gemm, kv, fmha)` names of each operator."""
    modes = [(quant.GEMM[gemm], quant.KVCACHE[kv], quant.FMHA[fmha]) for gemm, kv, fmha in names]
    gemm_bytes, kv_bytes, fmha_bytes = np.array([[mode.bytes for mode in row] for row in modes], np.float32).T
    gemm, fmha = np.array([[dtype_index(row[0].dtype), dtype_index(row[2].dtype)] for row in modes], np.int32).T
    return FormatRows(gemm_bytes, kv_bytes, fmha_bytes, gemm, fmha)


def host_limits(system: System, gemm: str, kv: str, fmha: str) -> Limits:
    """What bounds an operator, in float64.

    Raises:
        MissingPeak: The system states no peak for one of its formats.
    """
    dtypes = (quant.GEMM[gemm].dtype, quant.FMHA[fmha].dtype, "bfloat16", "fp8")
    gemm_peak, fmha_peak, bfloat16, fp8 = (system.peak(dtype) / MS_PER_S for dtype in dtypes)
    formats = (quant.GEMM[gemm].bytes, quant.KVCACHE[kv].bytes, quant.FMHA[fmha].bytes)
    return Limits(*formats, gemm_peak, fmha_peak, bfloat16, fp8, system.mem_bw_bytes_per_s / MS_PER_S)
