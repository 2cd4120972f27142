# SPDX-License-Identifier: Apache-2.0
"""Candidate fleets checked by simulation: the percentile with its interval, and how sure it is that limits are met."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc
from jaxtyping import Array, Bool, Float

from aicjax._results import InputError
from aicjax.fleet.capacity import Target
from aicjax.fleet.pool_queue import simulate_queues
from aicjax.fleet.pools import Pool, service_of
from aicjax.fleet.profile import slots
from aicjax.fleet.service_times import ServiceLaw
from aicjax.fleet.sizing import Demand, thinned
from aicjax.fleet.statistics import Interval, after_warm_up, quantile_interval

LIKELY = 0.5  # probability from which on a simulated limit counts as met
REQUESTS = 5000  # of a seed and pool
SEEDS = 8
LEAST_RATE_PER_S = 1e-9  # of a pool without requests, which is simulated and then left out


class Verification(NamedTuple):
    """What simulations say about fleets.

    Attributes:
        ttft_s: TTFT at the percentile and its 95 % interval; 0 for pools without requests [fleet pool].
        within_limit: Share of the requests whose TTFT is within the limit [fleet pool].
        confidence: Probability that at least the percentile's share of the requests is within the limit [fleet pool].
        all_confidence: Probability that this holds for every pool [fleet].
    """

    ttft_s: Interval
    within_limit: Float[np.ndarray, "fleet pool"]
    confidence: Float[np.ndarray, "fleet pool"]
    all_confidence: Float[np.ndarray, " fleet"]

    @property
    def met(self) -> Bool[np.ndarray, " fleet"]:
        """Whether the estimate of every pool meets the limit: more likely than not."""
        return np.all(self.confidence >= LIKELY, axis=-1)


def verified(
    key: Array,
    pools: Pool,
    replicas: Float[Array, "fleet pool"],
    demand: Demand,
    target: Target,
    *,
    requests: int = REQUESTS,
    seeds: int = SEEDS,
) -> Verification:
    """Simulates fleets slot by slot, all of them, all pools and all seeds at once, with common random numbers.

    Args:
        key: Random key.
        pools: Pools of each fleet [fleet pool].
        replicas: Whole replicas of each pool.
        demand: Arrivals of all requests, of which each pool gets a random share.
        target: Limit of each pool.
        requests: Requests of a seed and a pool, the first fifth of which is not counted.
        seeds: Independent runs.

    Raises:
        InputError: Too few requests for an interval.
    """
    laws, servers = _laws(pools, jnp.asarray(replicas, float))
    share = np.asarray(pools.share)
    empty = (share <= 0) | (np.asarray(replicas) <= 0)
    rate, cv2 = (np.asarray(of_pool) for of_pool in thinned(demand, share))
    sample = simulate_queues(
        key,
        jax.tree.map(lambda leaf: leaf.reshape(share.size, -1), laws),
        np.where(empty, LEAST_RATE_PER_S, rate).ravel(),
        np.maximum(servers, 1).ravel(),
        requests=requests,
        seeds=seeds,
        arrival_cv2=None if float(demand.arrival_cv2) == 1.0 else np.broadcast_to(cv2, share.shape).ravel(),
        settled=True,
    )
    ttft_s = after_warm_up(sample.ttft_s).reshape(*share.shape, seeds, -1)
    interval = quantile_interval(ttft_s, float(target.quantile))
    if interval is None:
        raise InputError("requests", requests, f"enough for a batch of each of {seeds} seeds after the warm-up")
    shares = (ttft_s <= float(target.limit_s)).mean(axis=-1)
    confidence = np.where(empty, 1.0, share_confidence(shares, float(target.quantile), ttft_s.shape[-1]))
    return Verification(
        ttft_s=Interval(*(np.where(empty, 0.0, end) for end in interval)),
        within_limit=np.where(empty, 1.0, shares.mean(axis=-1)),
        confidence=confidence,
        all_confidence=confidence.prod(axis=-1),
    )


def share_confidence(shares: Float[np.ndarray, "*axes run"], least: float, requests: int) -> Float[np.ndarray, "*axes"]:
    """Probability that the long-run share is at least `least`, from the shares of independent runs.

    Student's law of the mean of the runs; its deviation is not taken below that of independent requests whose share is
    just `least`, so that a few runs that happen to agree do not count as certainty.

    Args:
        shares: Share of the requests within the limit, in each run.
        least: Share that must be within it.
        requests: Requests of a run.
    """
    runs = shares.shape[-1]
    deviation = np.maximum(
        shares.std(axis=-1, ddof=1) / np.sqrt(runs), np.sqrt(least * (1 - least) / (runs * requests))
    )
    t = (shares.mean(axis=-1) - least) / deviation
    tail = 0.5 * np.asarray(betainc((runs - 1) / 2.0, 0.5, (runs - 1) / (runs - 1 + t**2)))
    return np.where(t > 0, 1.0 - tail, tail)


@jax.jit
def _laws(pools: Pool, replicas: Float[Array, "fleet pool"]) -> tuple[ServiceLaw, Array]:
    """Laws of slot times and servers of each pool."""
    laws = jax.vmap(jax.vmap(service_of))(pools)
    room = jax.vmap(jax.vmap(lambda pool: slots(pool.profile, pool.max_tokens)))(pools)
    return laws, room * replicas.astype(room.dtype)
