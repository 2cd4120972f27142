# SPDX-License-Identifier: Apache-2.0
"""The cheapest fleet over reaches of compression, its best candidates verified by simulation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import Target
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.pools import Compression, Pool, split
from aicjax.fleet.profile import Profile
from aicjax.fleet.sizing import Demand, Sizing
from aicjax.fleet.two_pool import gamma_sweep
from aicjax.fleet.verify import REQUESTS, SEEDS, Verification, verified

GAMMAS = tuple(1.0 + step / 10.0 for step in range(11))
VERIFIED = 3  # candidates


class Optimum(NamedTuple):
    """Fleets in order: those that meet their limits first, then by cost, the first of them verified.

    Reaches of compression that give the same replicas as a lower one come last.

    Attributes:
        gamma: Reach of compression of each fleet [gamma].
        sizing: The fleets [gamma].
        verification: Simulations of the first ones [verified].
        chosen: Position of the first that meets its limits by simulation, else of the first.
    """

    gamma: Float[np.ndarray, " gamma"]
    sizing: Sizing
    verification: Verification
    chosen: int


def optimum(
    key: Array,
    profiles: Profile,
    lengths: Lengths,
    thresholds: Float[Array, " pool_but_last"],
    max_tokens: FloatScalar,
    demand: Demand,
    target: Target,
    compression: Compression,
    *,
    gammas: tuple[float, ...] = GAMMAS,
    candidates: int = VERIFIED,
    requests: int = REQUESTS,
    seeds: int = SEEDS,
) -> Optimum:
    """Sizes the pools for every reach of compression and simulates the cheapest fleets.

    Args:
        key: Random key of the simulations.
        profiles: Replicas of each pool, the shortest first, stacked [pool].
        lengths: Law of all requests.
        thresholds: Context limits of all pools but the last, ascending.
        max_tokens: Context limit of the last pool.
        demand: Arrivals.
        target: Limit that each pool meets.
        compression: Success and latency; its gamma is not read.
        gammas: Reaches of compression that are tried.
        candidates: Fleets that are simulated.
        requests: Simulated requests of a seed and a pool.
        seeds: Independent simulations.
    """
    reaches = np.asarray(gammas)
    lengths = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), lengths)
    sizing = jax.tree.map(
        np.asarray, _sweep(profiles, lengths, thresholds, max_tokens, reaches, demand, target, compression)
    )
    order = np.lexsort((reaches, sizing.usd_per_hour, ~sizing.met))
    replicas = sizing.load.replicas[order]
    repeated = np.array([(replicas[:row] == replicas[row]).all(axis=1).any() for row in range(len(order))])
    order = np.concatenate([order[~repeated], order[repeated]])
    reaches, sizing = reaches[order], jax.tree.map(lambda leaf: leaf[order], sizing)
    first = slice(min(candidates, int(np.sum(~repeated))))
    pools = _split(profiles, lengths, thresholds, max_tokens, reaches[first], compression)
    checked = verified(key, pools, sizing.load.replicas[first], demand, target, requests=requests, seeds=seeds)
    return Optimum(reaches, sizing, checked, int(np.argmax(checked.met)))


_sweep = jax.jit(gamma_sweep)


@jax.jit
def _split(
    profiles: Profile,
    lengths: Lengths,
    thresholds: Float[Array, " pool_but_last"],
    max_tokens: FloatScalar,
    gammas: Float[Array, " fleet"],
    compression: Compression,
) -> Pool:
    """Pools of each reach of compression [fleet pool]."""

    def at(gamma: Float[Array, ""]) -> Pool:
        return split(profiles, lengths, thresholds, max_tokens, compression._replace(gamma=gamma))

    return jax.vmap(at)(gammas)
