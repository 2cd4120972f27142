# SPDX-License-Identifier: Apache-2.0
"""Requests under way when a run begins, so that a run need not last many service times before it counts.

Where requests hold slots for longer than a run, one that starts empty never meets its usual load. As many requests as
the load keeps in service stand before the others at time zero, each drawn by its time in service and with a uniform
part of it left: the law of those found in service when none waits. They are routed like the others.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax.fleet.fleet_state import Times
from aicjax.fleet.lengths import drawn
from aicjax.fleet.routing import LEAST_LOADED, Route


class Stream(NamedTuple):
    """Requests in order of arrival, with all that a run asks of each."""

    gaps_s: Float[Array, " n"]
    route: Route
    times: Times
    draws: Float[Array, "n two"]


def slot_times(route: Route, times: Times) -> Float[Array, " n"]:
    """Time that each request holds a slot of the pool of its route; zero where it cannot be served [s].

    Of the shortest where the load decides.
    """
    own = jnp.take_along_axis(times.service_s, jnp.maximum(route.pool, 0)[:, None], axis=1)[:, 0]
    own = jnp.where(route.pool == LEAST_LOADED, jnp.min(times.service_s, axis=1), own)
    own = jnp.where(route.compressed, times.compressed_s, own)
    return jnp.where(jnp.isfinite(own), own, 0.0)


def with_start(stream: Stream, pool_slots: Array, draws: Float[Array, "start two"]) -> Stream:
    """The stream with requests under way before it, at time zero.

    Args:
        stream: The requests.
        pool_slots: Slots of each pool; no pool begins with requests that wait.
        draws: Two uniform draws in [0, 1) for each request under way. Those that the load does not need are refused.
    """
    held_s = slot_times(stream.route, stream.times)
    offered = jnp.sum(held_s) / jnp.sum(stream.gaps_s)
    found = drawn(jnp.cumsum(held_s), draws[:, 0])
    route, times, balance = jax.tree.map(lambda values: values[found], (stream.route, stream.times, stream.draws))
    place = jnp.arange(draws.shape[0], dtype=jnp.int32)
    mine = route.pool[:, None] == jnp.arange(pool_slots.size, dtype=jnp.int32)
    rank = jnp.sum(jnp.where(mine, jnp.cumsum(mine.astype(jnp.int32), axis=0), 0), axis=1)
    room = jnp.where(route.pool == LEAST_LOADED, jnp.sum(pool_slots), pool_slots[jnp.maximum(route.pool, 0)])
    needed = (place.astype(offered.dtype) < jnp.round(offered)) & (rank <= room)
    left = jnp.where(needed, draws[:, 1], jnp.inf)
    under_way = Stream(
        jnp.zeros_like(stream.gaps_s, shape=place.shape),
        route._replace(delay_s=jnp.zeros_like(route.delay_s)),
        Times(left[:, None] * times.service_s, left * times.compressed_s),
        balance,
    )
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), under_way, stream)
