# SPDX-License-Identifier: Apache-2.0
"""Sparse latent attention with an indexer (DSA), whole blocks of prefill and decode.

Layers may reuse the selection of another layer: an operator is then the mean of layers with and without indexer.
Measured shapes answer every query, so that estimates are bound only where tables do not interpolate.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.counts import ceil_div
from aicjax.interp.estimate import Samples
from aicjax.interp.grid import GridSlice, Question, ask
from aicjax.ops.database import Database
from aicjax.ops.dsa_parallel import DsaParallel, bind_dsa_parallel, dsa_parallel_ms
from aicjax.ops.dsa_tables import FLASHMLA, TRTLLM, DsaKey, find_dsa, has_skips, load_dsa
from aicjax.ops.module_estimates import PrefixSamples, bind_modules, module_estimate
from aicjax.ops.module_tables import (
    AXES,
    FormatRows,
    ModuleTable,
    PointSol,
    as_columns,
    format_rows,
    host_limits,
    on_rows,
    padded,
    stacked_shapes,
)
from aicjax.ops.records import DsaContext, DsaGeneration
from aicjax.ops.repaired import with_repairs
from aicjax.ops.roofline import Hardware
from aicjax.ops.sparse_rooflines import dsa_context_sol_ms, dsa_generation_sol_ms

DECODE_FMHA = "bfloat16"  # format in which decode tables and their rooflines multiply

Record = DsaContext | DsaGeneration


class DsaRows(eqx.Module):
    """Distinct DSA operators of one phase. A part is all of them with an indexer, or all without.

    Attributes:
        slices: Bound slices of the first part, then of the second where an operator has both.
        knots: Coordinates that the slices share.
        estimates: Samples of each slice; None where tables interpolate.
        skips: 1 for a slice without indexer [part * row].
        repaired: Whether the time of a host was taken out of a slice [part * row].
        heads: Heads on a GPU [row].
        share: Share of layers with an indexer, as far as both kinds were measured [row].
        roofline_share: Share of layers with an indexer [row].
        cp: Context-parallel ranks that share a prompt [row].
        parallel: What sharing prompts adds; None where no operator does.
        shape: Widths, arrays [row].
        formats: Formats [row].
    """

    slices: GridSlice
    knots: tuple[Float[Array, " knot"], ...]
    estimates: PrefixSamples | Samples | None
    skips: Float[Array, " slice"]
    repaired: Bool[Array, " slice"]
    heads: Float[Array, " row"]
    share: Float[Array, " row"]
    roofline_share: Float[Array, " row"]
    cp: Int[Array, " row"]
    parallel: DsaParallel | None
    shape: Any
    formats: FormatRows


def dsa_key(record: Record, skips: bool = False) -> DsaKey:
    """What selects an operator's measured points."""
    fmha = record.fmha_quant if isinstance(record, DsaContext) else DECODE_FMHA
    lane = FLASHMLA if getattr(record, "cp", 1) > 1 else TRTLLM
    return DsaKey(skips, record.architecture, fmha, record.kv_quant, record.gemm_quant, lane)


def load_dsa_phase(database: Database, phase: str) -> ModuleTable | None:
    """The table of a phase."""
    return load_dsa(*database.where, "dsa", phase, keys_fmha=True, repaired=database.repaired)


def dsa_available(database: Database, record: Record) -> bool:
    """Whether tables hold an operator's shape."""
    phase = "context" if isinstance(record, DsaContext) else "generation"
    return find_dsa(load_dsa_phase(database, phase), dsa_key(record)) is not None


def bind_dsa_context(database: Database, records: Sequence[DsaContext], *, rows: int) -> DsaRows:
    """Rows for prefill operators, padded to `rows`.

    Raises:
        MissingPeak: The system states no peak for a format.
    """
    return _bind(database, "context", padded(records, rows))


def bind_dsa_generation(database: Database, records: Sequence[DsaGeneration], *, rows: int) -> DsaRows:
    """Rows for decode operators, padded to `rows`; raises as `bind_dsa_context`."""
    return _bind(database, "generation", padded(records, rows))


def _bind(database: Database, phase: str, records: Sequence[Any]) -> DsaRows:
    table = load_dsa_phase(database, phase) if database.measured else None
    share = np.array([r.full_fraction for r in records], np.float32)
    measured_share = share if has_skips(table) else np.ones_like(share)
    parts = (False, True) if (measured_share < 1).any() else (False,)
    shapes = [
        (find_dsa(table, dsa_key(record, skips)), record.num_heads, point_sol(database, record, skips))
        for skips in parts
        for record in records
    ]
    slices, knots, estimates = bind_modules(database, [] if table is None else [table], shapes, AXES[phase])
    ranks = [getattr(r, "cp", 1) for r in records]
    formats = [(r.gemm_quant, r.kv_quant, r.fmha_quant if phase == "context" else DECODE_FMHA) for r in records]
    return DsaRows(
        slices=slices,
        knots=knots,
        estimates=estimates,
        skips=np.repeat(np.array(parts, np.float32), len(records)),
        repaired=np.array([points is not None and points.repaired for points, *_ in shapes]),
        heads=np.array([r.num_heads for r in records], np.float32),
        share=measured_share,
        roofline_share=share,
        cp=np.array(ranks, np.int32),
        parallel=bind_dsa_parallel(database, records) if database.measured and max(ranks) > 1 else None,
        shape=stacked_shapes([r.shape for r in records]),
        formats=format_rows(formats),
    )


