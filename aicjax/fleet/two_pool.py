# SPDX-License-Identifier: Apache-2.0
"""A short and a long pool, or more: all reaches of compression sized in one evaluation, and the cheapest of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import Target
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.pools import Compression, Pool, PoolFacts, pool_facts, split
from aicjax.fleet.profile import Profile
from aicjax.fleet.sizing import Demand, Sizing, cheapest, sized


class Sweep(NamedTuple):
    """Fleets by reach of compression.

    Attributes:
        sizing: Replicas and what they do [*axes gamma].
        facts: What the pools are [*axes gamma pool].
    """

    sizing: Sizing
    facts: PoolFacts


class BestReach(NamedTuple):
    """The cheapest fleet of a sweep that meets its limits, else the cheapest.

    Attributes:
        place: Position of its reach among those tried [*axes].
        gamma: That reach [*axes].
        sizing: Its replicas and what they do [*axes].
        facts: What its pools are [*axes pool].
    """

    place: Int[Array, "*axes"]
    gamma: Float[Array, "*axes"]
    sizing: Sizing
    facts: PoolFacts


def gamma_pools(
    profiles: Profile,
    lengths: Lengths,
    thresholds: Float[Array, " pool_but_last"],
    max_tokens: FloatScalar,
    gammas: Float[Array, " gamma"],
    compression: Compression,
) -> Pool:
    """The pools for each reach of compression [gamma pool]; arguments as those of `gamma_sweep`."""

    def at(gamma: Float[Array, ""]) -> Pool:
        return split(profiles, lengths, thresholds, max_tokens, compression._replace(gamma=gamma))

    return jax.vmap(at)(jnp.asarray(gammas, float))


def gamma_sweep(
    profiles: Profile,
    lengths: Lengths,
    thresholds: Float[Array, " pool_but_last"],
    max_tokens: FloatScalar,
    gammas: Float[Array, " gamma"],
    demand: Demand,
    target: Target,
    compression: Compression,
) -> Sweep:
    """The pools sized for each reach of compression.

    Args:
        profiles: Replicas of each pool, the shortest first, stacked [pool].
        lengths: Law of all requests.
        thresholds: Context limits of all pools but the last, ascending.
        max_tokens: Context limit of the last pool.
        gammas: Reaches of compression; 1 compresses nothing.
        demand: Arrivals.
        target: Limit that each pool meets.
        compression: Success and latency; its gamma is not read.
    """
    pools = gamma_pools(profiles, lengths, thresholds, max_tokens, gammas, compression)
    return Sweep(jax.vmap(lambda own: sized(own, demand, target))(pools), jax.vmap(jax.vmap(pool_facts))(pools))


def best_reach(sweep: Sweep, gammas: Float[Array, " gamma"]) -> BestReach:
    """The cheapest fleet over the reaches of a sweep, of which `gammas` are the reaches."""
    place = cheapest(sweep.sizing)

    def chosen(leaf: Array) -> Array:
        at = place.reshape(*place.shape, *[1] * (leaf.ndim - place.ndim))
        return jnp.take_along_axis(leaf, at, axis=place.ndim).squeeze(place.ndim)

    return BestReach(place, jnp.asarray(gammas, float)[place], *jax.tree.map(chosen, sweep))
