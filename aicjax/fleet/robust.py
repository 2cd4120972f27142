# SPDX-License-Identifier: Apache-2.0
"""Fleets that hold whatever the mixture of requests: the worst case over mixtures of laws of lengths."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import Target
from aicjax.fleet.lengths import Lengths, joined
from aicjax.fleet.pools import Compression, split
from aicjax.fleet.profile import Profile
from aicjax.fleet.sizing import Demand, Sizing, sized


class RobustSizing(NamedTuple):
    """Replicas that hold for every mixture that is looked at.

    Attributes:
        replicas: Most that any mixture needs, of each pool [pool].
        worst: Mixture that needs most, of each pool [pool law].
        usd_per_hour: Price of these replicas.
        sizing: What each mixture needs by itself [mixture].
    """

    replicas: Float[Array, " pool"]
    worst: Float[Array, "pool law"]
    usd_per_hour: Float[Array, ""]
    sizing: Sizing


def mixtures_within(shares: Float[np.ndarray, " law"], radius: float, steps: int = 4) -> np.ndarray:
    """Mixtures that move at most `radius` of the requests between laws: the extreme ones and some towards the middle.

    An extreme mixture gives all that moves to one law and takes it from the others in some order, each until nothing is
    left of it. The rest lie between an extreme one and `shares`, in equal steps.

    Args:
        shares: The mixture expected; sums to 1.
        radius: Share of the requests that may be of another law than expected, in [0, 1].
        steps: Mixtures on the way to each extreme one, itself included.

    Returns:
        Mixtures, the expected one first [mixture law].
    """
    count = len(shares)
    order = np.array(list(itertools.permutations(range(count))))  # the first gains, the others give in this order
    held = shares[order[:, 1:]]
    given = np.clip(radius - (np.cumsum(held, axis=1) - held), 0.0, held)
    change = np.zeros(order.shape)
    np.put_along_axis(change, order, np.concatenate([given.sum(axis=1, keepdims=True), -given], axis=1), axis=1)
    part = np.linspace(0.0, 1.0, steps + 1)[1:, None, None]
    ways = shares + part * np.unique(change.round(12), axis=0)
    return np.concatenate([shares[None], ways.reshape(-1, count)])


def robust_sizing(
    profiles: Profile,
    laws: Sequence[Lengths],
    mixtures: Float[np.ndarray, "mixture law"],
    thresholds: Float[Array, " pool_but_last"],
    max_tokens: FloatScalar,
    demand: Demand,
    target: Target,
    compression: Compression,
) -> RobustSizing:
    """The least replicas of each pool that meet a target under each of many mixtures of laws.

    Thresholds and compression are those of the running fleet, so that they are the same for all mixtures.

    Args:
        profiles: Replicas of each pool, stacked [pool].
        laws: Laws of lengths that are mixed.
        mixtures: Shares of the laws; each row sums to 1.
        thresholds: Context limits of all pools but the last.
        max_tokens: Context limit of the last pool.
        demand: Arrivals of all requests.
        target: Limit that each pool meets.
        compression: Rules of compression.
    """
    points, weights = joined(laws)
    shares = jnp.asarray(mixtures, float)
    mixed = jnp.matmul(shares, jnp.asarray(weights, float), precision="highest")
    sizing = _sized(profiles, points, mixed, thresholds, max_tokens, demand, target, compression)
    replicas = sizing.load.replicas.max(axis=0)
    worst = shares[sizing.load.replicas.argmax(axis=0)]
    return RobustSizing(replicas, worst, jnp.sum(replicas * profiles.price_per_hour), sizing)


@jax.jit
def _sized(
    profiles: Profile,
    points: Lengths,
    weights: Float[Array, "mixture point"],
    thresholds: Float[Array, " pool_but_last"],
    max_tokens: FloatScalar,
    demand: Demand,
    target: Target,
    compression: Compression,
) -> Sizing:
    """What each mixture needs by itself [mixture]."""

    def one(weight: Float[Array, " point"]) -> Sizing:
        pools = split(profiles, points._replace(weight=weight), thresholds, max_tokens, compression)
        return sized(pools, demand, target)

    return jax.vmap(one)(weights)
