# SPDX-License-Identifier: Apache-2.0
"""Static FP8 activation scales: what a product saves when scales need not be computed at run time.

A product with static scales is the dynamic one less the scale computation, and, when its input already has low
precision, less the application of the scales too. Both were measured over (tokens, k).
"""

import functools
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._results import DataError, Provenance
from aicjax._types import Array
from aicjax.hardware import System
from aicjax.interp.axis import PAD_KNOT, interval
from aicjax.interp.counts import pick
from aicjax.ops.database import Database
from aicjax.ops.records import Gemm
from aicjax.ops.scale_estimate import ScaleEstimates, bind_scale_estimates, estimated_scale_cost
from aicjax.tables import first_rows, read_rows

COMPUTE_TABLE = "computescale_perf"
APPLY_TABLE = "scale_matrix_perf"
STATIC = "fp8_static"
TABLE_FORMAT = "fp8"
KNOT_BUCKET = 80  # the published tables have 74 token counts


@functools.lru_cache(maxsize=32)
def load_scale(system: System, backend: str, version: str, shared: bool, table: str):
    """Knots of tokens, knots of k and latency [tokens, k] of one scale table; None when nothing was measured."""
    rows = read_rows(system.name, backend, version, table, shared)
    if rows is None:
        return None
    codes, formats = rows.text("quant_dtype")
    if TABLE_FORMAT not in formats:
        return None
    rows = rows.select(codes == formats.index(TABLE_FORMAT))
    m, k = rows.number("m").astype(np.int64), rows.number("k").astype(np.int64)
    keep = first_rows(m, k)
    m_knots, m_at = np.unique(m[keep], return_inverse=True)
    k_knots, k_at = np.unique(k[keep], return_inverse=True)
    dense = np.full((m_knots.size, k_knots.size), np.nan)
    dense[m_at, k_at] = rows.number("latency")[keep]
    if np.isnan(dense).any():
        hole = np.argwhere(np.isnan(dense))[0]
        at = f"m = {m_knots[hole[0]]}, k = {k_knots[hole[1]]}"
        raise DataError(f"{table} of {system.name}/{backend}/{version}: {TABLE_FORMAT} has no row at {at}")
    return m_knots, k_knots, dense


class ScaleRows(eqx.Module):
    """Scale costs of each product as curves of tokens, at its `k`.

    Attributes:
        static: Whether the product has static scales [row].
        knots: Token counts [table=2, knot].
        count: Number of knots [table].
        cost_ms: Cost at the knots [table, row, knot]; table 0 computes the scales, table 1 applies them.
        beyond: Factor on table 1 for a `k` beyond its range [row].
        estimates: What answers instead in a database of estimates alone; None in others.
    """

    static: Bool[Array, " row"]
    knots: Float[Array, "2 knot"]
    count: Int[Array, " 2"]
    cost_ms: Float[Array, "2 row knot"]
    beyond: Float[Array, " row"]
    estimates: ScaleEstimates | None


def bind_scales(database: Database, records: Sequence[Gemm], *, rows: int) -> ScaleRows | None:
    """Scale curves for `records`, padded to `rows`; None when no product is static.

    The cost of a static product without a table is NaN.
    """
    if all(record.quant != STATIC for record in records):
        return None
    static = np.array([r.quant == STATIC for r in records] + [False] * (rows - len(records)), bool)
    applied = static & np.array([r.low_precision_input for r in records] + [False] * (rows - len(records)), bool)
    k = np.array([float(r.k) for r in records] + [1.0] * (rows - len(records)))
    beyond = np.ones(rows)
    curves: list[tuple[np.ndarray, np.ndarray]] = []
    for table, needed in ((COMPUTE_TABLE, static), (APPLY_TABLE, applied)):
        loaded = load_scale(*database.where, table) if database.interpolates and needed.any() else None
        if loaded is None:
            curves.append((np.ones(1), np.where(needed, np.nan, 0.0)[:, None]))
            continue
        m_knots, k_knots, dense = loaded
        clipped = np.clip(k, k_knots[0], k_knots[-1])
        high = np.clip(np.searchsorted(k_knots, clipped), 1, k_knots.size - 1)
        low = high - 1
        share = (clipped - k_knots[low]) / (k_knots[high] - k_knots[low])
        cost = dense[:, low] + (dense[:, high] - dense[:, low]) * share
        curves.append((m_knots, np.where(needed, cost, 0.0).T))
        if table == APPLY_TABLE:
            beyond = k / clipped
    width = -(-max(c[0].size for c in curves) // KNOT_BUCKET) * KNOT_BUCKET
    spare = [width - c[0].size for c in curves]
    return ScaleRows(
        static=static,
        knots=np.stack(
            [
                np.pad(c[0].astype(np.float32), (0, s), constant_values=PAD_KNOT)
                for c, s in zip(curves, spare, strict=True)
            ]
        ),
        count=np.array([c[0].size for c in curves], np.int32),
        cost_ms=np.stack([np.pad(c[1], ((0, 0), (0, s))) for c, s in zip(curves, spare, strict=True)]).astype(
            np.float32
        ),
        beyond=beyond.astype(np.float32),
        estimates=_bind_estimates(database, k, np.stack([static, applied])),
    )


def _bind_estimates(database: Database, k: np.ndarray, needed: np.ndarray) -> ScaleEstimates | None:
    """Estimates of a database without interpolation: one with it has a full grid, which answers everywhere."""
    if database.interpolates or not database.estimates or not needed.any():
        return None
    compute, apply = (load_scale(*database.where, table) for table in (COMPUTE_TABLE, APPLY_TABLE))
    return bind_scale_estimates(compute, apply, k, needed, KNOT_BUCKET)


def without_scale_cost(
    rows: ScaleRows,
    tokens: Float[Array, "row point"],
    sol_ms: Float[Array, "row point"],
    latency_ms: Float[Array, "row point"],
    code: Int[Array, "row point"],
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency less the scale costs, never below the roofline, for products with static scales; others as they are.

    Beyond the measured tokens the cost of computing scales stays flat and that of applying them grows in proportion.
    """
    if rows.estimates is None:
        compute, _ = _cost(rows, 0, tokens)
        apply, ratio = _cost(rows, 1, tokens)
        apply = apply * ratio * rows.beyond[:, None]
    else:
        compute, apply = estimated_scale_cost(rows.estimates, tokens)
    saved = jnp.maximum(latency_ms - compute - apply, sol_ms)
    static = rows.static[:, None]
    value = jnp.where(static, saved, latency_ms)
    missing = jnp.isnan(value)
    difference = jnp.where(code < Provenance.EMPIRICAL, Provenance.ESTIMATED, code)
    code = jnp.where(static, jnp.where(missing, Provenance.MISSING, difference), code)
    return value, code.astype(jnp.int32)


def _cost(rows: ScaleRows, table: int, tokens):
    """Cost at the token counts held to the measured range, and the ratio of counts beyond it."""
    knots, count = rows.knots[table], rows.count[table]
    held = jnp.clip(tokens, knots[0], knots[count - 1])
    high = jnp.clip(interval(knots, held), 1, jnp.maximum(count - 1, 1))
    low = high - 1
    index = jnp.arange(rows.cost_ms.shape[1])[:, None]
    first, second = pick(rows.cost_ms[table], index, low), pick(rows.cost_ms[table], index, high)
    share = (held - pick(knots, low)) / (pick(knots, high) - pick(knots, low))
    return first + (second - first) * share, tokens / held
