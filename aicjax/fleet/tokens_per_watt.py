# SPDX-License-Identifier: Apache-2.0
"""Output tokens for the power and the money that a fleet takes."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import PoolLoad, Target, pool_load
from aicjax.fleet.cdf import DEFAULT_INPUT_SHARE, Knots
from aicjax.fleet.cost import usd_per_million
from aicjax.fleet.pool_power import PoolPower, pool_power
from aicjax.fleet.pools import Pool, service_of
from aicjax.fleet.profile import floats, running_context, slots, unnamed
from aicjax.fleet.rules import SANE, Rules

LEAST_RHO, MOST_RHO = 0.05, 0.95  # utilisations that replicas can be counted for
_ROUNDING = 1e-9  # of a mean, so that a whole one stays whole


class Efficiency(NamedTuple):
    """A pool, or the sum of several.

    Attributes:
        tokens_per_s: Output tokens.
        watts: Power of all GPUs.
        usd_per_hour: Price of all replicas.
    """

    tokens_per_s: Float[Array, "*axes"]
    watts: Float[Array, "*axes"]
    usd_per_hour: Float[Array, "*axes"]

    @property
    def tokens_per_joule(self) -> Float[Array, "*axes"]:
        """Output tokens per second and watt; 0 without power."""
        return _ratio(self.tokens_per_s, self.watts)

    @property
    def usd_per_million_tokens(self) -> Float[Array, "*axes"]:
        """Price of a million output tokens; 0 without any."""
        some = self.tokens_per_s > 0
        return jnp.where(some, usd_per_million(self.usd_per_hour, jnp.where(some, self.tokens_per_s, 1.0)), 0.0)

    def total(self) -> "Efficiency":
        """The sum over the last axis."""
        return jax.tree.map(lambda leaf: leaf.sum(axis=-1), self)


def pool_efficiency(
    pool: Pool,
    load: PoolLoad,
    rate_per_s: FloatScalar,
    availability: FloatScalar = 1.0,
    *,
    mean_osl: FloatScalar | None = None,
    rules: Rules = SANE,
) -> tuple[Efficiency, PoolPower]:
    """What one pool yields at its load, and the power of its replicas; `vmap` adds pools.

    Args:
        pool: The pool; its profile has a power law.
        load: Its replicas and utilisation, one state or several [...].
        rate_per_s: Requests that it serves per second.
        availability: Share of the time that a replica is up; all are paid.
        mean_osl: Output tokens of a request; those of its law where None.
        rules: `least_integer_load` reads power at whole requests.
    """
    room = slots(pool.profile, pool.max_tokens).astype(load.replicas.dtype)
    context = running_context(*pool.lengths, pool.profile.chunk_tokens)
    power = pool_power(pool.profile, load.replicas * availability, room, load.utilization, context, rules)
    if mean_osl is None:
        mean_osl = jnp.sum(pool.lengths.osl * pool.lengths.weight)
    served = jnp.broadcast_to(jnp.asarray(rate_per_s, float) * mean_osl, power.pool_w.shape)
    return Efficiency(served, power.pool_w, load.replicas * pool.profile.price_per_hour), power


def at_utilization(
    pool: Pool,
    utilization: FloatScalar,
    rate_per_s: FloatScalar,
    target: Target,
    arrival_cv2: FloatScalar = 1.0,
    rules: Rules = SANE,
) -> PoolLoad:
    """The state of a pool with as many replicas as keep its utilisation at most as stated.

    Args:
        pool: The pool.
        utilization: Share of the slots that may be busy; counts as 0.05 or 0.95 where it is beyond.
        rate_per_s: Requests that it serves per second.
        target: Limit of the verdict.
        arrival_cv2: Squared coefficient of variation of the times between arrivals.
        rules: Those of services and waits.
    """
    alike = pool._replace(profile=unnamed(pool.profile))
    return _at_utilization(*floats((alike, utilization, rate_per_s, target, arrival_cv2)), rules)


@functools.partial(jax.jit, static_argnames="rules")
def _at_utilization(
    pool: Pool,
    utilization: Float[Array, ""],
    rate_per_s: Float[Array, ""],
    target: Target,
    arrival_cv2: Float[Array, ""],
    rules: Rules,
) -> PoolLoad:
    service = service_of(pool, rules=rules)
    room = slots(pool.profile, pool.max_tokens).astype(service.service_s.dtype)
    busy = rate_per_s * jnp.sum(service.service_s * service.weight) / jnp.maximum(room, 1.0)
    replicas = jnp.maximum(jnp.ceil(busy / jnp.clip(utilization, LEAST_RHO, MOST_RHO)), 1.0)
    return pool_load(replicas, room, rate_per_s, service, target, arrival_cv2, rules=rules)


def binned_mean_osl(knots: Knots, input_share: float = DEFAULT_INPUT_SHARE) -> float:
    """Output tokens of a request as the fleet reference has them: whole, from middles of bins that begin at 0."""
    middles = (knots.tokens + np.append(0.0, knots.tokens[:-1])) / 2.0
    mean_tokens = float(middles @ np.diff(knots.shares, prepend=0.0))
    return max(1.0, np.floor(mean_tokens * (1.0 - input_share) + _ROUNDING))


def _ratio(part: Float[Array, "*axes"], whole: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1.0), 0.0)
