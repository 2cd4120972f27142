# SPDX-License-Identifier: Apache-2.0
"""Beyond the measured range: the utilisation of the nearest measured points.

The mean over the four nearest in log2 distance, weighted `((R - d) / (R d))^2` with R the distance of the fifth, so
that a point fades out as another comes nearer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from aicjax._types import Array

ANCHORS = 4  # points that hold a query; the next one sets the radius
CANDIDATES = 32  # points kept for a block whose queries are close together
HOLD_BLOCK = 64  # queries that share one decision whether anything must be held
FAR_LOG2 = np.float32(1e6)  # log coordinate of a padded point: never near
TIE = 1e-5  # relative distance below which two points count as equally near (float32 rounding of log2)


def log2(coordinate: Float[Array, "..."]) -> Float[Array, "..."]:
    """Logarithm of a coordinate; zero counts as almost nothing."""
    return jnp.log2(jnp.maximum(coordinate, 1e-12))


class Held(NamedTuple):
    """Queries of a stack of slices, and which of them must be held.

    Attributes:
        leaf_log2: log2 offset of each point from its row on the outermost axis, and log2 of its other coordinates.
        leaf_utilization: Utilisation of each point, 0 on padding.
        places: log2 of the other coordinates of each query.
        needed: Which queries lie outside the measured range.
    """

    leaf_log2: Float[Array, "row coordinate leaf"]
    leaf_utilization: Float[Array, "row leaf"]
    places: tuple[Float[Array, "row point"], ...]
    needed: Bool[Array, "row point"]


def held_utilization(stacks: Sequence[Held]) -> list[Float[Array, "row point"]]:
    """Utilisation that holds the queries marked as needed; anything elsewhere, NaN where no point was measured.

    One loop over blocks of queries of one row, of all stacks: the search is compiled once, and a block in which
    nothing is needed is skipped: most are.
    """
    axes = max(len(stack.places) for stack in stacks)
    leaves = max(CANDIDATES, *[stack.leaf_utilization.shape[1] for stack in stacks])
    parts = [_tasks(stack, axes, leaves) for stack in stacks]
    leaf_log2, leaf_utilization, place, needed = (jnp.concatenate(x) for x in zip(*parts, strict=True))
    rows = [stack.needed.shape[0] for stack in stacks]
    blocks = [part[2].shape[0] // row for part, row in zip(parts, rows, strict=True)]
    owner = jnp.repeat(jnp.arange(sum(rows)), np.repeat(blocks, rows), total_repeat_length=place.shape[0])

    def block(task):
        row, place, want = task

        def search():
            return _block_utilization(leaf_log2[row], leaf_utilization[row], place)

        return jax.lax.cond(want.any(), search, lambda: jnp.full((HOLD_BLOCK,), jnp.nan, leaf_utilization.dtype))

    held = jax.lax.map(block, (owner, place, needed))
    ends = np.cumsum([part[2].shape[0] for part in parts])[:-1]
    return [
        utilization.reshape(stack.needed.shape[0], -1)[:, : stack.needed.shape[1]]
        for stack, utilization in zip(stacks, jnp.split(held, ends), strict=True)
    ]


def _tasks(stack: Held, axes: int, leaves: int):
    """A stack with its points padded to common lengths and its queries cut into blocks [block, axis, query]."""
    rows, points = stack.needed.shape
    blocks = -(-points // HOLD_BLOCK)
    spare_axes, spare = axes - len(stack.places), leaves - stack.leaf_utilization.shape[1]
    log2_padded = jnp.pad(stack.leaf_log2, ((0, 0), (0, spare_axes), (0, spare)))
    log2_padded = log2_padded.at[:, :, leaves - spare :].set(FAR_LOG2)
    place = jnp.stack([*stack.places, *[jnp.zeros((rows, points))] * spare_axes], 1)
    tail = blocks * HOLD_BLOCK - points
    place = jnp.pad(place, ((0, 0), (0, 0), (0, tail))).reshape(rows, axes, blocks, HOLD_BLOCK).swapaxes(1, 2)
    needed = jnp.pad(stack.needed, ((0, 0), (0, tail))).reshape(-1, HOLD_BLOCK)
    utilization = jnp.pad(stack.leaf_utilization, ((0, 0), (0, spare)))
    return log2_padded, utilization, place.reshape(-1, axes, HOLD_BLOCK), needed


def _block_utilization(leaf_log2, leaf_utilization, place):
    """Utilisation of all queries of a block, searched among the points that can be near any of them.

    The queries lie in a box. Five points are within some distance of all of it; a point farther than that from
    every part of it is no query's anchor. Most boxes are small and leave few points; for others all are searched.
    """
    offset_sq, leaf = leaf_log2[0] ** 2, leaf_log2[1:]
    low, high = leaf - place.max(1, keepdims=True), place.min(1, keepdims=True) - leaf
    gap_sq = offset_sq + jnp.sum(jnp.maximum(jnp.maximum(low, high), 0.0) ** 2, 0)
    reach_sq = offset_sq + jnp.sum(jnp.minimum(low, high) ** 2, 0)
    closest, candidate = jax.lax.top_k(-gap_sq, CANDIDATES)
    # Any five points bound the distance; those of least gap do so closely.
    bound_sq = -jnp.min(jax.lax.top_k(-reach_sq[candidate], ANCHORS + 1)[0])

    def some():
        return _nearest(leaf_log2[:, candidate], leaf_utilization[candidate], place)

    enough = -jnp.min(closest) > bound_sq * (1 + TIE)
    return _mean(*jax.lax.cond(enough, some, lambda: _nearest(leaf_log2, leaf_utilization, place)))


def _nearest(leaf_log2, leaf_utilization, place):
    """Squared distance, ascending, and utilisation of the nearest points of each query [query, ANCHORS + 1]."""
    # Added axis by axis: a reduction over axes would not be vectorised.
    distance_sq = leaf_log2[0] ** 2 + sum(
        (leaf - at[:, None]) ** 2 for leaf, at in zip(leaf_log2[1:], place, strict=True)
    )
    closeness, point = jax.lax.top_k(-distance_sq, ANCHORS + 1)
    return -closeness, leaf_utilization[point]


def _mean(distance_sq, utilization):
    """Weighted mean utilisation of the nearest points of each query; NaN when there is none."""
    distance = jnp.sqrt(distance_sq + 1e-20)
    radius = jnp.max(distance, 1, keepdims=True)
    # Fewer points than anchors: the radius reaches the padding, and plain inverse squares weigh the points.
    few = radius >= FAR_LOG2 / 2
    gap = jnp.where(radius - distance > TIE * radius, radius - distance, 0.0)
    weight = jnp.where(few, 1.0 / (distance**2 + 1e-12), (gap / (radius * distance + 1e-12)) ** 2)
    weight = jnp.where(utilization > 0, weight, 0.0)
    tied = jnp.sum(weight, 1, keepdims=True) <= 0  # all on the radius: they count alike
    weight = jnp.where(tied & (utilization > 0), 1.0, weight)
    total = jnp.sum(weight, 1)
    return jnp.where(total > 0, jnp.sum(weight * utilization, 1) / jnp.where(total > 0, total, 1.0), jnp.nan)
