# SPDX-License-Identifier: Apache-2.0
"""A short and a long pool, or more: thresholds and reaches of compression, all sized in one evaluation."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import Target
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.pools import Compression, split
from aicjax.fleet.profile import Profile
from aicjax.fleet.sizing import Demand, Sizing, sized


def gamma_sweep(
    profiles: Profile,
    lengths: Lengths,
    thresholds: Float[Array, " pool_but_last"],
    max_tokens: FloatScalar,
    gammas: Float[Array, " gamma"],
    demand: Demand,
    target: Target,
    compression: Compression,
) -> Sizing:
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

    Returns:
        Sizings [gamma].
    """

    def at(gamma: Float[Array, ""]) -> Sizing:
        return sized(
            split(profiles, lengths, thresholds, max_tokens, compression._replace(gamma=gamma)), demand, target
        )

    return jax.vmap(at)(jnp.asarray(gammas, float))
