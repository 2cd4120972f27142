# SPDX-License-Identifier: Apache-2.0
"""Two pools sized as in the fleet reference: laws from its draws, compression that moves shares and changes no law."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax.fleet.capacity import PoolLoad, Target, Verdict, least_replicas, pool_load
from aicjax.fleet.cdf import Knots, share
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.profile import Profile, slots, stacked
from aicjax.fleet.reference_draws import DRAWS, reference_draws
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.service_times import ServiceLaw, service_law
from aicjax.fleet.sizing import Sizing

LEAST_RATE_PER_S = 0.01  # up to which the long pool is left out
LEAST_LONG_SHARE = 1e-6  # up to which the long pool has no law of its own
LAWLESS_SERVICE_S = 100.0  # mean and deviation of service where requests are long but no law says how long


def reference_sweep(
    profiles: Sequence[Profile],
    knots: Knots,
    threshold: int,
    max_tokens: int,
    gammas: Sequence[float],
    rate_per_s: float,
    target: Target,
    success: float,
    availability: float = 1.0,
) -> Sizing:
    """Sizings of a short and a long pool [gamma], on the host.

    Args:
        profiles: Replicas of the short and of the long pool.
        knots: Distribution of total tokens.
        threshold: Context limit of the short pool.
        max_tokens: Context limit of the long pool.
        gammas: Reaches of compression.
        rate_per_s: Poisson arrivals.
        target: Limit on the wait for sizing, and on the TTFT for the verdict.
        success: Share of the requests between the threshold and gamma times it that go to the short pool.
        availability: Share of time that a replica is up.
    """
    short = _padded(reference_draws(short_knots(knots, threshold), threshold))
    long, lawless, shares = [], [], []
    below = float(share(knots, float(threshold)))
    for gamma in gammas:
        reach = int(gamma * threshold)
        reached = float(share(knots, float(reach)))
        lawless.append(reached >= 1.0 - LEAST_LONG_SHARE or not (knots.tokens > reach).any())
        law = long_knots(knots, reach, reached, max_tokens)
        long.append(_padded(reference_draws(law, max_tokens, max(1, reach))))
        shares.append(min(1.0, below + max(0.0, reached - below) * success))
    laws = [jax.tree.map(lambda *leaves: np.stack(leaves), short, of_gamma) for of_gamma in long]
    to_short = np.asarray(shares)
    load = _sized(
        stacked(profiles),
        jax.tree.map(lambda *leaves: np.stack(leaves), *laws),
        np.stack([np.zeros(len(shares), bool), np.asarray(lawless)], axis=1),
        np.stack([to_short, 1.0 - to_short], axis=1),
        jnp.asarray([threshold, max_tokens], float),
        jnp.asarray(rate_per_s, float),
        target,
        availability,
    )
    load = jax.tree.map(np.asarray, load)
    short_usd, long_usd = (float(profile.price_per_hour) for profile in profiles)
    counts = load.replicas.astype(np.float64)  # sums are rounded as in Python: the order of equal costs hangs on it
    usd = counts[:, 0] * short_usd + counts[:, 1] * long_usd
    on_host: Any = load, np.stack([to_short, 1.0 - to_short], axis=1), usd
    return Sizing(*on_host)


def short_knots(knots: Knots, threshold: int) -> Knots:
    """Knots up to a threshold, scaled by the last of them: what lies between it and the threshold is lost."""
    kept = knots.tokens <= threshold
    if not kept.any():
        return Knots(np.array([threshold]), np.ones(1))
    return Knots(knots.tokens[kept], knots.shares[kept] / knots.shares[kept][-1])


def long_knots(knots: Knots, reach: int, reached: float, max_tokens: int) -> Knots:
    """Knots above the reach of the short pool, where `reached` of all requests lie below; all at the limit if none."""
    kept = knots.tokens > reach
    if reached >= 1.0 or not kept.any():
        return Knots(np.array([max_tokens]), np.ones(1))
    shares = np.clip((knots.shares[kept] - reached) / (1.0 - reached), 0.0, 1.0)
    shares[-1] = 1.0
    return Knots(knots.tokens[kept], shares)


def _padded(law: Lengths) -> Lengths:
    """The law with points without weight, so that all have one shape."""
    missing = DRAWS - len(law.weight)
    isl, osl = (np.append(leaf, np.ones(missing)) for leaf in (law.isl, law.osl))
    return Lengths(*(jnp.asarray(leaf, float) for leaf in (isl, osl, np.append(law.weight, np.zeros(missing)))))


@jax.jit
def _sized(
    profiles: Profile,
    laws: Lengths,
    lawless: Array,
    shares: Array,
    max_tokens: Float[Array, " pool"],
    rate_per_s: Float[Array, ""],
    target: Target,
    availability: float,
) -> PoolLoad:
    """Both pools of each reach of compression; leaves of the laws are [gamma pool point]."""

    def one(profile: Profile, law: Lengths, lawless: Array, share: Array, limit: Array) -> PoolLoad:
        rate, room = rate_per_s * share, slots(profile, limit).astype(limit.dtype)
        service = service_law(profile, law, limit, rules=FLEET_REFERENCE)
        service = jax.tree.map(lambda known, none: jnp.where(lawless, none, known), service, _lawless(service))
        room = jnp.where(lawless, 1.0, room)
        count = least_replicas(room, rate, service, target, availability=availability, rules=FLEET_REFERENCE).replicas
        load = pool_load(count, room, rate, service, target, rules=FLEET_REFERENCE)
        verdict = jnp.where(load.ttft_s > target.limit_s, Verdict.MISSED, Verdict.MET)
        return load._replace(verdict=verdict)

    over_pools = jax.vmap(one, in_axes=(0, 0, 0, 0, 0))
    load = jax.vmap(over_pools, in_axes=(None, 0, 0, 0, None))(profiles, laws, lawless, shares, max_tokens)
    idle = jnp.stack([jnp.zeros_like(lawless[:, 0]), rate_per_s * shares[:, 1] <= LEAST_RATE_PER_S], axis=1)
    return jax.tree.map(lambda leaf: jnp.where(idle, jnp.zeros_like(leaf), leaf), load)


def _lawless(service: ServiceLaw) -> ServiceLaw:
    """Service of 0 or twice the mean, evenly, and no prefill."""
    place = jnp.arange(service.weight.size)
    times = jnp.where(place == 1, 2.0 * LAWLESS_SERVICE_S, 0.0).astype(service.service_s.dtype)
    weight = jnp.where(place < 2, 0.5, 0.0).astype(service.weight.dtype)
    return ServiceLaw(times, jnp.zeros_like(service.prefill_s), weight)
