# SPDX-License-Identifier: Apache-2.0
"""The least whole number that meets a condition, compiled: no count is fixed when it is traced."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def least_count(
    meets: Callable[[Float[Array, ""]], Bool[Array, ""]], floor: Float[Array, ""], most: Float[Array, ""]
) -> Float[Array, ""]:
    """The least whole number from `floor` that meets a condition which holds for all larger ones; `most` where none.

    Doubles the step until the condition holds, then halves the interval.
    """

    def grows(state: tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]) -> Bool[Array, ""]:
        _, high, met = state
        return ~met & (high < most)

    def grow(
        state: tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]],
    ) -> tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        _, high, _ = state
        further = jnp.minimum(floor + 2.0 * (high - floor) + 1.0, most)
        return high + 1.0, further, meets(further)

    low, high, _ = jax.lax.while_loop(grows, grow, (floor, floor, meets(floor)))

    def halve(ends: tuple[Float[Array, ""], Float[Array, ""]]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        low, high = ends
        middle = jnp.floor((low + high) / 2.0)
        met = meets(middle)
        return jnp.where(met, low, middle + 1.0), jnp.where(met, middle, high)

    return jax.lax.while_loop(lambda ends: ends[0] < ends[1], halve, (low, high))[1]
