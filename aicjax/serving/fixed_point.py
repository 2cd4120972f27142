# SPDX-License-Identifier: Apache-2.0
"""Fixed points of scalar maps, differentiable, and the halving that finds them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_HALVINGS = 40  # of an interval: beyond float32


def halved(
    below: Callable[[Float[Array, ""]], Bool[Array, ""]], low: Float[Array, ""], high: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The ends of the interval from `low` to `high`, narrowed to the x up to which `below(x)` holds."""

    def halve(_: int, ends: tuple[Float[Array, ""], Float[Array, ""]]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        low, high = ends
        middle = (low + high) / 2.0
        holds = below(middle)
        return jnp.where(holds, middle, low), jnp.where(holds, high, middle)

    return jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))


def fixed_point(after: Callable[[Float[Array, ""]], Float[Array, ""]], most: Float[Array, ""]) -> Float[Array, ""]:
    """The x in [0, most] with after(x) = x, by halving; its gradient by the implicit function theorem.

    Args:
        after: From at least 0 at 0 to at most `most` at `most`.
        most: Upper bound.
    """
    most = jax.lax.stop_gradient(most)
    low, high = halved(lambda x: after(x) > x, jnp.zeros_like(most), most)
    found = jax.lax.stop_gradient((low + high) / 2.0)
    value, slope = jax.jvp(after, (found,), (jnp.ones_like(found),))
    return found + (value - found) / (1.0 - jax.lax.stop_gradient(slope))
