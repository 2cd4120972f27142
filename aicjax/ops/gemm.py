# SPDX-License-Identifier: Apache-2.0
"""Matrix products: scattered measured shapes, one curve of tokens each, and static FP8 activation scales."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax import quant
from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.axis import PAD_KNOT, interval
from aicjax.interp.counts import pick
from aicjax.interp.curve import TAIL, TokenCurves, bind_token_curves, token_utilization
from aicjax.interp.sites import NO_SITE, choose_sites, token_segments
from aicjax.ops import scales
from aicjax.ops.database import Database
from aicjax.ops.gemm_estimate import GemmEstimates, bind_gemm_estimates, with_gemm_estimates
from aicjax.ops.gemm_fit import fitted_curve
from aicjax.ops.gemm_tables import host_sol_ms, load_gemm, table_format
from aicjax.ops.records import Gemm
from aicjax.ops.repaired import with_repairs
from aicjax.ops.roofline import Hardware, dtype_index, gemm_sol_ms

CURVE_BUCKET = 32
KNOT_BUCKET = 16
SEGMENT_BUCKET = 4


class GemmRows(eqx.Module):
    """Distinct matrix products bound to their curves.

    Attributes:
        n, k: Shape of each product [row].
        element_bytes: Bytes per element [row].
        dtype: Position of its data type in `Hardware.peak` [row].
        own: Curve of a product whose shape was measured [row]; `NO_SITE` for the others.
        estimate_sol: Whether the roofline answers where nothing measured does [row].
        repaired: Whether the time of a host was taken out of the product's table [row].
        curves: A curve for each product and each measured shape that answers for it.
        curve_n, curve_k: That shape [curve].
        curve_row: The product [curve].
        weight: How much a curve counts for its product, by segment of tokens [curve, segment].
        knots: Token counts that the curves share [knot].
        breaks: Token counts at which the weights change [segment - 1].
        scales: Cost of activation scales that static scales save; None when no product has them.
        estimates: What answers for the products that the curves may fail; None when nothing does.
    """

    n: Float[Array, " row"]
    k: Float[Array, " row"]
    element_bytes: Float[Array, " row"]
    dtype: Int[Array, " row"]
    own: Int[Array, " row"]
    estimate_sol: Bool[Array, " row"]
    repaired: Bool[Array, " row"]
    curves: TokenCurves
    curve_n: Float[Array, " curve"]
    curve_k: Float[Array, " curve"]
    curve_row: Int[Array, " curve"]
    weight: Float[Array, "curve segment"]
    knots: Float[Array, " knot"]
    breaks: Float[Array, " breaks"]
    scales: scales.ScaleRows | None
    estimates: GemmEstimates | None


class _Curve(NamedTuple):
    """A curve that answers for a product: of which row, of what shape, on its table's knots, in which segments."""

    row: int
    mode: str
    shape: tuple[int, int] | np.ndarray
    latency_ms: np.ndarray
    weight: np.ndarray


