# SPDX-License-Identifier: Apache-2.0
"""One axis of a ragged table: which of a branch's own keys enclose a coordinate.

A table has one ascending array of knots an axis, shared by all its shapes; each branch (one shape, or one row of
a shape) was measured at a subset of them. `interval` places a coordinate among the shared knots once; two small
index tables then name the branch's own neighbours, so that no kernel searches a branch.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._types import Array
from aicjax.interp.counts import pick

PAD_KNOT = np.float32(3e38)  # beyond every coordinate; finite, so that differences of pads are not NaN
NO_KEY = -1


def neighbour_keys(measured: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index tables of the nearest measured knots below and above each interval of the shared axis.

    Interval `j` lies at or above knot `j - 1` and below knot `j`.

    Args:
        measured: Which knots each branch has, bool [..., knot].

    Returns:
        `(lower, upper)`, int32 [..., knot + 1]: the greatest measured knot `<= j - 1` and the least `>= j`;
        `NO_KEY` where there is none.
    """
    knots = np.arange(measured.shape[-1], dtype=np.int32)
    none = np.full((*measured.shape[:-1], 1), NO_KEY, np.int32)
    below = np.maximum.accumulate(np.where(measured, knots, NO_KEY), axis=-1)
    above = np.minimum.accumulate(np.where(measured, knots, knots.size)[..., ::-1], axis=-1)[..., ::-1]
    above = np.where(above == knots.size, NO_KEY, above)
    lower = np.concatenate([none, below], axis=-1).astype(np.int32)
    upper = np.concatenate([above, none], axis=-1).astype(np.int32)
    return lower, upper


def interval(knots: Float[Array, " knot"], coordinate: Float[Array, "*point"]) -> Int[Array, "*point"]:
    """Interval of the shared axis that holds each coordinate, 0 (below all knots) to the number of knots.

    Counts the knots at or below, which on a hundred knots compiles and runs faster than a binary search.
    """
    return jnp.sum(knots <= coordinate[..., None], axis=-1, dtype=jnp.int32)


def enclosing(
    knots: Float[Array, " knot"],
    lower: Int[Array, "*shape"],
    upper: Int[Array, "*shape"],
    coordinate: Float[Array, "*shape"],
) -> tuple[
    Int[Array, "*shape"], Int[Array, "*shape"], Float[Array, "*shape"], Bool[Array, "*shape"], Bool[Array, "*shape"]
]:
    """The two keys around a coordinate and its place between them.

    Args:
        knots: Shared knots, ascending, padded with `PAD_KNOT`.
        lower: The branch's greatest key at or below the coordinate, or `NO_KEY`.
        upper: The branch's least key above it, or `NO_KEY`.
        coordinate: The query.

    Returns:
        `(lower, upper, weight, exact, inside)`: safe indices, the share of the upper key, whether the coordinate is
        the lower key itself, and whether the branch's range holds it.
    """
    low = jnp.maximum(lower, 0)
    high = jnp.maximum(upper, 0)
    at = pick(knots, low)
    exact = (lower >= 0) & (at == coordinate)
    inside = exact | ((lower >= 0) & (upper >= 0))
    span = jnp.where(inside & ~exact, pick(knots, high) - at, 1.0)
    weight = jnp.where(exact | ~inside, 0.0, (coordinate - at) / span)
    return low, jnp.where(exact, low, high), weight, exact, inside