def point_sol(database: Database, record: Any, skips: bool = False) -> PointSol:
    """Roofline of an operator's measured points, of (heads, *coordinates)."""
    if isinstance(record, DsaGeneration):
        limits = host_limits(database.system, record.gemm_quant, record.kv_quant, DECODE_FMHA)
        return lambda heads, batch, length: dsa_generation_sol_ms(record.shape, limits, heads, batch, length, xp=np)
    limits = host_limits(database.system, record.gemm_quant, record.kv_quant, record.fmha_quant)
    return lambda heads, prefix, new, batch: dsa_context_sol_ms(
        record.shape, limits, heads, float(skips), batch, new, prefix, xp=np
    )


def ask_dsa_context(
    rows: DsaRows,
    batch: Int[Array, "*row point"],
    new: Int[Array, "*row point"],
    prefix: Int[Array, "*row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> Question:
    """Latency of a prefill of `batch` prompts of `new` tokens behind a cached `prefix`, as a question."""
    own = jnp.maximum(1, ceil_div(new, rows.cp[:, None]))
    prefix, own, batch, new = on_rows(rows.heads.shape[0], prefix, own, batch, new)

    def sol(shape, heads, prefix, new, batch):
        widths, limits, skips = shape
        return dsa_context_sol_ms(widths, limits, heads, skips, batch, new, prefix)

    def added(parallel):
        return dsa_parallel_ms(parallel, batch, new, own, prefix, hardware, constants)

    return _ask(rows, (prefix, own, batch), sol, hardware, added)


def ask_dsa_generation(
    rows: DsaRows,
    batch: Int[Array, "*row point"],
    length: Int[Array, "*row point"],
    prefix: Int[Array, "*row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> Question:
    """Latency of a decode step of `batch` sequences of `length` tokens, the new one included, as a question."""

    def sol(shape, heads, batch, length):
        widths, limits, _ = shape
        return dsa_generation_sol_ms(widths, limits, heads, batch, length)

    return _ask(rows, on_rows(rows.heads.shape[0], batch, length), sol, hardware)


def _ask(rows: DsaRows, coordinates, sol, hardware: Hardware, added=None) -> Question:
    """The question of all slices, whose answer is one row an operator; `added` is what context parallelism adds."""
    count = rows.heads.shape[0]
    parts = rows.skips.shape[0] // count
    points = tuple(jnp.tile(x, (parts, 1)) for x in coordinates)
    per_row = (rows.shape, rows.formats.limits(hardware), rows.heads)
    widths, limits, heads = jax.tree.map(lambda x: jnp.tile(x, parts), per_row)
    question = ask(rows.slices, rows.knots, heads, points, sol, (widths, limits, rows.skips))

    def finish(latency, code):
        if rows.estimates is not None:
            latency, code = module_estimate(rows.estimates, question.roof, (heads, *points))
        code = with_repairs(code, rows.repaired[:, None])
        latency, code = latency.reshape(parts, count, -1), code.reshape(parts, count, -1)
        if rows.parallel is not None and added is not None:
            latency, code = _shared_prompt(latency, code, added(rows.parallel), rows.cp[:, None] > 1)
        return _blend(rows.share[:, None], latency, code)

    return question._replace(finish=finish)


def _shared_prompt(latency, code, added, split):
    """Layers with and without indexer, with what sharing a prompt adds to them: measured differences."""
    latency = latency + jnp.stack(added)[: latency.shape[0]]
    known = jnp.where(jnp.isnan(latency), Provenance.MISSING, jnp.maximum(code, Provenance.ESTIMATED))
    return jnp.where(split, jnp.maximum(latency, 0.0), latency), jnp.where(split, known, code)


def _blend(share, latency, code):
    """Mean over layers with and without indexer; a layer that was not measured apart counts as one with."""
    with_indexer, without = latency[0], latency[-1]
    mixed = share * with_indexer + (1 - share) * without
    alone = share >= 1
    return jnp.where(alone, with_indexer, mixed), jnp.where(alone, code[0], code.max(0))


def dsa_context_sol(rows: DsaRows, batch, new, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of a prefill [row, point]."""
    new = jnp.maximum(1, ceil_div(new, rows.cp[:, None]))
    points = (jnp.asarray(x, jnp.float32) for x in (batch, new, prefix))
    batch, new, prefix = points
    widths, limits, heads = as_columns((rows.shape, rows.formats.limits(hardware), rows.heads))

    def layer(skips):
        return dsa_context_sol_ms(widths, limits, heads, skips, batch, new, prefix)

    share = rows.roofline_share[:, None]
    return share * layer(0.0) + (1 - share) * layer(1.0)


def dsa_generation_sol(rows: DsaRows, batch, length, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of a decode step [row, point]; the same for layers with and without indexer."""
    widths, limits, heads = as_columns((rows.shape, rows.formats.limits(hardware), rows.heads))
    batch, length = (jnp.asarray(x, jnp.float32) for x in (batch, length))
    return dsa_generation_sol_ms(widths, limits, heads, batch, length)
