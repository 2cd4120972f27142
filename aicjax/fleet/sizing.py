# SPDX-License-Identifier: Apache-2.0
"""The least replicas of every pool of a fleet, and what the fleet costs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import PoolLoad, Target, Verdict, least_replicas, pool_load
from aicjax.fleet.pools import Pool, service_of
from aicjax.fleet.profile import slots


class Demand(NamedTuple):
    """What comes, and how much of what is bought is there.

    Attributes:
        rate_per_s: Arrivals of all requests.
        arrival_cv2: Squared coefficient of variation of the times between arrivals; 1 for Poisson.
        availability: Share of time that a replica is up; so many more are bought.
    """

    rate_per_s: FloatScalar
    arrival_cv2: FloatScalar = 1.0
    availability: FloatScalar = 1.0


class Sizing(NamedTuple):
    """Replicas of a fleet and what they do; leaves may have more leading axes.

    Attributes:
        load: Replicas and state of each pool at its share of the rate [pool].
        share: Share of all requests that each pool serves [pool].
        usd_per_hour: Price of all replicas.
    """

    load: PoolLoad
    share: Float[Array, "*axes pool"]
    usd_per_hour: Float[Array, "*axes"]

    @property
    def met(self) -> Bool[Array, "*axes"]:
        """Whether every pool meets its limit."""
        return jnp.all(self.load.verdict == Verdict.MET, axis=-1)

    @property
    def worst_ttft_s(self) -> Float[Array, "*axes"]:
        """TTFT at the percentile of the slowest pool."""
        return jnp.max(self.load.ttft_s, axis=-1)

    @property
    def refused(self) -> Float[Array, "*axes"]:
        """Share of the requests that are longer than every context limit."""
        return jnp.maximum(1.0 - jnp.sum(self.share, axis=-1), 0.0)


def sized(pools: Pool, demand: Demand, target: Target) -> Sizing:
    """The least replicas of each pool that meet a target; none for a pool without requests.

    Args:
        pools: The pools [pool].
        demand: Arrivals of all requests.
        target: Limit that each pool meets.
    """

    def least(pool: Pool) -> PoolLoad:
        rate, cv2 = thinned(demand, pool.share)
        found = least_replicas(_slots(pool), rate, service_of(pool), target, cv2, availability=demand.availability)
        return jax.tree.map(lambda leaf: jnp.where(pool.share > 0, leaf, jnp.zeros_like(leaf)), found)

    return _priced(pools, jax.vmap(least)(pools))


def stated(pools: Pool, replicas: Float[Array, " pool"], demand: Demand, target: Target) -> Sizing:
    """The state of a fleet with stated replicas that are all up.

    Args:
        pools: The pools [pool].
        replicas: Replicas of each pool, above 0; real numbers are allowed.
        demand: Arrivals of all requests; availability is not read.
        target: Limit that each pool should meet.
    """

    def load(pool: Pool, count: FloatScalar) -> PoolLoad:
        rate, cv2 = thinned(demand, pool.share)
        return pool_load(count, _slots(pool), rate, service_of(pool), target, cv2)

    return _priced(pools, jax.vmap(load)(pools, jnp.asarray(replicas, float)))


def thinned(demand: Demand, share: FloatScalar) -> tuple[FloatScalar, FloatScalar]:
    """Rate and squared coefficient of variation of the arrivals of a random share of independent gaps."""
    return demand.rate_per_s * share, 1.0 + share * (demand.arrival_cv2 - 1.0)


def cheapest(sizings: Sizing) -> Int[Array, "*axes"]:
    """Position on the last axis of the cheapest that meets its limits, else of the cheapest; the first of equals."""
    usd, met = sizings.usd_per_hour, sizings.met
    return jnp.argmin(jnp.where(met | ~met.any(axis=-1, keepdims=True), usd, jnp.inf), axis=-1)


def _slots(pool: Pool) -> Float[Array, ""]:
    return slots(pool.profile, pool.max_tokens).astype(pool.share.dtype)


def _priced(pools: Pool, load: PoolLoad) -> Sizing:
    return Sizing(load, pools.share, jnp.sum(load.replicas * pools.profile.price_per_hour))
