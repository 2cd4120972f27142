# SPDX-License-Identifier: Apache-2.0
"""Made-up tables for property tests. Shapes are fixed, so that no example compiles anything anew."""

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

HEADS = 3  # knots of the outermost axis of a made-up grid
PLANE = (5, 4)  # knots of its inner axes
VOLUME = (3, 3, 2)
SITES, TOKENS = 12, 8  # shapes and token counts of a made-up product table
SIZES = 6  # points of a made-up curve
LARGEST = 2**14  # of a coordinate: its products with others stay finite in float32


def knots(count: int, largest: int = LARGEST) -> st.SearchStrategy[np.ndarray]:
    """Distinct even counts, ascending: halfway between two of them lies another count.

    At least 15 % apart, as measured grids are: float32 logarithms could not rank the distances of a finer one.
    """
    pool = sorted({2.0 * round(1.2**power) for power in range(64) if 2 * 1.2**power <= largest})
    return st.lists(st.sampled_from(pool), min_size=count, max_size=count, unique=True).map(lambda k: np.sort(k))


def latencies(*shape: int) -> st.SearchStrategy[np.ndarray]:
    """Latencies over four decades, exact in float32."""
    exponents = st.lists(st.floats(-2, 2, width=32), min_size=math.prod(shape), max_size=math.prod(shape))
    return exponents.map(lambda e: (10.0 ** np.array(e).reshape(shape)).astype(np.float32).astype(np.float64))


@dataclass(frozen=True)
class GridTable:
    """A grid of heads and inner knots; latency [head, *axis], NaN where nothing was measured."""

    heads: np.ndarray
    knots: tuple[np.ndarray, ...]
    latency_ms: np.ndarray
    head: float  # the value asked for on the outermost axis

    @property
    def points(self) -> dict[tuple[float, ...], float]:
        """Measured latencies by coordinates."""
        axes = (self.heads, *self.knots)
        return {
            tuple(float(axis[at]) for axis, at in zip(axes, index, strict=True)): float(self.latency_ms[tuple(index)])
            for index in np.argwhere(np.isfinite(self.latency_ms))
        }

    def queries(self) -> np.ndarray:
        """Coordinates `around` the knots of all inner axes, crossed [axis, point]."""
        return np.stack([x.reshape(-1) for x in np.meshgrid(*map(around, self.knots), indexing="ij")])

    def by_axis(self, values: np.ndarray) -> np.ndarray:
        """Answers to `queries` as [*axis]; the first and the last of each axis lie beyond its knots."""
        return np.asarray(values).reshape([2 * axis.size + 1 for axis in self.knots])


@st.composite
def grids(draw: st.DrawFn, staircase: bool = True, beyond: bool = True, shape: tuple[int, ...] = PLANE) -> GridTable:
    """Grids, optionally with holes, asked for a head count on, between or (`beyond`) outside the collected ones.

    A staircase lacks the ends of some rows, whole rows, and now and then a point in the middle.
    """
    heads, inner = draw(knots(HEADS, 128)), tuple(draw(knots(count)) for count in shape)
    latency = draw(latencies(HEADS, *shape))
    if staircase:
        end, rows = st.integers(0, shape[-1]), latency.size // shape[-1]
        bounds = draw(st.lists(st.tuples(end, end), min_size=rows, max_size=rows))
        low, high = (np.array(bound).reshape(*latency.shape[:-1], 1) for bound in zip(*bounds, strict=True))
        holes = draw(st.lists(st.integers(0, latency.size - 1), max_size=3))
        kept = (np.arange(shape[-1]) >= np.minimum(low, 1)) & (np.arange(shape[-1]) < np.maximum(high, low))
        kept.reshape(-1)[holes] = False
        latency = np.where(kept, latency, np.nan)
    between = [(heads[0] + heads[1]) / 2, (heads[1] + heads[2]) / 2]
    outside = [heads[0] / 2, heads[-1] * 2] if beyond else []
    return GridTable(heads, inner, latency, draw(st.sampled_from([*heads, *between, *outside])))


def around(knots: np.ndarray) -> np.ndarray:
    """Every knot, the middle of every interval, and one coordinate beyond each end: ascending [2 knots + 1]."""
    middles = (knots[1:] + knots[:-1]) / 2
    return np.sort(np.concatenate([[knots[0] / 2], knots, middles, [knots[-1] * 1.5]]))


@dataclass(frozen=True)
class Roof:
    """Peak and bandwidth of a made-up system, in FLOP/s and B/s; low enough to bind at small coordinates."""

    peak: float
    mem_bw: float


@st.composite
def roofs(draw: st.DrawFn) -> Roof:
    """Systems bound by compute, by memory, or by either depending on the shape."""
    return Roof(10.0 ** draw(st.floats(10, 15, width=32)), 10.0 ** draw(st.floats(9, 13, width=32)))


@st.composite
def product_rows(draw: st.DrawFn, powers_of_two: bool) -> list[tuple[int, int, int, float]]:
    """Rows `(m, n, k, latency)` of a product table: ragged curves, in any order, some keys twice.

    Shapes of powers of two make ties between distances, exact in binary; others make none.
    """
    if powers_of_two:
        side = st.integers(4, 14).map(lambda e: 2**e)
    else:
        side = st.integers(16, 16384)
    shapes = draw(st.lists(st.tuples(side, side), min_size=SITES, max_size=SITES, unique=True))
    tokens = draw(st.lists(st.integers(1, 4096), min_size=TOKENS, max_size=TOKENS, unique=True))
    ascending = sorted(tokens)
    rows = []
    for n, k in shapes:
        first = draw(st.integers(0, 2))
        last = draw(st.integers(first + 1, TOKENS))
        rows += [(m, n, k, draw(latency_of_a_product)) for m in ascending[first:last]]
    order = draw(st.randoms(use_true_random=False))
    order.shuffle(rows)
    return rows + [(m, n, k, 2 * latency) for m, n, k, latency in rows[:3]]


latency_of_a_product: st.SearchStrategy[float] = st.floats(-2, 2, width=32).map(lambda e: float(np.float32(10.0**e)))


def monotone(latency_ms: np.ndarray) -> np.ndarray:
    """A table that does not fall along any axis, from any positive one."""
    for axis in range(latency_ms.ndim):
        latency_ms = np.cumsum(latency_ms, axis=axis)
    return latency_ms.astype(np.float32).astype(np.float64)
