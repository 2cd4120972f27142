# SPDX-License-Identifier: Apache-2.0
"""Sizings of many fleets in one evaluation: by reach of compression, and by threshold or rate besides."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from aicjax._units import MS_PER_S
from aicjax.fleet.answer_parts import FleetAnswer
from aicjax.fleet.capacity import Target
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.fleet_rows import PoolFacts, facts_of, fleet_answers
from aicjax.fleet.inputs import load_of
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.pools import Compression, Pool, split
from aicjax.fleet.profile import Profile
from aicjax.fleet.requests import ParetoRequest, SizeRequest, WhatIfRequest
from aicjax.fleet.sizing import Demand, Sizing, cheapest, sized

Numbers = dict[str, Array]


def pool_names(count: int) -> tuple[str, ...]:
    """Names of pools, short requests first."""
    known = {1: ("all",), 2: ("short", "long")}
    return known.get(count) or tuple(f"pool{number}" for number in range(1, count + 1))


def floats(law: Lengths) -> Lengths:
    """The law in the default real type."""
    return Lengths(*(jnp.asarray(leaf, float) for leaf in law))


def numbers_of(request: SizeRequest | ParetoRequest | WhatIfRequest, **further: Any) -> Numbers:
    """What a sizing takes beside replicas and lengths."""
    rate_per_s, arrival_cv2 = load_of(request)
    stated = {
        "rate_per_s": rate_per_s,
        "limit_s": request.ttft_ms / MS_PER_S,
        "quantile": request.quantile,
        "rho_max": request.max_utilization,
        "compressible": request.compressible,
        "latency_s": load_fleet_constants().compression.latency_s,
        "arrival_cv2": arrival_cv2,
        "availability": request.availability,
        **further,
    }
    return {name: jnp.asarray(value, float) for name, value in stated.items()}


def _fleet(profiles: Profile, law: Lengths, numbers: Numbers) -> tuple[Sizing, PoolFacts]:
    """One fleet with the least replicas, and the facts of its pools."""
    pools = _pools(profiles, law, numbers)
    return sized(pools, demand_of(numbers), target_of(numbers)), facts_of(pools)


def _pools(profiles: Profile, law: Lengths, numbers: Numbers) -> Pool:
    compression = Compression(numbers["gamma"], numbers["compressible"], numbers["latency_s"])
    return split(profiles, law, numbers["thresholds"], numbers["max_tokens"], compression)


def demand_of(numbers: Numbers) -> Demand:
    """What comes."""
    return Demand(numbers["rate_per_s"], numbers["arrival_cv2"], numbers["availability"])


def target_of(numbers: Numbers) -> Target:
    """What every pool must meet."""
    return Target(numbers["limit_s"], numbers["quantile"], numbers["rho_max"])


def _over(numbers: Numbers, name: str) -> tuple[dict[str, int | None]]:
    """Axes of `vmap` over one of the numbers."""
    return ({each: 0 if each == name else None for each in numbers},)


def _gammas(profiles: Profile, law: Lengths, numbers: Numbers) -> tuple[Sizing, PoolFacts]:
    return jax.vmap(lambda own: _fleet(profiles, law, own), in_axes=_over(numbers, "gamma"))(numbers)


by_gamma = jax.jit(_gammas)  # fleets [gamma]


@jax.jit
def pools_by_gamma(profiles: Profile, law: Lengths, numbers: Numbers) -> Pool:
    """The pools of fleets [gamma pool]."""
    return jax.vmap(lambda own: _pools(profiles, law, own), in_axes=_over(numbers, "gamma"))(numbers)


@jax.jit
def by_threshold(profiles: Profile, law: Lengths, numbers: Numbers) -> tuple[Sizing, PoolFacts]:
    """Fleets [threshold gamma]; `thresholds` has rows."""
    return jax.vmap(lambda own: _gammas(profiles, law, own), in_axes=_over(numbers, "thresholds"))(numbers)


@jax.jit
def by_rate(profiles: Profile, law: Lengths, numbers: Numbers) -> tuple[Sizing, PoolFacts]:
    """Fleets [rate gamma]; `rate_per_s` is a list."""
    return jax.vmap(lambda own: _gammas(profiles, law, own), in_axes=_over(numbers, "rate_per_s"))(numbers)


def best_rows(
    found: Sizing,
    facts: PoolFacts,
    rates: Sequence[float],
    gammas: Sequence[float],
    profiles: Sequence[Profile],
    spare: int,
) -> list[FleetAnswer]:
    """The cheapest fleet of each case that meets its limits, else the cheapest; leaves [case gamma ...]."""
    chosen = np.asarray(cheapest(found))
    cases = np.arange(len(chosen))
    found, facts = jax.tree.map(lambda leaf: np.asarray(leaf)[cases, chosen], (found, facts))
    named = list(zip(pool_names(len(profiles)), profiles, strict=True))
    return fleet_answers(found, facts, rates, [gammas[place] for place in chosen], named, spare)
