# SPDX-License-Identifier: Apache-2.0
"""Pools that share requests by length: what each one serves when some requests are compressed to fit a shorter pool."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from aicjax._types import FloatScalar
from aicjax.fleet.lengths import Lengths, mean, within
from aicjax.fleet.profile import Profile, slots
from aicjax.fleet.rules import SANE, Rules
from aicjax.fleet.service_times import ServiceLaw, service_law


class Compression(NamedTuple):
    """Prompts slightly too long for a pool, shortened so that they fit.

    Attributes:
        gamma: Longest request that is tried, as a multiple of the pool's threshold; 1 compresses nothing.
        success: Share of the tried requests that may be shortened.
        latency_s: Time that shortening takes before the request is queued.
    """

    gamma: FloatScalar
    success: FloatScalar
    latency_s: FloatScalar


class Pool(NamedTuple):
    """One pool, or several along a leading axis.

    Attributes:
        profile: Its replicas.
        max_tokens: Its context limit (isl + osl), which sets the slots of a replica.
        lengths: Law of the requests that it serves, not ascending: those of its own lengths, then the compressed ones.
        delay_s: Time of each point of the law before the request is queued [point].
        share: Share of all requests that it serves; 0 leaves the law as that of all requests.
    """

    profile: Profile
    max_tokens: FloatScalar
    lengths: Lengths
    delay_s: Float[Array, " point"]
    share: Float[Array, ""]


class PoolFacts(NamedTuple):
    """What is to be said of a pool beside its load.

    Attributes:
        slots: Requests that a replica runs at once.
        max_tokens: Its context limit.
        mean_isl, mean_osl: Mean tokens of its requests.
        prefill_share: Share of the slot time that is prefill.
    """

    slots: Int[Array, "*axes"]
    max_tokens: Float[Array, "*axes"]
    mean_isl: Float[Array, "*axes"]
    mean_osl: Float[Array, "*axes"]
    prefill_share: Float[Array, "*axes"]


def only_pool(profile: Profile, lengths: Lengths, max_tokens: FloatScalar) -> Pool:
    """A pool that serves all requests up to its context limit; its share leaves out the longer ones."""
    served, share = within(lengths, 0.0, max_tokens)
    return Pool(profile, jnp.asarray(max_tokens, float), served, jnp.zeros_like(served.weight), share)


def split(
    profiles: Profile,
    lengths: Lengths,
    thresholds: Float[Array, " pool_but_last"],
    max_tokens: FloatScalar,
    compression: Compression,
) -> Pool:
    """Pools that each serve the requests above one threshold and up to the next.

    A request of `total` tokens that is longer than a threshold but at most gamma times as long goes to the shortest
    such pool, with probability `success`, if its output leaves room for a prompt there: its isl becomes the threshold
    less its osl. The others stay in the pool of their own length and in its law. Requests above `max_tokens` are
    refused: the shares of the pools sum to less than 1.

    Args:
        profiles: Replicas of each pool, stacked [pool].
        lengths: Law of all requests, ascending in total tokens.
        thresholds: Context limits of all pools but the last, ascending; real numbers count points in part.
        max_tokens: Context limit of the last pool.
        compression: Rules of compression; gamma may differ by threshold.

    Returns:
        The pools along a leading axis.
    """
    thresholds = jnp.asarray(thresholds, float)
    tops = jnp.append(thresholds, jnp.asarray(max_tokens, float))
    bottoms = jnp.append(jnp.zeros(1), thresholds)
    reach = jnp.append(jnp.maximum(compression.gamma, 1.0) * thresholds, tops[-1])
    start = jnp.maximum(tops, jnp.append(jnp.zeros(1), reach[:-1]))  # shorter ones go to a shorter pool
    osl = jnp.asarray(lengths.osl, float)
    own = _between(lengths, bottoms, tops)
    pool = jnp.arange(tops.size)
    overlap = _between(lengths, jnp.maximum(start[:, None], bottoms), jnp.minimum(reach[:, None], tops))
    fits = osl < tops[:, None, None]
    moved = jnp.where((pool[:, None] < pool)[:, :, None] & fits, compression.success * overlap, 0.0)
    weight = jnp.concatenate([own - moved.sum(axis=0), moved.sum(axis=1)], axis=1)
    share = weight.sum(axis=1)
    some = share[:, None] > 0
    whole = jnp.append(jnp.asarray(lengths.weight, weight.dtype), jnp.zeros_like(osl))
    isl = jnp.broadcast_to(jnp.asarray(lengths.isl, float), own.shape)
    shortened = jnp.maximum(tops[:, None] - osl, 1.0)
    laws = Lengths(
        isl=jnp.concatenate([isl, jnp.where(moved.sum(axis=1) > 0, shortened, isl)], axis=1),
        osl=jnp.broadcast_to(jnp.append(osl, osl), weight.shape),
        weight=jnp.where(some, weight / jnp.where(some, share[:, None], 1.0), whole),
    )
    delay = jnp.append(jnp.zeros_like(osl), jnp.full_like(osl, compression.latency_s))
    return Pool(profiles, tops, laws, jnp.broadcast_to(delay, weight.shape), share)


def service_of(pool: Pool, *, rules: Rules = SANE, whole: bool = True) -> ServiceLaw:
    """Law of slot times of one pool; the delay before the queue counts as prefill.

    Args:
        pool: The pool.
        rules: Those of service times.
        whole: Static: whole slots and chunks; else real numbers, differentiable in the context limit.
    """
    law = service_law(pool.profile, pool.lengths, pool.max_tokens, rules=rules, whole=whole)
    return law._replace(prefill_s=law.prefill_s + pool.delay_s)


def pool_facts(pool: Pool) -> PoolFacts:
    """The facts of one pool."""
    limit = jnp.asarray(pool.max_tokens, float)
    return PoolFacts(slots(pool.profile, limit), limit, *mean(pool.lengths), prefill_share(pool))


def prefill_share(pool: Pool) -> Float[Array, ""]:
    """Share of the slot time of one pool that is prefill."""
    law = service_law(pool.profile, pool.lengths, pool.max_tokens)
    return jnp.sum(law.weight * law.prefill_s) / jnp.sum(law.weight * law.service_s)


def _between(lengths: Lengths, low: Float[Array, "*axes"], high: Float[Array, "*axes"]) -> Float[Array, "*axes point"]:
    """Weight of each point above `low` and at most `high`; none where `high` is not above."""

    def weights(low: FloatScalar, high: FloatScalar) -> Float[Array, " point"]:
        law, share = within(lengths, low, high)
        return jnp.asarray(law.weight) * share

    return jnp.vectorize(weights, signature="(),()->(k)")(low, jnp.maximum(low, high))
