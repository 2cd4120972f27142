# SPDX-License-Identifier: Apache-2.0
"""Counts in kernels, never negative: indexing and division without sign handling, and lengths in buckets."""

import jax
import jax.numpy as jnp
from jaxtyping import Int, Shaped

from aicjax._types import Array

LEAST_POINTS = 16
CONFIG_BUCKET = 4


def pick(values: Shaped[Array, "..."], *index: Int[Array, "..."]) -> Shaped[Array, "..."]:
    """`values[index]` for indices known to lie within bounds."""
    return jnp.asarray(values).at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def floor_div(count: Int[Array, "..."], by: Int[Array, "..."] | int) -> Int[Array, "..."]:
    """`count // by` for counts."""
    count, by = jnp.broadcast_arrays(count, jnp.asarray(by, count.dtype))
    return jax.lax.div(count, by)


def ceil_div(count: Int[Array, "..."], by: Int[Array, "..."] | int) -> Int[Array, "..."]:
    """Least integer not below `count / by`, for counts."""
    return floor_div(count + (by - 1), by)


def point_bucket(points: int) -> int:
    """Length to which a list of coordinates is padded, so that like sizes share one compiled kernel."""
    if points > 1024:  # two buckets between powers of two
        step = max(1024, 1 << (points.bit_length() - 2))
        return -(-points // step) * step
    return max(LEAST_POINTS, 1 << max(points - 1, 0).bit_length())


def config_bucket(configs: int) -> int:
    """Length to which an axis of layouts is padded: short, since every coordinate has it."""
    return -(-configs // CONFIG_BUCKET) * CONFIG_BUCKET
