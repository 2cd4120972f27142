# SPDX-License-Identifier: Apache-2.0
"""From a request to the arguments of a sizing, and from the fleets that it finds to rows."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._results import InputError
from aicjax.fleet.answer_parts import FleetAnswer
from aicjax.fleet.capacity import Target
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.fleet_rows import SizingRequest, fleet_answers
from aicjax.fleet.inputs import load_of, target_of
from aicjax.fleet.lengths import Lengths, share_below
from aicjax.fleet.pools import Compression
from aicjax.fleet.profile import Profile, floats, slots
from aicjax.fleet.sizing import Demand
from aicjax.fleet.two_pool import BestReach

NO_COMPRESSION = (1.0,)


class Given(NamedTuple):
    """Arguments of `gamma_sweep` beside replicas and thresholds, all arrays."""

    lengths: Lengths
    max_tokens: Float[Array, ""]
    gammas: Float[Array, " gamma"]
    demand: Demand
    target: Target
    compression: Compression


def pool_names(count: int) -> tuple[str, ...]:
    """Names of pools, short requests first."""
    known = {1: ("all",), 2: ("short", "long")}
    return known.get(count) or tuple(f"pool{number}" for number in range(1, count + 1))


def gammas_of(request: SizingRequest, pools: int) -> tuple[float, ...]:
    """Reaches of compression that are tried: only two pools compress."""
    return request.gammas if pools == 2 else NO_COMPRESSION


def check_room(profile: Profile, max_tokens: int) -> None:
    """Checks that the replicas of the longest pool have room.

    Raises:
        InputError: A replica has no room for one request of the longest context.
    """
    if int(slots(profile, max_tokens)) == 0:
        raise InputError("max_tokens", max_tokens, f"a context for which one {profile.name} has room")


def given_of(request: SizingRequest, law: Lengths, gammas: Sequence[float]) -> Given:
    """What a request states, with its law of lengths and the reaches that are tried.

    Raises:
        InputError: Every request is longer than the longest pool takes.
    """
    if share_below(law, request.max_tokens) <= 0:
        shortest = int(np.ceil(law.total[np.asarray(law.weight) > 0].min()))
        raise InputError("max_tokens", request.max_tokens, f"at least the shortest request, {shortest:,} tokens")
    rate_per_s, arrival_cv2 = load_of(request)
    latency_s = load_fleet_constants().compression.latency_s
    return Given(
        lengths=floats(law),
        max_tokens=jnp.asarray(request.max_tokens, float),
        gammas=jnp.asarray(gammas, float),
        demand=floats(Demand(rate_per_s, arrival_cv2, request.availability)),
        target=floats(target_of(request)),
        compression=floats(Compression(NO_COMPRESSION[0], request.compressible, latency_s)),
    )


def best_rows(
    found: BestReach,
    rates_per_s: Sequence[float],
    gammas: Sequence[float],
    profiles: Sequence[Profile],
    request: SizingRequest,
) -> list[FleetAnswer]:
    """Rows of the cheapest fleet of each case [case].

    Args:
        found: The fleets.
        rates_per_s: Arrivals of all requests in each case.
        gammas: Reaches that were tried.
        profiles: Replicas of the pools.
        request: What was asked.
    """
    named = list(zip(pool_names(len(profiles)), profiles, strict=True))
    reaches = [gammas[place] for place in np.asarray(found.place)]
    return fleet_answers(found.sizing, found.facts, rates_per_s, reaches, named, request)