def bind_gemm(database: Database, records: Sequence[Gemm], *, rows: int) -> GemmRows:
    """Rows for `records`, padded to `rows`.

    Args:
        database: Which tables.
        records: Distinct products; only shape and format matter.
        rows: Padded number of rows.

    Raises:
        MissingPeak: The system states no peak for a format.
    """
    system = database.system
    for record in records:
        system.peak(quant.GEMM[record.quant].dtype)
    modes = sorted({table_format(r.quant) for r in records}) if database.interpolates else []
    tables = {
        mode: table for mode in modes if (table := load_gemm(*database.where, mode, database.repaired)) is not None
    }
    knots = np.unique(np.concatenate([np.ones(1), *[t.knots for t in tables.values()]]))
    breaks = np.unique(np.concatenate([np.ones(1), *[token_segments(t.first, t.last) for t in tables.values()]]))
    segments = -(-(breaks.size + 1) // SEGMENT_BUCKET) * SEGMENT_BUCKET
    own = np.full(rows, NO_SITE, np.int32)
    answered = [False] * len(records)
    curves: list[_Curve] = []
    for row, record in enumerate(records):
        mode = table_format(record.quant)
        if mode not in tables:
            continue
        table, asked = tables[mode], (record.n, record.k)
        choice = choose_sites(table.sites, table.first, table.last, breaks, asked)
        own[row] = len(curves) if choice.measured else NO_SITE
        answered[row] = bool((choice.weight.sum(-1) > 0).all())
        if database.fits_shapes and not choice.measured:
            fitted = fitted_curve(database, mode, asked)
            if np.isfinite(fitted).any():
                curves.append(_Curve(row, mode, asked, fitted, np.ones(breaks.size + 1)))
            continue
        for site in np.unique(choice.site[choice.site != NO_SITE]):
            share = np.where(choice.site == site, choice.weight, 0.0).sum(-1)
            curves.append(_Curve(row, mode, table.sites[site], table.latency_ms[site], share))
    count = -(-max(len(curves), 1) // CURVE_BUCKET) * CURVE_BUCKET
    latency_ms = np.full((count, knots.size), np.nan)
    sol_ms, shape, weight = np.ones_like(latency_ms), np.ones((count, 2)), np.zeros((count, segments))
    curve_row = np.zeros(count, np.int32)
    for at, curve in enumerate(curves):
        shape[at], weight[at, : breaks.size + 1], curve_row[at] = curve.shape, curve.weight, curve.row
        latency_ms[at, np.searchsorted(knots, tables[curve.mode].knots)] = curve.latency_ms
        sol_ms[at] = host_sol_ms(system, curve.mode, knots, *curve.shape)
    width = (knots.size // KNOT_BUCKET + 1) * KNOT_BUCKET

    def column(values: list, padding: float, kind: type) -> np.ndarray:
        return np.array([*values, *[padding] * (rows - len(records))], kind)

    def falls_back(record: Gemm) -> bool:
        return record.below_grid_sol and not database.estimates and table_format(record.quant) in tables

    forms = [quant.GEMM[record.quant] for record in records]
    return GemmRows(
        n=column([record.n for record in records], 1, np.float32),
        k=column([record.k for record in records], 1, np.float32),
        element_bytes=column([form.bytes for form in forms], 1, np.float32),
        dtype=column([dtype_index(form.dtype) for form in forms], 0, np.int32),
        own=own,
        estimate_sol=column([falls_back(record) for record in records], False, np.bool_),
        repaired=column([m in tables and tables[m].repaired for m in map(_mode, records)], False, np.bool_),
        curves=bind_token_curves(knots, latency_ms, sol_ms, width=width, tail=1 if database.extends_curves else TAIL),
        curve_n=shape[:, 0].astype(np.float32),
        curve_k=shape[:, 1].astype(np.float32),
        curve_row=curve_row,
        weight=weight.astype(np.float32),
        knots=np.pad(knots.astype(np.float32), (0, width - knots.size), constant_values=PAD_KNOT),
        breaks=np.pad(breaks.astype(np.float32), (0, segments - breaks.size - 1), constant_values=PAD_KNOT),
        scales=scales.bind_scales(database, records, rows=rows),
        estimates=bind_gemm_estimates(database, records, answered, rows=rows),
    )


def _mode(record: Gemm) -> str:
    return table_format(record.quant)


def gemm_sol(
    rows: GemmRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """Roofline of each product [ms]."""
    peak = hardware.peak[rows.dtype][:, None]
    return gemm_sol_ms(tokens, rows.n[:, None], rows.k[:, None], rows.element_bytes[:, None], peak, hardware.mem_bw)


def gemm_latency(
    rows: GemmRows,
    transform: Int[Array, " row"],
    tokens: Float[Array, "transform point"],
    hardware: Hardware,
    constants: OpConstants,
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each product and how it was obtained.

    A measured shape answers from its own curve. Another takes the roofline over the utilisation fitted to the shapes
    around it, or over the mean of its neighbours, weighted by the inverse square of their log2 distance. Where neither
    answers an estimate may. Static scales then save what computing scales at run time costs, down to the roofline.

    Args:
        rows: Bound products.
        transform: Which row of `tokens` each product reads.
        tokens: Distinct token counts; several products share them, so they are located once.
        hardware: Peaks and bandwidths.
        constants: Operator constants.
    """
    count = tokens[transform]
    sol = gemm_sol(rows, count, hardware, constants)
    at = interval(rows.knots, tokens)
    mean, code = _from_curves(rows, transform, tokens, at, hardware)
    found, spare = mean > 0, rows.estimate_sol[:, None]
    value = jnp.where(found, sol / jnp.where(found, mean, 1.0), jnp.where(spare, sol, jnp.nan))
    collected = pick(rows.curves.latency_ms, jnp.maximum(rows.own, 0)[:, None], jnp.maximum(at - 1, 0)[transform])
    value = jnp.where(found & (code == Provenance.EXACT), collected, value)
    code = with_repairs(code, rows.repaired[:, None])
    code = jnp.where(found, code, jnp.where(spare, Provenance.SOL, Provenance.MISSING))
    if rows.estimates is not None:
        value, code = with_gemm_estimates(rows.estimates, count, sol, value, code, constants)
    if rows.scales is not None:
        value, code = scales.without_scale_cost(rows.scales, count, sol, value, code)
    return value, code


def _from_curves(rows: GemmRows, transform, tokens, at, hardware: Hardware):
    """Mean utilisation of the curves of each product, 0 without any, and how it was obtained [row, point]."""
    owner = jnp.asarray(rows.curve_row)
    reads = transform[owner]
    segment = interval(rows.breaks, tokens)[reads]
    count, form = tokens[reads], (rows.element_bytes[owner][:, None], hardware.peak[rows.dtype[owner]][:, None])
    sol = gemm_sol_ms(count, rows.curve_n[:, None], rows.curve_k[:, None], *form, hardware.mem_bw)
    utilization, code = token_utilization(rows.curves, rows.knots, count, at[reads], sol)
    usable = utilization > 0
    weight = jnp.where(usable, pick(rows.weight, jnp.arange(owner.shape[0])[:, None], segment), 0.0)
    summed = (owner == jnp.arange(rows.n.shape[0])[:, None]).astype(weight.dtype)
    total = jnp.matmul(summed, weight, precision="highest")
    mean = jnp.matmul(summed, weight * jnp.where(usable, utilization, 0.0), precision="highest")
    code = jnp.where((rows.own != NO_SITE)[:, None], code[jnp.maximum(rows.own, 0)], Provenance.TRANSFERRED)
    return mean / jnp.where(total > 0, total, 1.0), code
