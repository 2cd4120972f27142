# SPDX-License-Identifier: Apache-2.0
"""Latent attention on its measured grids: bound rows, and the questions that prefill and decode ask of them."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.interp.estimate import Samples, bind_samples, estimated_utilization, no_samples
from aicjax.interp.grid import GridSlice, Question, ask, bind_slice, empty_slice
from aicjax.ops.database import Database
from aicjax.ops.mla_tables import GridRecord, find_slice
from aicjax.ops.ragged import dense_grid, padded_leaves, shared_knots
from aicjax.ops.repaired import with_repairs
from aicjax.ops.zigzag import chunks

Roof = Callable[..., Float[Array, "row point"]]
HostRoof = Callable[..., np.ndarray]


class MlaGrid(eqx.Module):
    """Measured points behind distinct operators of one phase.

    Attributes:
        slices: Bound slices, every field with a leading row axis; of no points where estimates answer.
        outer_knots, inner_knots: Coordinates that the slices share.
        samples: Points that estimates rest on, with a leading row axis; None where grids answer. A grid answers
            whatever its points can estimate, so the two never mix.
        heads: Heads of each operator [row].
        cp: Context-parallel ranks that share a prompt [row].
        repaired: Whether the time of a host was taken out of the points [row].
    """

    slices: GridSlice
    outer_knots: Float[Array, " outer"]
    inner_knots: Float[Array, " inner"]
    samples: Samples | None
    heads: Float[Array, " row"]
    cp: Int[Array, " row"]
    repaired: Bool[Array, " row"]


def bind_grid(database: Database, records: Sequence[GridRecord], roof: HostRoof, *, rows: int) -> MlaGrid:
    """Grid rows for `records` of one phase, padded to `rows`.

    Args:
        database: Which tables.
        records: Distinct operators, of one table or of several.
        roof: Roofline of measured points, `(record, heads, outer, inner)` in float64 on the host.
        rows: Padded number of rows.
    """
    found = [find_slice(database, record) if database.measured else None for record in records]
    points = [None if at is None else at[0].of(at[1]) for at in found]
    used = [slice_ for slice_ in points if slice_ is not None]
    knots = shared_knots(used if database.interpolates else [])
    leaves = padded_leaves(max((slice_.latency_ms.size for slice_ in used), default=1))
    none, unknown = empty_slice(knots, leaves if database.interpolates else 1), no_samples(3, leaves)
    slices, samples = [none] * rows, [unknown] * rows
    for row, (record, own) in enumerate(zip(records, points, strict=True)):
        if own is not None and database.interpolates:
            heads, dense = dense_grid(own.heads, own.outer, own.inner, own.latency_ms, knots)
            at = (heads[:, None, None], knots[0][:, None], knots[1])
            sol = np.broadcast_to(roof(record, *at), dense.shape)
            slices[row] = bind_slice(heads, dense, knots, record.num_heads, sol, leaves)
        elif own is not None:
            at = tuple(x.astype(np.float64) for x in (own.heads, own.outer, own.inner))
            with np.errstate(divide="ignore"):
                samples[row] = bind_samples(at, roof(record, *at) / own.latency_ms, leaves)
    pad = (0, rows - len(records))
    return MlaGrid(
        slices=jax.tree.map(lambda *leaf: np.stack(leaf), *slices),
        outer_knots=knots[0].astype(np.float32),
        inner_knots=knots[1].astype(np.float32),
        samples=None if database.interpolates else jax.tree.map(lambda *leaf: np.stack(leaf), *samples),
        heads=np.pad([float(r.num_heads) for r in records], pad, constant_values=1).astype(np.float32),
        cp=np.pad([getattr(r, "cp", 1) for r in records], pad, constant_values=1).astype(np.int32),
        repaired=np.pad([own is not None and bool(own.repaired.any()) for own in points], pad),
    )


def ask_prefill(grid: MlaGrid, roof: Roof, shape: tuple[Any, ...], batch, new, prefix, hardware) -> Question:
    """Latency of `new` tokens behind a cached `prefix`, as a question.

    A grid is asked for the whole length, and a prefix takes its share of the causal triangle off; an estimate knows
    the prefix by its roofline.

    Args:
        grid: Measured points.
        roof: Roofline, `(heads, batch, full, prefix, *shape, hardware)`.
        shape: What it knows of each operator, arrays [row].
        batch, new, prefix: Coordinates, int32 [point] or [row, point].
        hardware: Peaks and bandwidths.
    """
    batch, new, prefix = _on_rows(grid, batch, new, prefix)
    parts = chunks(new, prefix, grid.cp)
    batch, full = parts.both(batch.astype(jnp.float32)), parts.full

    def point_roof(shape, heads, length, batch):
        return roof(heads, batch, length, 0.0, *shape, hardware)

    def finish(latency, code):
        whole = latency if grid.samples is not None else latency * parts.uncached()
        return parts.total(whole), with_repairs(parts.worst(code), grid.repaired[:, None])

    if grid.samples is not None:
        sol = roof(grid.heads[:, None], batch, full, parts.cached, *_columns(shape), hardware)
        return _estimate(grid, grid.samples, (full, batch), sol, finish)
    knots = (grid.outer_knots, grid.inner_knots)
    return ask(grid.slices, knots, grid.heads, (full, batch), point_roof, shape, finish, sqrt_axis=0)


def ask_decode(grid: MlaGrid, roof: Roof, shape: tuple[Any, ...], batch, length, hardware) -> Question:
    """Latency of a decode step, as a question; arguments as `ask_prefill`, `roof` of `(heads, batch, length, ...)`."""
    batch, length = (x.astype(jnp.float32) for x in _on_rows(grid, batch, length))

    def point_roof(shape, heads, batch, length):
        return roof(heads, batch, length, *shape, hardware)

    def finish(latency, code):
        return latency, with_repairs(code, grid.repaired[:, None])

    if grid.samples is not None:
        sol = roof(grid.heads[:, None], batch, length, *_columns(shape), hardware)
        return _estimate(grid, grid.samples, (batch, length), sol, finish)
    knots = (grid.outer_knots, grid.inner_knots)
    return ask(grid.slices, knots, grid.heads, (batch, length), point_roof, shape, finish)


def prefill_sol(grid: MlaGrid, roof: Roof, shape: tuple[Any, ...], batch, new, prefix, hardware):
    """Roofline of what `ask_prefill` asks for [row, point]."""
    batch, new, prefix = _on_rows(grid, batch, new, prefix)
    parts = chunks(new, prefix, grid.cp)
    batch = parts.both(batch.astype(jnp.float32))
    return parts.total(roof(grid.heads[:, None], batch, parts.full, parts.cached, *_columns(shape), hardware))


def decode_sol(grid: MlaGrid, roof: Roof, shape: tuple[Any, ...], batch, length, hardware):
    """Roofline of what `ask_decode` asks for [row, point]."""
    batch, length = (x.astype(jnp.float32) for x in _on_rows(grid, batch, length))
    return roof(grid.heads[:, None], batch, length, *_columns(shape), hardware)


def _estimate(grid: MlaGrid, samples: Samples, coordinates, roof, finish) -> Question:
    """A question that is answered: the roofline over the utilisation of the nearest measured points."""
    heads = jnp.broadcast_to(grid.heads[:, None], roof.shape)
    value = roof / estimated_utilization(samples, (heads, *coordinates))
    code = jnp.where(jnp.isnan(value), Provenance.MISSING, Provenance.EMPIRICAL).astype(jnp.int32)
    return Question(grid.slices, coordinates, value, code, jnp.ones(value.shape, bool), roof, finish)


def _columns(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value[:, None] for value in values)


def _on_rows(grid: MlaGrid, *points):
    """Points that all rows share [point], or that each has for itself [row, point], as [row, point]."""
    return tuple(jnp.broadcast_to(point, (grid.heads.shape[0], point.shape[-1])) for point in points)
