# SPDX-License-Identifier: Apache-2.0
"""Block-sparse grouped-query attention (MSA), whole blocks of prefill and decode.

A shape that was measured answers by its own points. Where estimates are asked for, the utilisation of sparse latent
attention (DSA) at the same heads, lengths and formats stands in.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.grid import GridSlice, Question, ask
from aicjax.ops import dsa
from aicjax.ops.database import Database
from aicjax.ops.dsa_tables import TRTLLM, DsaKey, find_dsa, load_dsa
from aicjax.ops.module_tables import (
    AXES,
    FormatRows,
    ModuleTable,
    PointSol,
    as_columns,
    bind_points,
    format_rows,
    host_limits,
    most_leaves,
    on_rows,
    padded,
    shared_knots,
    stacked,
    stacked_shapes,
)
from aicjax.ops.records import DsaContext, DsaGeneration, MsaContext, MsaGeneration
from aicjax.ops.roofline import Hardware
from aicjax.ops.sparse_rooflines import (
    dsa_context_sol_ms,
    dsa_generation_sol_ms,
    msa_context_sol_ms,
    msa_generation_sol_ms,
)

STAND_IN = "xop"  # kind of transfer

Record = MsaContext | MsaGeneration


class MsaRows(eqx.Module):
    """Distinct MSA operators of one phase.

    Attributes:
        slices: Bound slices, of MSA or of the DSA that stands in.
        knots: Coordinates that the slices share.
        heads: Heads on a GPU [row].
        borrowed: Whether DSA stands in [row].
        stand_in_scale: Utilisation of MSA over that of DSA [row].
        shape: Widths, arrays [row].
        stand_in: Widths of the DSA, arrays [row].
        formats: Formats [row].
    """

    slices: GridSlice
    knots: tuple[Float[Array, " knot"], ...]
    heads: Float[Array, " row"]
    borrowed: Int[Array, " row"]
    stand_in_scale: Float[Array, " row"]
    shape: Any
    stand_in: Any
    formats: FormatRows


def msa_key(record: Record) -> DsaKey:
    """What selects an operator's measured points; decode tables do not key on the attention format."""
    fmha = record.fmha_quant if isinstance(record, MsaContext) else ""
    return DsaKey(False, record.architecture, fmha, record.kv_quant, record.gemm_quant, TRTLLM)


def load_msa_phase(database: Database, phase: str) -> ModuleTable | None:
    """The table of a phase."""
    return load_dsa(*database.where, "msa", phase, keys_fmha=phase == "context")


def msa_available(database: Database, record: Record) -> bool:
    """Whether tables hold an operator's shape."""
    phase = "context" if isinstance(record, MsaContext) else "generation"
    return find_dsa(load_msa_phase(database, phase), msa_key(record)) is not None


def bind_msa_context(database: Database, records: Sequence[MsaContext], *, rows: int) -> MsaRows:
    """Rows for prefill operators, padded to `rows`.

    Raises:
        MissingPeak: The system states no peak for a format.
    """
    return _bind(database, "context", padded(records, rows))


def bind_msa_generation(database: Database, records: Sequence[MsaGeneration], *, rows: int) -> MsaRows:
    """Rows for decode operators, padded to `rows`; raises as `bind_msa_context`."""
    return _bind(database, "generation", padded(records, rows))


def _bind(database: Database, phase: str, records: Sequence[Any]) -> MsaRows:
    table = load_msa_phase(database, phase) if database.interpolates else None
    own = [find_dsa(table, msa_key(record)) for record in records]
    borrows = database.estimates and STAND_IN in database.transfers and any(points is None for points in own)
    other = dsa.load_dsa_phase(database, phase) if borrows else None
    tables = [t for t in (table, other) if t is not None]
    knots, leaves = shared_knots(tables, AXES[phase]), most_leaves(tables)
    slices = []
    for record, points in zip(records, own, strict=True):
        sol = _point_sol(database, record)
        if points is None:
            stand_in = _stand_in(record)
            points, sol = find_dsa(other, dsa.dsa_key(stand_in)), dsa.point_sol(database, stand_in)
        slices.append(bind_points(points, knots, record.num_heads, sol, leaves))
    return MsaRows(
        slices=stacked(slices),
        knots=tuple(axis.astype(np.float32) for axis in knots),
        heads=np.array([r.num_heads for r in records], np.float32),
        borrowed=np.array([points is None for points in own], np.int32),
        stand_in_scale=np.array([r.stand_in.scale for r in records], np.float32),
        shape=stacked_shapes([r.shape for r in records]),
        stand_in=stacked_shapes([r.stand_in.shape for r in records]),
        formats=format_rows([(r.gemm_quant, r.kv_quant, r.fmha_quant) for r in records]),
    )


