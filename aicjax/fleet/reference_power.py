# SPDX-License-Identifier: Apache-2.0
"""Tokens per watt as in the fleet reference: pools by its draws, and the rows that it writes of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aicjax._units import MS_PER_S, W_PER_KW
from aicjax.fleet.capacity import PoolLoad, Target, least_replicas
from aicjax.fleet.cdf import Knots
from aicjax.fleet.pool_power import PoolPower, power_law
from aicjax.fleet.pools import Pool, service_of
from aicjax.fleet.profile import Profile, slots, unnamed
from aicjax.fleet.reference_draws import reference_draws
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.tokens_per_watt import Efficiency, at_utilization, binned_mean_osl, pool_efficiency

LEAST_SHARE = 1e-6  # of the requests in a pool of the reference's split


class Point(NamedTuple):
    """One pool at one utilisation."""

    profile: Profile
    load: PoolLoad
    efficiency: Efficiency
    power: PoolPower


def points(
    profile: Profile,
    knots: Knots,
    max_tokens: int,
    rate_per_s: float,
    target: Target,
    utilizations: Sequence[float] = (),
) -> list[Point]:
    """A pool sized by the limit, then by each utilisation."""
    law = reference_draws(knots, max_tokens)
    zero = jnp.zeros_like(jnp.asarray(law.weight))
    pool = Pool(unnamed(profile), float(max_tokens), law, zero, jnp.ones(()))
    found = _evaluated(pool, rate_per_s, target, binned_mean_osl(knots), jnp.asarray(list(utilizations), float))
    rows = range(1 + len(utilizations))
    return [Point(profile, *jax.tree.map(lambda leaf, row=row: np.asarray(leaf)[row], found)) for row in rows]


@jax.jit
def _evaluated(
    pool: Pool, rate: Any, target: Target, osl: Any, utilizations: Any
) -> tuple[PoolLoad, Efficiency, PoolPower]:
    service = service_of(pool, rules=FLEET_REFERENCE)
    room = slots(pool.profile, pool.max_tokens).astype(float)
    sized = least_replicas(room, rate, service, target, rules=FLEET_REFERENCE)
    others = jax.vmap(lambda rho: at_utilization(pool, rho, rate, target, rules=FLEET_REFERENCE))(utilizations)
    loads = jax.tree.map(lambda first, rest: jnp.append(first, rest), sized, others)
    return loads, *pool_efficiency(pool, loads, rate, mean_osl=osl, rules=FLEET_REFERENCE)


def split_knots(knots: Knots, edge: int, share: float) -> tuple[Knots, Knots, float]:
    """Knots of both sides of an edge, and the share of the first: the long side has no knot at the edge."""
    part = float(np.clip(share, LEAST_SHARE, 1.0 - LEAST_SHARE))
    tokens, shares = knots.tokens, knots.shares
    below = tokens <= edge
    near, far = (tokens[below], shares[below] / part), (tokens[~below], (shares[~below] - part) / (1.0 - part))
    if not near[0].size or near[0][-1] < edge:
        near = np.append(near[0], edge), np.append(near[1], 1.0)
    else:
        near[1][-1] = 1.0
    if far[0].size:
        far[1][-1] = 1.0
    else:
        far = np.array([edge + 1.0]), np.ones(1)
    return Knots(*near), Knots(*far), part


def point_row(point: Point, *, sized: bool) -> dict[str, Any]:
    """One pool as the fleet reference writes it."""
    return {
        "gpu_name": point.profile.name,
        "pool_label": point.profile.name,
        "n_gpus": int(point.load.replicas),
        "rho": float(point.load.utilization),
        "n_active": float(point.power.running),
        "power_per_gpu_w": float(point.power.gpu_w),
        "tokens_per_watt": float(point.efficiency.tokens_per_joule),
        "cost_per_mil": float(point.efficiency.usd_per_million_tokens),
        "p99_ttft_ms": float(point.load.ttft_s) * MS_PER_S,
        "power_model_qual": power_law(point.profile).evidence.upper(),
        "slo_optimal": sized,
    }


def total_row(pools: Sequence[Point]) -> dict[str, Any]:
    """A fleet of pools as the fleet reference writes it."""
    total = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[point.efficiency for point in pools]).total()
    return {
        "fleet_tpw": float(total.tokens_per_joule),
        "fleet_cost_per_mil": float(total.usd_per_million_tokens),
        "fleet_power_kw": float(total.watts) / W_PER_KW,
        "total_gpus": int(sum(point.load.replicas for point in pools)),
    }
