# SPDX-License-Identifier: Apache-2.0
"""Beyond the measured range: the utilisation of the nearest measured points.

The mean over the four nearest in log2 distance, weighted `((R - d) / (R d))^2` with R the distance of the fifth, so
that a point fades out as another comes nearer.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

ANCHORS = 4  # points that hold a query; the next one sets the radius
CANDIDATES = 128  # points kept for a block whose queries are close together
HOLD_BLOCK = 64  # queries that share one decision whether anything must be held
FAR_LOG2 = np.float32(1e6)  # log coordinate of a padded point: never near
TIE = 1e-5  # relative distance below which two points count as equally near (float32 rounding of log2)


def log2(coordinate: Float[Array, "..."]) -> Float[Array, "..."]:
    """Logarithm of a coordinate; zero counts as almost nothing."""
    return jnp.log2(jnp.maximum(coordinate, 1e-12))


def held_utilization(
    leaf_log2: Float[Array, "row 3 leaf"],
    leaf_utilization: Float[Array, "row leaf"],
    outer_log2: Float[Array, "row point"],
    inner_log2: Float[Array, "row point"],
    needed: Bool[Array, "row point"],
) -> Float[Array, "row point"]:
    """Utilisation that holds the queries which `needed` marks; anything elsewhere, NaN where no point was measured.

    Works in blocks of queries of one row and skips a block in which nothing is needed: most are.

    Args:
        leaf_log2: log2 offset of each point's head count, and log2 of its outer and inner coordinate.
        leaf_utilization: Utilisation of each point, 0 on padding.
        outer_log2: Outer coordinate of each query.
        inner_log2: Inner coordinate of each query.
        needed: Which queries lie outside the measured range.
    """
    rows, points = outer_log2.shape
    blocks = -(-points // HOLD_BLOCK)

    def blocked(x):
        return jnp.pad(x, ((0, 0), (0, blocks * HOLD_BLOCK - points))).reshape(rows * blocks, HOLD_BLOCK)

    def block(task):
        row, outer, inner, want = task

        def search():
            return _block_utilization(leaf_log2[row], leaf_utilization[row], outer, inner)

        return jax.lax.cond(want.any(), search, lambda: jnp.full((HOLD_BLOCK,), jnp.nan, outer.dtype))

    row = jnp.repeat(jnp.arange(rows), blocks)
    held = jax.lax.map(block, (row, blocked(outer_log2), blocked(inner_log2), blocked(needed)))
    return held.reshape(rows, -1)[:, :points]


def _block_utilization(leaf_log2, leaf_utilization, outer_log2, inner_log2):
    """Utilisation of all queries of a block, searched among the points that can be near any of them.

    The queries lie in a box. Five points are within some distance of all of it; a point farther than that from
    every part of it is no query's anchor. Most boxes are small and leave few points; for others all are searched.
    """
    gaps, reaches = [leaf_log2[0] ** 2], [leaf_log2[0] ** 2]
    for leaf, query in ((leaf_log2[1], outer_log2), (leaf_log2[2], inner_log2)):
        low, high = leaf - query.max(), query.min() - leaf
        gaps.append(jnp.maximum(jnp.maximum(low, high), 0.0) ** 2)
        reaches.append(jnp.minimum(low, high) ** 2)
    kept = sum(gaps) <= _radius_sq(sum(reaches)) * (1 + TIE)
    place = jnp.where(kept, jnp.cumsum(kept) - 1, CANDIDATES)
    candidate = jnp.full((CANDIDATES,), kept.size, place.dtype).at[place].set(jnp.arange(kept.size), mode="drop")

    def among(leaves, utilization):
        return jax.vmap(lambda outer, inner: _nearest_utilization(leaves, utilization, outer, inner))(
            outer_log2, inner_log2
        )

    def some():
        near = leaf_log2.at[:, candidate].get(mode="fill", fill_value=FAR_LOG2)
        return among(near, leaf_utilization.at[candidate].get(mode="fill", fill_value=0.0))

    return jax.lax.cond(jnp.sum(kept) <= CANDIDATES, some, lambda: among(leaf_log2, leaf_utilization))


def _radius_sq(distance_sq):
    """Square of the distance that at least five points, ties included, do not exceed."""
    rungs = [jnp.min(distance_sq)]
    for _ in range(ANCHORS):
        rungs.append(jnp.min(jnp.where(distance_sq > rungs[-1], distance_sq, FAR_LOG2**2)))
    radius_sq = rungs[-1]
    for rung in reversed(rungs[:-1]):
        radius_sq = jnp.where(jnp.sum(distance_sq <= rung, dtype=jnp.int32) > ANCHORS, rung, radius_sq)
    return radius_sq


def _nearest_utilization(leaf_log2, leaf_utilization, outer_log2, inner_log2):
    """Weighted mean utilisation of the points nearest to one query; NaN when there is none."""
    distance_sq = leaf_log2[0] ** 2 + (leaf_log2[1] - outer_log2) ** 2 + (leaf_log2[2] - inner_log2) ** 2
    distance, radius = jnp.sqrt(distance_sq + 1e-20), jnp.sqrt(_radius_sq(distance_sq))
    measured = leaf_utilization > 0
    # Fewer points than anchors: the radius reaches the padding, and plain inverse squares weigh the points.
    few = radius >= FAR_LOG2 / 2
    gap = jnp.where(radius - distance > TIE * radius, radius - distance, 0.0)
    weight = jnp.where(few, 1.0 / (distance**2 + 1e-12), (gap / (radius * distance + 1e-12)) ** 2)
    tied = jnp.sum(jnp.where(measured, weight, 0.0)) <= 0
    weight = jnp.where(tied, (distance <= radius * (1 + TIE)).astype(weight.dtype), weight)
    weight = jnp.where(measured, weight, 0.0)
    return jnp.sum(weight * leaf_utilization) / jnp.sum(weight)