def _stand_in(record: Record) -> DsaContext | DsaGeneration:
    """The DSA operator of the same heads and formats."""
    kind = DsaContext if isinstance(record, MsaContext) else DsaGeneration
    gemm, other = record.gemm_quant, record.stand_in
    formats = (record.kv_quant, record.fmha_quant, gemm, other.architecture, other.shape, (gemm, gemm, gemm, gemm))
    return kind(record.name, 1.0, record.num_heads, *formats)


def _point_sol(database: Database, record: Any) -> PointSol:
    limits = host_limits(database.system, record.gemm_quant, record.kv_quant, record.fmha_quant)
    if isinstance(record, MsaGeneration):
        return lambda heads, batch, length: msa_generation_sol_ms(record.shape, limits, heads, batch, length, xp=np)
    return lambda heads, prefix, new, batch: msa_context_sol_ms(record.shape, limits, heads, batch, new, prefix, xp=np)


def ask_msa_context(
    rows: MsaRows,
    batch: Int[Array, "*row point"],
    new: Int[Array, "*row point"],
    prefix: Int[Array, "*row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> Question:
    """Latency of a prefill of `batch` prompts of `new` tokens behind a cached `prefix`, as a question."""

    def own(widths, limits, heads, prefix, new, batch):
        return msa_context_sol_ms(widths, limits, heads, batch, new, prefix)

    def other(widths, limits, heads, prefix, new, batch):
        return dsa_context_sol_ms(widths, limits, heads, 0.0, batch, new, prefix)

    return _ask(rows, (prefix, new, batch), own, other, hardware)


def ask_msa_generation(
    rows: MsaRows,
    batch: Int[Array, "*row point"],
    length: Int[Array, "*row point"],
    prefix: Int[Array, "*row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> Question:
    """Latency of a decode step of `batch` sequences of `length` tokens, the new one included, as a question."""
    return _ask(rows, (batch, length), msa_generation_sol_ms, dsa_generation_sol_ms, hardware)


def _ask(rows: MsaRows, coordinates, own, other, hardware: Hardware) -> Question:
    """The question of all slices; `own` and `other` are rooflines of MSA and DSA."""
    points = on_rows(rows.heads.shape[0], *coordinates)
    limits = rows.formats.limits(hardware)

    def sol(shape, heads, *point):
        widths, other_widths, limits, borrowed = shape
        return jnp.where(borrowed > 0, other(other_widths, limits, heads, *point), own(widths, limits, heads, *point))

    shapes = (rows.shape, rows.stand_in, limits, rows.borrowed)
    question = ask(rows.slices, rows.knots, rows.heads, points, sol, shapes)
    widths, limits, heads = as_columns((rows.shape, limits, rows.heads))
    roof = own(widths, limits, heads, *points)

    def finish(latency, code):
        borrowed = rows.borrowed[:, None] > 0
        taken = roof * latency / question.roof / rows.stand_in_scale[:, None]
        transferred = jnp.where(code == Provenance.MISSING, code, Provenance.XOP)
        return jnp.where(borrowed, taken, latency), jnp.where(borrowed, transferred, code)

    return question._replace(finish=finish)


def msa_context_sol(rows: MsaRows, batch, new, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of a prefill [row, point]."""
    widths, limits, heads = as_columns((rows.shape, rows.formats.limits(hardware), rows.heads))
    batch, new, prefix = (jnp.asarray(x, jnp.float32) for x in (batch, new, prefix))
    return msa_context_sol_ms(widths, limits, heads, batch, new, prefix)


def msa_generation_sol(rows: MsaRows, batch, length, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of a decode step [row, point]."""
    widths, limits, heads = as_columns((rows.shape, rows.formats.limits(hardware), rows.heads))
    batch, length = (jnp.asarray(x, jnp.float32) for x in (batch, length))
    return msa_generation_sol_ms(widths, limits, heads, batch, length)
