# SPDX-License-Identifier: Apache-2.0
"""The least whole number that meets a condition, compiled: no count is fixed when it is traced."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_State = tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]  # least and largest possible; whether between them


def least_count(
    meets: Callable[[Float[Array, ""]], Bool[Array, ""]], floor: Float[Array, ""], most: Float[Array, ""]
) -> Float[Array, ""]:
    """The least whole number from `floor` that meets a condition which holds for all larger ones; `most` where none.

    Doubles the step until the condition holds, then halves the interval: one loop, so that the condition is compiled
    once.
    """

    def open_still(state: _State) -> Bool[Array, ""]:
        low, high, between = state
        return ~between | (low < high)

    def narrow(state: _State) -> _State:
        low, high, between = state
        tried = jnp.where(between, jnp.floor((low + high) / 2.0), high)
        met = meets(tried)
        further = jnp.minimum(floor + 2.0 * (high - floor) + 1.0, most)
        return (
            jnp.where(met, low, jnp.minimum(tried + 1.0, most)),
            jnp.where(met, tried, jnp.where(between, high, further)),
            between | met | (tried >= most),
        )

    return jax.lax.while_loop(open_still, narrow, (floor, floor, jnp.zeros((), bool)))[1]
