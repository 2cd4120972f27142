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
        part: The rest [s]; from 0 to 1.
        lost: What rounding has left off [s], so that sums have twice the digits.
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
    whole = jnp.floor(passed_s)
    rest = passed_s - whole
    total = clock.part + rest
    taken = total - clock.part
    lost = clock.lost + ((clock.part - (total - taken)) + (rest - taken))
    part = total + lost
    carried = jnp.floor(part)
    return Clock(clock.whole + (whole + carried).astype(jnp.int32), part - carried, lost - (part - total))


def since_s(clock: Clock, start: Clock) -> Float[Array, "..."]:
    """Time from `start` to `clock` [s]; negative where `clock` is earlier."""
    return (clock.whole - start.whole).astype(clock.part.dtype) + (clock.part - start.part)


def seconds(clock: Clock) -> Float[Array, "..."]:
    """Seconds from the beginning, as one number: exact only where it is small."""
    return clock.whole.astype(clock.part.dtype) + clock.part


def arrival_clocks(gaps_s: Float[Array, "*fleet arrival"]) -> Clock:
    """Times of arrivals from the times between them [s]; >= 0, the first since the beginning."""

    def next_arrival(clock: Clock, gap_s: Float[Array, "*fleet"]) -> tuple[Clock, Clock]:
        clock = later(clock, gap_s)
        return clock, clock

    gaps = jnp.moveaxis(gaps_s, -1, 0)
    _, arrivals = jax.lax.scan(next_arrival, clock_at(jnp.zeros_like(gaps[0])), gaps)
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), arrivals)


def where(chosen: Array, a: Clock, b: Clock) -> Clock:
    """`a` where `chosen`, else `b`."""
    return Clock(*(jnp.where(chosen, x, y) for x, y in zip(a, b, strict=True)))
