# SPDX-License-Identifier: Apache-2.0
"""Replicas that fail: how many are up, and how many spares keep enough of them up."""

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc
from jaxtyping import Array, Float, Int

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import PoolLoad, Target, Verdict
from aicjax.fleet.pools import Pool
from aicjax.fleet.sizing import Demand, stated


def availability(mtbf_hours: FloatScalar, mttr_hours: FloatScalar, parts: FloatScalar = 1.0) -> FloatScalar:
    """Share of time that a replica is up.

    A replica of several parts (GPUs, nodes) is down while any part is; parts fail and are repaired independently.

    Args:
        mtbf_hours: Mean time of a part between the end of a repair and the next failure; may be infinite.
        mttr_hours: Mean time to repair a part.
        parts: Parts that the replica needs.
    """
    return (1.0 + mttr_hours / mtbf_hours) ** -parts


def enough_up(bought: FloatScalar, needed: FloatScalar, availability: FloatScalar) -> jax.Array:
    """Probability that at least `needed` of `bought` independent replicas are up.

    The upper tail of the binomial law as an incomplete beta function, so that it is smooth in real numbers of replicas.
    One where none are needed, zero where more are needed than bought.
    """
    inside = jnp.logical_and(needed > 0, needed <= bought)
    least, spare = jnp.where(inside, needed, 1.0), jnp.where(inside, bought - needed, 0.0)
    return jnp.where(inside, betainc(least, spare + 1, availability), jnp.where(jnp.asarray(needed) > 0, 0.0, 1.0))


def up_probabilities(bought: FloatScalar, availability: FloatScalar, down: Float[Array, " down"]) -> jax.Array:
    """Probability that exactly so many of `bought` replicas are down, for each number in `down` (0, 1, 2 ...)."""
    at_most = enough_up(bought, jnp.maximum(bought - down, 0.0), availability)
    fewer = enough_up(bought, jnp.maximum(bought - down + 1, 0.0), availability)
    return jnp.where(down <= bought, at_most - fewer, 0.0)


def least_spare(
    needed: FloatScalar, availability: FloatScalar, probability: FloatScalar, most: int
) -> tuple[Int[Array, ""], jax.Array]:
    """Least spare replicas with which enough are up with a stated probability.

    Args:
        needed: Replicas that must be up.
        availability: Share of time that a replica is up.
        probability: Least probability that enough are up.
        most: Spares that are tried; static.

    Returns:
        The spares, `most` if even these do not suffice, and the probability that enough are up with them.
    """
    spare = jnp.arange(most + 1)
    chances = enough_up(needed + spare.astype(jnp.result_type(float)), needed, availability)
    chosen = jnp.argmax(jnp.where(jnp.arange(most + 1) == most, True, chances >= probability))
    return chosen, chances[chosen]


def degraded(
    pools: Pool, replicas: Float[Array, " pool"], demand: Demand, target: Target, down: Float[Array, " down"]
) -> PoolLoad:
    """State of each pool with some of its replicas down [down pool]; overloaded where none is left.

    Args:
        pools: The pools [pool].
        replicas: Replicas of each that are bought.
        demand: Arrivals of all requests, the same whatever is down.
        target: Limit of each pool.
        down: Replicas of each pool that are down.
    """

    def of(count: Float[Array, ""]) -> PoolLoad:
        load = stated(pools, jnp.maximum(replicas - count, 0.0), demand, target).load
        return load._replace(verdict=jnp.where(pools.share > 0, load.verdict, Verdict.MET))

    return jax.vmap(of)(down)
