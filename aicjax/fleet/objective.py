# SPDX-License-Identifier: Apache-2.0
"""One smooth objective of a fleet: its cost, and a price on missing the limits; differentiable in all real numbers.

Replicas, slots and chunks are real numbers: Erlang's formula is smooth in them. The limits are soft: what a pool has
too much of, lateness or load, is charged by a softplus.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import Target
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.pools import Compression, Pool, service_of, split
from aicjax.fleet.profile import Profile, slots
from aicjax.fleet.service_times import moments
from aicjax.fleet.sizing import Demand, thinned
from aicjax.fleet.ttft import ttft_survival
from aicjax.fleet.waiting import wait_law

_NOTHING = 1e-30  # share that counts as none; products with its reciprocal stay finite in float32


class Design(NamedTuple):
    """What is to be chosen.

    Attributes:
        thresholds: Context limits of all pools but the last, ascending [pool_but_last].
        gamma: Reach of compression at each threshold, from 1 [pool_but_last].
        replicas: Replicas of each pool, above 0 [pool].
    """

    thresholds: Float[Array, " pool_but_last"]
    gamma: Float[Array, " pool_but_last"]
    replicas: Float[Array, " pool"]


class Problem(NamedTuple):
    """What is given; all real numbers, so that the objective has a gradient in each.

    Attributes:
        profiles: Replicas of each pool, the shortest first, stacked [pool].
        lengths: Law of all requests.
        max_tokens: Context limit of the last pool.
        demand: Arrivals; availability is not read.
        target: Limits of each pool: the percentile of TTFT and the largest load.
        compression: Success and latency; its gamma is not read.
    """

    profiles: Profile
    lengths: Lengths
    max_tokens: FloatScalar
    demand: Demand
    target: Target
    compression: Compression


class Softness(NamedTuple):
    """How missed limits are charged.

    Attributes:
        usd_per_hour: Charge for a pool with e times as many late requests as allowed, or e times the load.
        width: Excess, as a logarithm, over which the charge sets in.
    """

    usd_per_hour: FloatScalar
    width: FloatScalar


def objective(design: Design, problem: Problem, softness: Softness) -> Float[Array, ""]:
    """Cost per hour and the charge for missed limits [USD/h]; differentiable in all arguments."""
    profiles = problem.profiles
    late, loaded = excess(design, problem)
    charge = jnp.sum(softplus(late, softness.width) + softplus(loaded, softness.width))
    return jnp.sum(design.replicas * profiles.price_per_hour) + softness.usd_per_hour * charge


def excess(design: Design, problem: Problem) -> tuple[Float[Array, " pool"], Float[Array, " pool"]]:
    """Logarithms of late requests over those allowed and of load over the largest load; at most 0 where limits hold."""
    compression = problem.compression._replace(gamma=design.gamma)
    pools = split(problem.profiles, problem.lengths, design.thresholds, problem.max_tokens, compression)

    def of_pool(pool: Pool, replicas: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        rate_per_s, cv2 = thinned(problem.demand, pool.share)
        service = service_of(pool, whole=False)
        servers = replicas * slots(pool.profile, pool.max_tokens, whole=False)
        wait = wait_law(servers, rate_per_s, service, cv2)
        late = ttft_survival(wait, service, problem.target.limit_s)
        load = rate_per_s * moments(service)[0] / servers
        allowed = 1.0 - jnp.asarray(problem.target.quantile, float)
        return _log(late / allowed), _log(jnp.asarray(load / problem.target.rho_max))

    return jax.vmap(of_pool)(pools, design.replicas)


def softplus(x: Float[Array, "*axes"], width: FloatScalar) -> Float[Array, "*axes"]:
    """max(x, 0), rounded over `width`."""
    return jax.nn.softplus(x / width) * width


def _log(x: Float[Array, ""]) -> Float[Array, ""]:
    """Logarithm that is finite, and has no slope, where nothing is left."""
    return jnp.log(jnp.maximum(x, _NOTHING))
