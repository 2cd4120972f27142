# SPDX-License-Identifier: Apache-2.0
"""Points in time that stay exact in float32 however long a run is: whole seconds and a part of one."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

MOST_SECONDS = 2**30  # whole seconds stand in 32 bits


class Clock(NamedTuple):
    """A point in time.

    Attributes:
        whole: Whole seconds.
        part: The rest [s]; in [0, 1).
        lost: What rounding has taken from the rest [s] (Kahan's compensation); zero where nothing is added up.
    """

    whole: Int[Array, "..."]
    part: Float[Array, "..."]
    lost: Float[Array, "..."]


def clock_at(seconds: Float[Array, "..."]) -> Clock:
    """The clock at so many seconds, at most 2^30."""
    seconds = jnp.minimum(seconds, MOST_SECONDS)
    whole = jnp.floor(seconds)
    return Clock(whole.astype(jnp.int32), seconds - whole, jnp.zeros_like(seconds))


def later(clock: Clock, passed_s: Float[Array, "..."]) -> Clock:
    """The clock after a time has passed [s]; >= 0."""
    added = passed_s - clock.lost
    total = clock.part + added
    lost = (total - clock.part) - added
    whole = jnp.floor(total)
    return Clock(clock.whole + whole.astype(jnp.int32), total - whole, lost)


def since_s(clock: Clock, start: Clock) -> Float[Array, "..."]:
    """Time from `start` to `clock` [s]; negative where `clock` is earlier."""
    return (clock.whole - start.whole).astype(clock.part.dtype) + (clock.part - start.part)


def seconds(clock: Clock) -> Float[Array, "..."]:
    """Seconds from the beginning, as one number: exact only where it is small."""
    return clock.whole.astype(clock.part.dtype) + clock.part


def arrival_clocks(gaps_s: Float[Array, "*fleet arrival"]) -> Clock:
    """Times of arrivals from the times between them [s]; >= 0, the first since the beginning."""

    def add(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        part = a[1] + b[1]
        whole = jnp.floor(part)
        return a[0] + b[0] + whole.astype(jnp.int32), part - whole

    gaps = clock_at(gaps_s)
    whole, part = jax.lax.associative_scan(add, (gaps.whole, gaps.part), axis=-1)
    return Clock(whole, part, jnp.zeros_like(part))


def where(chosen: Array, a: Clock, b: Clock) -> Clock:
    """`a` where `chosen`, else `b`."""
    return Clock(*(jnp.where(chosen, x, y) for x, y in zip(a, b, strict=True)))
