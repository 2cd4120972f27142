# SPDX-License-Identifier: Apache-2.0
"""Answers about many sizings: fleets by threshold, by rate and by kind of replica."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._results import InputError
from aicjax.fleet.answer_parts import FleetAnswer, ParetoAnswer, RateRow, ThresholdRow, WhatIfAnswer
from aicjax.fleet.cdf import load_lengths
from aicjax.fleet.fleet_rows import asked_of
from aicjax.fleet.inputs import law_of, profile_of
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.profile import Profile, stacked
from aicjax.fleet.requests import ParetoRequest, WhatIfRequest
from aicjax.fleet.size_cases import Given, best_rows, check_room, gammas_of, given_of
from aicjax.fleet.thresholds import knot_thresholds, on_front, threshold_sweep
from aicjax.fleet.two_pool import BestReach, best_reach
from aicjax.fleet.what_if import stacked_fleets, what_if

_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)  # of the requests of a trace, at which pools may part

_what_if = jax.jit(what_if)


def pareto(request: ParetoRequest) -> ParetoAnswer:
    """The cheapest two pools for each threshold between them, beside one pool of all requests.

    Raises:
        InputError: A name that is not known, no threshold that parts the requests, or nothing that fits.
        DataError: A file breaks its rules.
    """
    law = law_of(request)
    replicas = [request.replica, request.replica if request.replica_long is None else request.replica_long]
    profiles = [profile_of(replica) for replica in replicas]
    check_room(profiles[-1], request.max_tokens)
    thresholds = _tried(request, law)
    rows = _cheapest_by_threshold(request, law, profiles, thresholds)
    single = _cheapest_by_threshold(request, law, profiles[1:], [()])[0]
    usd, ttft_ms = zip(*map(_cost_and_time, [*rows, single]), strict=True)
    front = on_front(jnp.asarray(usd), jnp.asarray(ttft_ms))
    saved = [1 - row.cost.per_hour / single.cost.per_hour if single.cost.per_hour > 0 else 0.0 for row in rows]
    table = [
        *map(ThresholdRow, (pair[0] for pair in thresholds), rows, saved, (bool(on) for on in front[:-1])),
        ThresholdRow(None, single, 0.0, bool(front[-1])),
    ]
    met = [place for place, row in enumerate(table) if row.fleet.meets]
    best = min(met, key=lambda place: table[place].fleet.cost.per_hour) if met else None
    return ParetoAnswer(asked_of(request, law), tuple(table), best)


def _tried(request: ParetoRequest, law: Lengths) -> list[tuple[int]]:
    """Thresholds to try, each below the longest pool's limit."""
    if request.thresholds is not None:
        stated = sorted(set(request.thresholds))
    elif request.workload is not None:
        stated = [int(tokens) for tokens in knot_thresholds(load_lengths(request.workload).knots)]
    else:
        total, below = np.asarray(law.total), np.cumsum(np.asarray(law.weight))
        stated = sorted({int(total[np.searchsorted(below, share)]) for share in _SHARES})
    inside = [(tokens,) for tokens in stated if tokens < request.max_tokens]
    if not inside:
        raise InputError("thresholds", stated, f"one or more below max_tokens = {request.max_tokens}")
    return inside


def _cheapest_by_threshold(
    request: ParetoRequest, law: Lengths, profiles: Sequence[Profile], thresholds: Sequence[tuple[int, ...]]
) -> list[FleetAnswer]:
    gammas = gammas_of(request, len(profiles))
    given = given_of(request, law, gammas)
    found = _best_by_threshold(stacked(profiles), jnp.asarray(thresholds, float), given)
    rates = [float(given.demand.rate_per_s)] * len(thresholds)
    return best_rows(found, rates, gammas, profiles, request)


@jax.jit
def _best_by_threshold(
    profiles: Profile, thresholds: Float[Array, "threshold pool_but_last"], given: Given
) -> BestReach:
    return best_reach(threshold_sweep(profiles, thresholds=thresholds, **given._asdict()), given.gammas)


def _cost_and_time(row: FleetAnswer) -> tuple[float, float]:
    return row.cost.per_hour, math.inf if row.ttft_ms is None else row.ttft_ms


def whatif(request: WhatIfRequest) -> WhatIfAnswer:
    """The cheapest fleet at each rate, for each kind of replica that is compared.

    Raises:
        InputError: A name that is not known, or no request that fits.
        DataError: A file breaks its rules.
        MissingData: A deployment of an engine has no measured data.
    """
    law = law_of(request)
    pools = len(request.pool_replicas)
    kinds = [request.pool_replicas] if request.compare is None else [(kind,) * pools for kind in request.compare]
    fleets = [[profile_of(replica) for replica in kind] for kind in kinds]
    gammas = gammas_of(request, pools)
    found = _what_if(
        stacked_fleets(fleets),
        thresholds=jnp.asarray(request.thresholds, float),
        rates_per_s=jnp.asarray(request.rates_per_s, float),
        **given_of(request, law, gammas)._asdict(),
    )
    rows: list[RateRow] = []
    for place, profiles in enumerate(fleets):
        own = jax.tree.map(lambda leaf, place=place: leaf[place], found)
        answers = best_rows(own, request.rates_per_s, gammas, profiles, request)
        name = " + ".join(dict.fromkeys(profile.name for profile in profiles))
        rows += [RateRow(rate, name, fleet) for rate, fleet in zip(request.rates_per_s, answers, strict=True)]
    order = {rate: place for place, rate in enumerate(request.rates_per_s)}
    return WhatIfAnswer(asked_of(request, law), tuple(sorted(rows, key=lambda row: order[row.rate_per_s])))
