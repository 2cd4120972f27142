# SPDX-License-Identifier: Apache-2.0
"""The grid kernel asked about made-up tables, under the roofline of prefill attention, beside its oracle."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax._results import Provenance
from aicjax.interp.grid import GridSlice, bind_slice, grid_latency
from aicjax.ops.roofline import context_attention_sol_ms
from tests import strategies
from tests.oracles import grid as oracle
from tests.oracles import rooflines
from tests.strategies import GridTable, Roof

LEAVES = 64
POINTS = math.prod(2 * count + 1 for count in strategies.PLANE)  # one compiled length
BLEND = 1e-5  # float32 against float64: a handful of roundings
# The weights of a hold are differences of nearly equal distances when all four points are nearly as far as the fifth.
HOLD = 1e-4
HEAD_SIZE, KV_BYTES = 128, 2
ROOF = Roof(1e12, 1e10)


def roofline(roof: Roof) -> oracle.Sol:
    """Of heads, length and batch; a third inner axis repeats the call, as a count of layers would."""

    def sol(heads: float, length: float, batch: float, repeats: float = 1.0) -> float:
        rates = (roof.peak, roof.mem_bw)
        return repeats * rooflines.prefill_attention(batch, length, 0, heads, heads, HEAD_SIZE, 0, KV_BYTES, *rates)

    return sol


@eqx.filter_jit
def kernel(slices: GridSlice, knots, heads, coordinates, rates, sqrt_axis):
    def sol(head_size, heads, length, batch, repeats=1.0):
        once = context_attention_sol_ms(batch, length, 0.0, heads, heads, head_size, 0.0, float(KV_BYTES), *rates)
        return once * repeats

    head_size = jnp.full(heads.shape, float(HEAD_SIZE))
    return grid_latency(slices, knots, heads, coordinates, sol, head_size, sqrt_axis=sqrt_axis)


def bound(table: GridTable, roof: Roof, leaves: int = LEAVES) -> GridSlice:
    """The slice of a table; its heads are those with a measurement."""
    kept = np.isfinite(table.latency_ms).any(tuple(range(1, table.latency_ms.ndim)))
    heads, latency = table.heads[kept], table.latency_ms[kept]
    places = np.stack(np.meshgrid(heads, *table.knots, indexing="ij"), -1).reshape(-1, latency.ndim)
    roofs = np.array([roofline(roof)(*place) for place in places.tolist()]).reshape(latency.shape)
    return bind_slice(heads, latency, table.knots, table.head, roofs, leaves)


def rates_of(roof: Roof) -> np.ndarray:
    """Peak and bandwidth a millisecond."""
    return np.array([roof.peak / 1e3, roof.mem_bw / 1e3], np.float32)


def ask(
    slices: list[GridSlice],
    tables: list[GridTable],
    queries: np.ndarray,
    rates: np.ndarray,
    sqrt_axis: int | None = None,
):
    """Latency and provenance of the same queries [axis, point] of slices of tables on the same knots [table, point]."""
    stacked = jax.tree.map(lambda *leaf: np.stack(leaf), *slices)
    knots = tuple(axis.astype(np.float32) for axis in tables[0].knots)
    heads = np.array([table.head for table in tables], np.float32)
    coordinates = tuple(np.tile(axis.astype(np.float32), (len(slices), 1)) for axis in queries)
    return kernel(stacked, knots, heads, coordinates, rates, sqrt_axis)


def answers(
    table: GridTable, roof: Roof, queries: np.ndarray, sqrt_axis: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Latency and provenance of queries [axis, point] of one table."""
    count = queries.shape[1]
    padded = np.pad(queries, ((0, 0), (0, max(POINTS - count, 0))), mode="edge")
    latency, code = ask([bound(table, roof)], [table], padded, rates_of(roof), sqrt_axis)
    return np.asarray(latency[0], np.float64)[:count], np.asarray(code[0])[:count]


def check_against_oracle(
    table: GridTable,
    roof: Roof,
    queries: np.ndarray,
    answers: tuple[np.ndarray, np.ndarray],
    sqrt_axis: int | None = None,
) -> None:
    rooted = () if sqrt_axis is None else {1 + sqrt_axis}
    for query, latency, code in zip(queries.T.tolist(), *answers, strict=True):
        want, how = oracle.grid(table.points, (table.head, *query), roofline(roof), rooted)
        assert code == how, query
        tolerance = HOLD if how == Provenance.HELD else BLEND
        assert latency == pytest.approx(want, rel=tolerance, nan_ok=True), (query, how)
