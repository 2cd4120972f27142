# SPDX-License-Identifier: Apache-2.0
"""What a stated fleet bears, in closed form: the rate at which it breaks, and its state with replicas down."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from aicjax._types import FloatScalar
from aicjax.fleet.capacity import PoolLoad, Target, Verdict
from aicjax.fleet.failures import degraded, enough_up, least_spare, up_probabilities
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.fleet_rows import VERDICTS, busy_share, finite_ms
from aicjax.fleet.inputs import law_of, load_of, target_of
from aicjax.fleet.pools import Compression, Pool, split
from aicjax.fleet.profile import Profile, floats, stacked
from aicjax.fleet.requests import FleetSpec, SimulateRequest
from aicjax.fleet.run_answers import Bounds, PoolBounds, PoolDown
from aicjax.fleet.sizing import Demand, Sizing, sized
from aicjax.fleet.what_if import breaking_rate_per_s

DOWN = (0, 1, 2)  # replicas of a pool at once
MOST_SPARE = 1000


class _Found(NamedTuple):
    """Of pools that get requests.

    Attributes:
        breaking_rate_per_s: Largest rate of all requests at which every pool meets the limit.
        least: The least replicas of each [pool].
        enough: Probability that so many are up [pool].
        spare, chance: Least spares that raise it to the one asked for, and what they raise it to [pool].
        down: State with so many down [down pool].
        probability: Of exactly so many down [down pool].
    """

    breaking_rate_per_s: Float[Array, ""]
    least: Sizing
    enough: Float[Array, " pool"]
    spare: Int[Array, " pool"]
    chance: Float[Array, " pool"]
    down: PoolLoad
    probability: Float[Array, "down pool"]


def bounds_of(request: SimulateRequest, profiles: Sequence[Profile]) -> Bounds | None:
    """The bounds of a fleet that parts requests by length; None for one whose rule has no closed form.

    Args:
        request: The fleet and its load.
        profiles: Replica of each pool.
    """
    order = sorted(range(len(profiles)), key=lambda place: request.fleet.pools[place].max_tokens)
    pools = _pools(request, [profiles[place] for place in order], order)
    if pools is None:
        return None
    used = np.flatnonzero(np.asarray(pools.share) > 0)
    if not used.size:
        return None
    replicas = [request.fleet.pools[order[place]].replicas for place in used]
    found = jax.tree.map(
        np.asarray,
        _found(
            jax.tree.map(lambda leaf: leaf[used], pools),
            jnp.asarray(replicas, float),
            Demand(*load_of(request)),
            target_of(request),
            1.0 if request.availability is None else request.availability,
            request.enough_probability,
        ),
    )
    names = [request.fleet.pools[order[place]].name for place in used]
    known = request.availability is not None
    answered = [
        _pool_bounds(found, place, name, count, known=known, enough_probability=request.enough_probability)
        for place, (name, count) in enumerate(zip(names, replicas, strict=True))
    ]
    enough = [pool.enough for pool in answered if pool.enough is not None]
    return Bounds(
        breaking_rate_per_s=float(found.breaking_rate_per_s),
        enough=float(np.prod(enough)) if known else None,
        pools=tuple(answered),
    )


def _pools(request: SimulateRequest, profiles: Sequence[Profile], order: Sequence[int]) -> Pool | None:
    """The pools by ascending context limit with what each gets."""
    limits = [request.fleet.pools[place].max_tokens for place in order]
    thresholds = _thresholds(request.fleet, limits)
    if thresholds is None:
        return None
    constants = load_fleet_constants().compression
    gamma = request.fleet.gamma if request.fleet.router == "compress" else 1.0
    return _split(
        stacked(profiles),
        floats(law_of(request)),
        jnp.asarray(thresholds, float),
        jnp.asarray(limits, float),
        Compression(gamma, constants.success, constants.latency_s),
    )


def _thresholds(fleet: FleetSpec, limits: Sequence[int]) -> list[int] | None:
    """Where the rule parts requests by length; None where it does not, or refuses what another pool takes."""
    if len(limits) == 1:
        return []
    if fleet.router == "length" and fleet.threshold is None:
        return list(limits[:-1])
    threshold = limits[0] if fleet.threshold is None else fleet.threshold
    parts = len(limits) == 2 and fleet.router in ("length", "compress") and threshold <= limits[0]
    return [threshold] if parts else None


@jax.jit
def _split(profiles, law, thresholds, limits, compression) -> Pool:
    return split(profiles, law, thresholds, limits[-1], compression)._replace(max_tokens=limits)


@jax.jit
def _found(
    pools: Pool,
    replicas: Float[Array, " pool"],
    demand: Demand,
    target: Target,
    availability: FloatScalar,
    enough_probability: FloatScalar,
) -> _Found:
    least = sized(pools, demand, target)
    needed = least.load.replicas
    down = jnp.asarray(DOWN, needed.dtype)
    spare, chance = jax.vmap(lambda count: least_spare(count, availability, enough_probability, MOST_SPARE))(needed)
    return _Found(
        breaking_rate_per_s=breaking_rate_per_s(pools, replicas, demand, target),
        least=least,
        enough=jax.vmap(lambda bought, count: enough_up(bought, count, availability))(replicas, needed),
        spare=spare,
        chance=chance,
        down=degraded(pools, replicas, demand, target, down),
        probability=jax.vmap(lambda bought: up_probabilities(bought, availability, down), out_axes=1)(replicas),
    )


def _pool_bounds(
    found: _Found, place: int, name: str, replicas: int, *, known: bool, enough_probability: float
) -> PoolBounds:
    states = [jax.tree.map(lambda leaf, row=row: leaf[row, place], found.down) for row in range(len(DOWN))]
    helped = found.least.load.verdict[place] == Verdict.MET
    spared = known and helped and found.chance[place] >= enough_probability
    return PoolBounds(
        name=name,
        replicas=replicas,
        needed=int(found.least.load.replicas[place]) if helped else None,
        enough=(float(found.enough[place]) if helped else 0.0) if known else None,
        spare=int(found.spare[place]) if spared else None,
        down=tuple(
            PoolDown(
                down=down,
                probability=float(found.probability[row, place]) if known else None,
                utilization=busy_share(state),
                ttft_ms=finite_ms(float(state.ttft_s)),
                verdict=VERDICTS[Verdict(int(state.verdict))],
            )
            for row, (down, state) in enumerate(zip(DOWN, states, strict=True))
            if down <= replicas
        ),
    )
