# SPDX-License-Identifier: Apache-2.0
"""What another rate or another GPU would take, all rates and GPUs at once, and the rate at which a fleet breaks."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import Target
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.pools import Compression, Pool
from aicjax.fleet.profile import Profile, stacked
from aicjax.fleet.sizing import Demand, stated
from aicjax.fleet.two_pool import BestReach, best_reach, gamma_sweep
from aicjax.serving.fixed_point import halved


def stacked_fleets(fleets: Sequence[Sequence[Profile]]) -> Profile:
    """Profiles of the pools of several fleets, all of as many pools, for `what_if` [gpus pool]."""
    each = stacked([profile for profiles in fleets for profile in profiles])
    return jax.tree.map(lambda leaf: leaf.reshape(len(fleets), -1, *leaf.shape[1:]), each)


def what_if(
    profiles: Profile,
    lengths: Lengths,
    thresholds: Float[Array, " pool_but_last"],
    max_tokens: FloatScalar,
    gammas: Float[Array, " gamma"],
    rates_per_s: Float[Array, " rate"],
    demand: Demand,
    target: Target,
    compression: Compression,
) -> BestReach:
    """The cheapest fleet over all reaches of compression, for each set of GPUs at each rate.

    Args:
        profiles: Replicas of the pools of each fleet [gpus pool].
        lengths: Law of all requests.
        thresholds: Context limits of all pools but the last.
        max_tokens: Context limit of the last pool.
        gammas: Reaches of compression that are tried.
        rates_per_s: Arrivals of all requests.
        demand: Burstiness and availability; its rate is not read.
        target: Limit that each pool meets.
        compression: Success and latency of compression; its gamma is not read.

    Returns:
        Fleets [gpus rate].
    """

    def best(profiles: Profile, rate_per_s: Float[Array, ""]) -> BestReach:
        at_rate = demand._replace(rate_per_s=rate_per_s)
        sweep = gamma_sweep(profiles, lengths, thresholds, max_tokens, gammas, at_rate, target, compression)
        return best_reach(sweep, gammas)

    over_rates = jax.vmap(best, in_axes=(None, 0))
    return jax.vmap(over_rates, in_axes=(0, None))(profiles, jnp.asarray(rates_per_s, float))


def breaking_rate_per_s(
    pools: Pool, replicas: Float[Array, " pool"], demand: Demand, target: Target
) -> Float[Array, ""]:
    """Largest rate of all requests at which every pool still meets its limit; 0 where none does.

    Args:
        pools: The pools [pool].
        replicas: Their replicas.
        demand: Burstiness of the arrivals; its rate is not read.
        target: Limit of each pool.
    """

    def met(rate_per_s: FloatScalar) -> Array:
        return stated(pools, replicas, demand._replace(rate_per_s=rate_per_s), target).met

    probe = stated(pools, replicas, demand._replace(rate_per_s=1.0), target)
    saturated = 1.0 / jnp.max(probe.load.utilization)
    return halved(met, jnp.zeros_like(saturated), saturated)[0]
