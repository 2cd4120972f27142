# SPDX-License-Identifier: Apache-2.0
"""Compressed sparse attention (DSv4), whole blocks of prefill and decode.

Light layers compress four tokens to one and select among them; heavy ones compress many and see all. Heads are not
interpolated: the nearest measured count stands in, while rooflines use the operator's own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.axis import interval
from aicjax.interp.counts import ceil_div, pick
from aicjax.interp.grid import GridSlice, Question, ask
from aicjax.ops.attention_tables import decode_fmha
from aicjax.ops.database import Database
from aicjax.ops.dsv4_parallel import Dsv4Parallel, bind_dsv4_parallel, dsv4_parallel_ms
from aicjax.ops.dsv4_records import LIGHT_RATIO
from aicjax.ops.dsv4_tables import Dsv4Key, find_dsv4, load_dsv4, load_selection
from aicjax.ops.module_estimates import Estimates, bind_modules, module_estimate
from aicjax.ops.module_tables import (
    AXES,
    FormatRows,
    PointSol,
    as_columns,
    format_rows,
    host_limits,
    on_rows,
    padded,
    stacked_shapes,
)
from aicjax.ops.records import Dsv4Context, Dsv4Generation
from aicjax.ops.roofline import Hardware
from aicjax.ops.sparse_rooflines import dsv4_context_sol_ms, dsv4_generation_sol_ms

Record = Dsv4Context | Dsv4Generation


class Module(NamedTuple):
    """What the roofline knows of an operator; output groups and heads are those on a GPU."""

    shape: Any
    ratio: Any
    groups: Any
    heads: Any
    limits: Any


class SelectionRows(eqx.Module):
    """What the indexer's selection costs less than as measured.

    Attributes:
        knots: Cached tokens, new tokens, batch.
        excess_ms: Time to take off [row, step, length, batch].
    """

    knots: tuple[Float[Array, " knot"], ...]
    excess_ms: Float[Array, "row step length batch"]


class Dsv4Rows(eqx.Module):
    """Distinct DSv4 operators of one phase.

    Attributes:
        slices: Bound slices.
        knots: Coordinates that the slices share.
        estimates: Samples of each slice; None where tables interpolate.
        selection: Correction of the indexer's selection; None where nothing is corrected.
        measured_heads: Heads that the points were measured with [row].
        heads, ratio, groups: Heads and output groups on a GPU, tokens compressed to one [row].
        cp: Context-parallel ranks that share a prompt [row].
        parallel: What sharing prompts adds; None where no operator does.
        shape: Widths, arrays [row].
        formats: Formats [row].
    """

    slices: GridSlice
    knots: tuple[Float[Array, " knot"], ...]
    estimates: Estimates | None
    selection: SelectionRows | None
    measured_heads: Float[Array, " row"]
    heads: Float[Array, " row"]
    ratio: Float[Array, " row"]
    groups: Float[Array, " row"]
    cp: Int[Array, " row"]
    parallel: Dsv4Parallel | None
    shape: Any
    formats: FormatRows


def dsv4_key(record: Record) -> Dsv4Key:
    """What selects an operator's measured points; decode tables do not key on the attention format."""
    fmha = record.fmha_quant if isinstance(record, Dsv4Context) else ""
    return Dsv4Key(fmha, record.kv_quant, record.gemm_quant, record.native_heads, record.num_heads)


def dsv4_available(database: Database, record: Record) -> bool:
    """Whether tables hold an operator's formats."""
    phase = "context" if isinstance(record, Dsv4Context) else "generation"
    return find_dsv4(load_dsv4(*database.where, record.ratio, phase), dsv4_key(record))[0] is not None


def bind_dsv4_context(database: Database, records: Sequence[Dsv4Context], *, rows: int) -> Dsv4Rows:
    """Rows for prefill operators, padded to `rows`.

    Raises:
        MissingPeak: The system states no peak for a format.
    """
    return _bind(database, "context", padded(records, rows))


