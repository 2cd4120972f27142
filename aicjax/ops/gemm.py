# SPDX-License-Identifier: Apache-2.0
"""Matrix products: scattered measured shapes, one curve of tokens each, and static FP8 activation scales."""

from collections.abc import Sequence

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
from aicjax.interp.curve import TokenCurves, bind_token_curves, token_utilization
from aicjax.interp.sites import NEIGHBOURS, NO_SITE, choose_sites, token_segments
from aicjax.ops import scales
from aicjax.ops.database import Database
from aicjax.ops.gemm_estimate import GemmEstimates, bind_gemm_estimates, with_gemm_estimates
from aicjax.ops.gemm_tables import host_sol_ms, load_gemm, table_format
from aicjax.ops.records import Gemm
from aicjax.ops.roofline import Hardware, dtype_index, gemm_sol_ms

CURVE_BUCKET = 64


class GemmRows(eqx.Module):
    """Distinct matrix products bound to their curves.

    Attributes:
        n, k: Shape of each product [row].
        element_bytes: Bytes per element [row].
        dtype: Position of its data type in `Hardware.peak` [row].
        curve: Curves that answer, by segment of tokens [row, segment, neighbour]; `NO_SITE` where fewer do.
        weight: Their weights [row, segment, neighbour].
        measured: Whether the shape is a measured site, whose curve then answers as it is [row].
        estimate_sol: Whether the roofline answers where nothing measured does [row].
        curve_n, curve_k: Shape of each curve [curve].
        curves: The curves in use.
        knots: Token counts that the curves share [knot].
        breaks: Token counts at which the answering curves change [segment - 1].
        scales: Cost of activation scales that static scales save.
        estimates: What answers for the products that the curves may fail; None when nothing does.
    """

    n: Float[Array, " row"]
    k: Float[Array, " row"]
    element_bytes: Float[Array, " row"]
    dtype: Int[Array, " row"]
    curve: Int[Array, "row segment neighbour"]
    weight: Float[Array, "row segment neighbour"]
    measured: Bool[Array, " row"]
    estimate_sol: Bool[Array, " row"]
    curve_n: Float[Array, " curve"]
    curve_k: Float[Array, " curve"]
    curves: TokenCurves
    knots: Float[Array, " knot"]
    breaks: Float[Array, " breaks"]
    scales: scales.ScaleRows
    estimates: GemmEstimates | None


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
    tables = {mode: load_gemm(*database.where, mode) for mode in modes}
    found = [t for t in tables.values() if t is not None]
    knots = np.unique(np.concatenate([t.knots for t in found])) if found else np.ones(1)
    breaks = np.unique(np.concatenate([token_segments(t.first, t.last) for t in found])) if found else np.ones(1)
    segments = breaks.size + 1
    padded_segments = -(-segments // 4) * 4
    curve = np.full((rows, padded_segments, NEIGHBOURS), NO_SITE, np.int32)
    weight = np.zeros((rows, padded_segments, NEIGHBOURS), np.float32)
    is_site = np.zeros(rows, bool)
    used: dict[tuple[str, int], int] = {}
    for row, record in enumerate(records):
        mode = table_format(record.quant)
        table = tables.get(mode)
        if table is None:
            continue
        choice = choose_sites(table.sites, table.first, table.last, breaks, (record.n, record.k))
        is_site[row] = choice.measured
        weight[row, :segments] = choice.weight
        for at in np.argwhere(choice.site != NO_SITE):
            site = int(choice.site[tuple(at)])
            curve[row][tuple(at)] = used.setdefault((mode, site), len(used))
    answered = (weight[: len(records), :segments].sum(-1) > 0).all(-1)
    padded = -(-max(len(used), 1) // CURVE_BUCKET) * CURVE_BUCKET
    dense = np.full((padded, knots.size), np.nan)
    sol = np.ones_like(dense)
    shape = np.ones((padded, 2))
    for (mode, site), index in used.items():
        table = tables[mode]
        assert table is not None
        shape[index] = table.sites[site]
        dense[index, np.searchsorted(knots, table.knots)] = table.latency_ms[site]
        sol[index] = host_sol_ms(system, mode, knots, *table.sites[site])
    width = -(-knots.size // 16) * 16
    curves = bind_token_curves(knots, dense, sol)
    spare = ((0, 0), (0, width - knots.size))
    curves = eqx.tree_at(
        lambda c: (c.latency_ms, c.lower, c.upper),
        curves,
        (np.pad(curves.latency_ms, spare), np.pad(curves.lower, spare, "edge"), np.pad(curves.upper, spare, "edge")),
    )
    modes_of = [r.quant for r in records] + ["bfloat16"] * (rows - len(records))
    pad = (0, rows - len(records))
    return GemmRows(
        n=np.pad([float(r.n) for r in records], pad, constant_values=1).astype(np.float32),
        k=np.pad([float(r.k) for r in records], pad, constant_values=1).astype(np.float32),
        element_bytes=np.array([quant.GEMM[m].bytes for m in modes_of], np.float32),
        dtype=np.array([dtype_index(quant.GEMM[m].dtype) for m in modes_of], np.int32),
        curve=curve,
        weight=weight,
        measured=is_site,
        estimate_sol=np.pad(
            [
                r.below_grid_sol and not database.estimates and tables.get(table_format(r.quant)) is not None
                for r in records
            ],
            pad,
        ).astype(bool),
        curve_n=shape[:, 0].astype(np.float32),
        curve_k=shape[:, 1].astype(np.float32),
        curves=curves,
        knots=np.pad(knots.astype(np.float32), (0, width - knots.size), constant_values=PAD_KNOT),
        breaks=np.pad(breaks.astype(np.float32), (0, padded_segments - segments), constant_values=PAD_KNOT),
        scales=scales.bind_scales(database, records, rows=rows),
        estimates=bind_gemm_estimates(database, records, answered, rows=rows),
    )


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

    A measured shape answers from its own curve. Another takes the roofline over the mean utilisation of its
    neighbours, weighted by the inverse square of their log2 distance. Where neither answers an estimate may. Static
    scales then save what computing scales at run time costs, down to the roofline.

    Args:
        rows: Bound products.
        transform: Which row of `tokens` each product reads.
        tokens: Distinct token counts; several products share them, so they are located once.
        hardware: Peaks and bandwidths.
        constants: Operator constants.
    """
    at = interval(rows.knots, tokens)
    segment = interval(rows.breaks, tokens)
    count = tokens[transform]
    sol = gemm_sol(rows, count, hardware, constants)
    index = jnp.arange(rows.n.shape[0])[:, None]
    curve = pick(rows.curve, index, segment[transform])
    weight = pick(rows.weight, index, segment[transform])
    safe = jnp.maximum(curve, 0)
    peak = hardware.peak[rows.dtype][:, None, None]
    each = jnp.broadcast_to(count[..., None], curve.shape)
    site_sol = gemm_sol_ms(
        each,
        pick(rows.curve_n, safe),
        pick(rows.curve_k, safe),
        rows.element_bytes[:, None, None],
        peak,
        hardware.mem_bw,
    )
    located = jnp.broadcast_to(at[transform][..., None], curve.shape)
    latency, utilization, code = token_utilization(rows.curves, rows.knots, safe, each, located, site_sol)
    usable = (curve != NO_SITE) & jnp.isfinite(utilization) & (utilization > 0)
    weight = jnp.where(usable, weight, 0.0)
    total = jnp.sum(weight, -1)
    mean = jnp.sum(weight * jnp.where(usable, utilization, 0.0), -1) / jnp.where(total > 0, total, 1.0)
    own = rows.measured[:, None]
    value = jnp.where(own, latency[..., 0], sol / jnp.where(mean > 0, mean, 1.0))
    code = jnp.where(own, code[..., 0], Provenance.TRANSFERRED)
    found = (total > 0) & (mean > 0)
    value = jnp.where(found, value, jnp.where(rows.estimate_sol[:, None], sol, jnp.nan))
    code = jnp.where(found, code, jnp.where(rows.estimate_sol[:, None], Provenance.SOL, Provenance.MISSING))
    if rows.estimates is not None:
        value, code = with_gemm_estimates(rows.estimates, count, sol, value, code, constants)
    return scales.without_scale_cost(rows.scales, count, sol, value, code)
