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
    leaf_log2: Float[Array, "row coordinate leaf"],
    leaf_utilization: Float[Array, "row leaf"],
    places: tuple[Float[Array, "row point"], ...],
    needed: Bool[Array, "row point"],
) -> Float[Array, "row point"]:
    """Utilisation that holds the queries which `needed` marks; anything elsewhere, NaN where no point was measured.

    Works in blocks of queries of one row and skips a block in which nothing is needed: most are.

    Args:
        leaf_log2: log2 offset of each point from its row on the outermost axis, and log2 of its other coordinates.
        leaf_utilization: Utilisation of each point, 0 on padding.
        places: log2 of the other coordinates of each query.
        needed: Which queries lie outside the measured range.
    """
    rows, points = needed.shape
    blocks = -(-points // HOLD_BLOCK)

    def blocked(x):
        return jnp.pad(x, ((0, 0), (0, blocks * HOLD_BLOCK - points))).reshape(rows * blocks, HOLD_BLOCK)

    def block(task):
        row, place, want = task

        def search():
            return _block_utilization(leaf_log2[row], leaf_utilization[row], jnp.stack(place))

        return jax.lax.cond(want.any(), search, lambda: jnp.full((HOLD_BLOCK,), jnp.nan, leaf_utilization.dtype))

    row = jnp.repeat(jnp.arange(rows), blocks)
    held = jax.lax.map(block, (row, tuple(blocked(place) for place in places), blocked(needed)))
    return held.reshape(rows, -1)[:, :points]


def _block_utilization(leaf_log2, leaf_utilization, place):
    """Utilisation of all queries of a block, searched among the points that can be near any of them.

    The queries lie in a box. Five points are within some distance of all of it; a point farther than that from
    every part of it is no query's anchor. Most boxes are small and leave few points; for others all are searched.
    """
    offset_sq, leaf = leaf_log2[0] ** 2, leaf_log2[1:]
    low, high = leaf - place.max(1, keepdims=True), place.min(1, keepdims=True) - leaf
    gap_sq = offset_sq + jnp.sum(jnp.maximum(jnp.maximum(low, high), 0.0) ** 2, 0)
    reach_sq = offset_sq + jnp.sum(jnp.minimum(low, high) ** 2, 0)
    kept = gap_sq <= _radius_sq(reach_sq) * (1 + TIE)
    slot = jnp.where(kept, jnp.cumsum(kept) - 1, CANDIDATES)
    candidate = jnp.full((CANDIDATES,), kept.size, slot.dtype).at[slot].set(jnp.arange(kept.size), mode="drop")

    def among(leaves, utilization):
        return jax.vmap(lambda query: _nearest_utilization(leaves, utilization, query), in_axes=1)(place)

    def some():
        near = leaf_log2.at[:, candidate].get(mode="fill", fill_value=FAR_LOG2)
        return among(near, leaf_utilization.at[candidate].get(mode="fill", fill_value=0.0))

    return jax.lax.cond(jnp.sum(kept) <= CANDIDATES, some, lambda: among(leaf_log2, leaf_utilization))


def _radius_sq(distance_sq):
    """Square of the distance that at least five points, ties included, do not exceed."""

    def farther(_, rung):
        reached = jnp.sum(distance_sq <= rung, dtype=jnp.int32) > ANCHORS
        return jnp.where(reached, rung, jnp.min(jnp.where(distance_sq > rung, distance_sq, FAR_LOG2**2)))

    return jax.lax.fori_loop(0, ANCHORS, farther, jnp.min(distance_sq))


def _nearest_utilization(leaf_log2, leaf_utilization, place):
    """Weighted mean utilisation of the points nearest to one query; NaN when there is none."""
    distance_sq = leaf_log2[0] ** 2 + jnp.sum((leaf_log2[1:] - place[:, None]) ** 2, 0)
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
