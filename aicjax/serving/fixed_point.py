# SPDX-License-Identifier: Apache-2.0
"""Fixed points of scalar maps, differentiable."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_HALVINGS = 40  # of the interval that holds the fixed point: beyond float32


def fixed_point(after: Callable[[Float[Array, ""]], Float[Array, ""]], most: Float[Array, ""]) -> Float[Array, ""]:
    """The x in [0, most] with after(x) = x, by halving; its gradient by the implicit function theorem.

    Args:
        after: From at least 0 at 0 to at most `most` at `most`.
        most: Upper bound.
    """

    def halve(_: int, ends: tuple[Float[Array, ""], Float[Array, ""]]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        low, high = ends
        middle = (low + high) / 2.0
        above = after(middle) > middle
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    most = jax.lax.stop_gradient(most)
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(most), most))
    found = jax.lax.stop_gradient((low + high) / 2.0)
    value, slope = jax.jvp(after, (found,), (jnp.ones_like(found),))
    return found + (value - found) / (1.0 - jax.lax.stop_gradient(slope))