def bind_dsv4_generation(database: Database, records: Sequence[Dsv4Generation], *, rows: int) -> Dsv4Rows:
    """Rows for decode operators, padded to `rows`; raises as `bind_dsv4_context`."""
    return _bind(database, "generation", padded(records, rows))


def _bind(database: Database, phase: str, records: Sequence[Any]) -> Dsv4Rows:
    ratios = {record.ratio for record in records} if database.measured else ()
    tables = {ratio: load_dsv4(*database.where, ratio, phase) for ratio in ratios}
    found = [find_dsv4(tables.get(record.ratio), dsv4_key(record)) for record in records]
    ranks = [getattr(r, "cp", 1) for r in records]
    formats = [(r.gemm_quant, r.kv_quant, _fmha(database, r)) for r in records]
    shapes = [
        (points, heads, _point_sol(database, record, names))
        for record, (points, heads), names in zip(records, found, formats, strict=True)
    ]
    slices, knots, estimates = bind_modules(
        database, [t for t in tables.values() if t is not None], shapes, AXES[phase], spare=False
    )
    return Dsv4Rows(
        slices=slices,
        knots=knots,
        estimates=estimates,
        selection=_bind_selection(database, phase, records) if database.interpolates else None,
        measured_heads=np.array([heads for _, heads in found], np.float32),
        heads=np.array([r.num_heads for r in records], np.float32),
        ratio=np.array([r.ratio for r in records], np.float32),
        groups=np.array([max(r.o_groups, 1) for r in records], np.float32),
        cp=np.array(ranks, np.int32),
        parallel=bind_dsv4_parallel(database, records) if database.measured and max(ranks) > 1 else None,
        shape=stacked_shapes([r.shape for r in records]),
        formats=format_rows(formats),
    )


def _fmha(database: Database, record: Any) -> str:
    """Format in which an operator multiplies: decode kernels choose it by the cache's."""
    return record.fmha_quant if isinstance(record, Dsv4Context) else decode_fmha(database.system, record.kv_quant)


def _point_sol(database: Database, record: Any, formats: tuple[str, str, str]) -> PointSol:
    """Roofline of measured points with the operator's own heads."""
    shape = (record.shape, record.ratio, max(record.o_groups, 1), host_limits(database.system, *formats))
    if isinstance(record, Dsv4Generation):
        return lambda _, batch, length: dsv4_generation_sol_ms(*shape, record.num_heads, batch, length, xp=np)
    return lambda _, prefix, new, batch: dsv4_context_sol_ms(*shape, record.num_heads, batch, new, prefix, xp=np)


def _bind_selection(database: Database, phase: str, records: Sequence[Record]) -> SelectionRows | None:
    selection = load_selection(*database.where, phase)
    if selection is None or not any(_selects(selection, record) for record in records):
        return None
    none = np.zeros([axis.size for axis in selection.knots])
    excess = [selection.excess_ms[r.native_heads] if _selects(selection, r) else none for r in records]
    knots = tuple(axis.astype(np.float32) for axis in selection.knots)
    return SelectionRows(knots, np.stack(excess).astype(np.float32))


def _selects(selection, record: Record) -> bool:
    return record.ratio == LIGHT_RATIO and record.native_heads in selection.excess_ms


