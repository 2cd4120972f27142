# SPDX-License-Identifier: Apache-2.0
"""Indexing and division for kernels whose integers are counts, never negative: less to compile and to run."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped


def pick(values: Shaped[Array, "..."], *index: Int[Array, "..."]) -> Shaped[Array, "..."]:
    """`values[index]` for indices known to lie within bounds."""
    return values.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def floor_div(count: Int[Array, "..."], by: Int[Array, "..."] | int) -> Int[Array, "..."]:
    """`count // by` for counts."""
    count, by = jnp.broadcast_arrays(count, jnp.asarray(by, count.dtype))
    return jax.lax.div(count, by)


def ceil_div(count: Int[Array, "..."], by: Int[Array, "..."] | int) -> Int[Array, "..."]:
    """Least integer not below `count / by`, for counts."""
    return floor_div(count + (by - 1), by)