def ask_dsv4_context(
    rows: Dsv4Rows,
    batch: Int[Array, "*row point"],
    new: Int[Array, "*row point"],
    prefix: Int[Array, "*row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> Question:
    """Latency of a prefill of `batch` prompts of `new` tokens behind a cached `prefix`, as a question."""
    own = jnp.maximum(1, ceil_div(new, rows.cp[:, None]))
    points = on_rows(rows.heads.shape[0], prefix, own, batch)

    def sol(module: Module, heads, prefix, new, batch):
        return _context_sol(module, batch, new, prefix)

    def added(parallel):
        whole = jnp.broadcast_to(new, own.shape)
        return dsv4_parallel_ms(parallel, points[2], whole, own, points[0], hardware, constants)

    return _ask(rows, points, points, sol, hardware, added)


def ask_dsv4_generation(
    rows: Dsv4Rows,
    batch: Int[Array, "*row point"],
    length: Int[Array, "*row point"],
    prefix: Int[Array, "*row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> Question:
    """Latency of a decode step of `batch` sequences of `length` tokens, the new one included, as a question."""
    batch, length = on_rows(rows.heads.shape[0], batch, length)

    def sol(module: Module, heads, batch, length):
        return _generation_sol(module, batch, length)

    selected = (jnp.maximum(length - 1, 0), jnp.ones_like(length), batch)
    return _ask(rows, (batch, length), selected, sol, hardware)


def _ask(rows: Dsv4Rows, points, selected, sol, hardware: Hardware, added=None) -> Question:
    """The question of all slices.

    `selected` are cached tokens, new tokens and batch as the indexer sees them; `added` is what context parallelism
    adds.
    """
    question = ask(rows.slices, rows.knots, rows.measured_heads, points, sol, _module(rows, hardware))

    def finish(latency, code):
        if rows.estimates is not None:
            latency, code = module_estimate(rows.estimates, question.roof, (rows.measured_heads, *points))
        if rows.selection is not None:
            excess = jax.vmap(_clamped, (None, 0, 0))(rows.selection.knots, rows.selection.excess_ms, selected)
            latency, code = _changed(latency, code, -excess, excess > 0)
        if rows.parallel is not None and added is not None:
            latency, code = _changed(latency, code, added(rows.parallel), rows.cp[:, None] > 1)
        return latency, code

    return question._replace(finish=finish)


def _changed(latency, code, by, where):
    """A latency changed by measured differences where they apply; never below zero."""
    changed = jnp.maximum(latency + by, 0.0)
    known = jnp.where(jnp.isnan(changed), Provenance.MISSING, jnp.maximum(code, Provenance.ESTIMATED))
    return jnp.where(where, changed, latency), jnp.where(where, known, code)


def _clamped(knots, values: Float[Array, "*knot"], point, index: tuple = ()) -> Float[Array, " point"]:
    """Values of a full grid, linear on each axis and constant beyond it; `index` are the knots chosen so far."""
    if len(index) == len(knots):
        return pick(values, *index)
    axis, coordinate = knots[len(index)], point[len(index)]
    low = jnp.clip(interval(axis, coordinate) - 1, 0, axis.shape[0] - 2)
    start = pick(axis, low)
    weight = jnp.clip((coordinate - start) / (pick(axis, low + 1) - start), 0.0, 1.0)
    first, second = (_clamped(knots, values, point, (*index, at)) for at in (low, low + 1))
    return first + (second - first) * weight


def _module(rows: Dsv4Rows, hardware: Hardware) -> Module:
    return Module(rows.shape, rows.ratio, rows.groups, rows.heads, rows.formats.limits(hardware))


def _context_sol(module: Module, batch, new, prefix):
    shape, ratio, groups, heads, limits = module
    return dsv4_context_sol_ms(shape, ratio, groups, limits, heads, batch, new, prefix)


def _generation_sol(module: Module, batch, length):
    shape, ratio, groups, heads, limits = module
    return dsv4_generation_sol_ms(shape, ratio, groups, limits, heads, batch, length)


def dsv4_context_sol(rows: Dsv4Rows, batch, new, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of a prefill [row, point]."""
    new = jnp.maximum(1, ceil_div(new, rows.cp[:, None]))
    batch, new, prefix = (jnp.asarray(x, jnp.float32) for x in (batch, new, prefix))
    return _context_sol(as_columns(_module(rows, hardware)), batch, new, prefix)


def dsv4_generation_sol(rows: Dsv4Rows, batch, length, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of a decode step [row, point]."""
    batch, length = (jnp.asarray(x, jnp.float32) for x in (batch, length))
    return _generation_sol(as_columns(_module(rows, hardware)), batch, length)
