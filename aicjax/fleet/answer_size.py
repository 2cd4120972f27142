# SPDX-License-Identifier: Apache-2.0
"""The answer to a sizing: fleets by reach of compression, the cheapest of them checked by simulation."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from aicjax._units import MS_PER_S
from aicjax.fleet.answer_parts import MET, MISSED, FleetAnswer, Interval, PoolAnswer, SizeAnswer
from aicjax.fleet.fleet_rows import asked_of, fleet_answers, meets_limit, serves_enough
from aicjax.fleet.inputs import law_of, profile_of
from aicjax.fleet.profile import stacked
from aicjax.fleet.requests import SizeRequest
from aicjax.fleet.size_cases import check_room, gammas_of, given_of, pool_names
from aicjax.fleet.two_pool import gamma_pools, gamma_sweep
from aicjax.fleet.verify import LIKELY, REQUESTS, Verification, verified

_sweep, _pools = jax.jit(gamma_sweep), jax.jit(gamma_pools)


def size(request: SizeRequest) -> SizeAnswer:
    """The fleets that serve a rate, one for each reach of compression, cheapest first.

    Raises:
        InputError: A name that is not known, no request that fits, or no room for one of the longest context.
        DataError: A file breaks its rules.
        MissingData: A deployment of an engine has no measured data.
    """
    law = law_of(request)
    profiles = [profile_of(replica) for replica in request.pool_replicas]
    check_room(profiles[-1], request.max_tokens)
    gammas = gammas_of(request, len(profiles))
    given, thresholds = given_of(request, law, gammas), jnp.asarray(request.thresholds, float)
    rates = [float(given.demand.rate_per_s)] * len(gammas)
    found = _sweep(stacked(profiles), thresholds=thresholds, **given._asdict())
    named = list(zip(pool_names(len(profiles)), profiles, strict=True))
    rows = fleet_answers(found.sizing, found.facts, rates, gammas, named, request)
    order = sorted(range(len(rows)), key=lambda row: (not rows[row].meets, rows[row].cost.per_hour))
    checked = order[: request.verify_top]
    if checked:
        tried = jnp.asarray(checked)
        reaches = given.gammas[tried]
        simulation = verified(
            jax.random.key(request.seed),
            _pools(stacked(profiles), given.lengths, thresholds, given.max_tokens, reaches, given.compression),
            found.sizing.load.replicas[tried],
            given.demand,
            given.target,
            requests=REQUESTS if request.requests is None else request.requests,
            seeds=request.seeds,
        )
        for place, row in enumerate(checked):
            rows[row] = _simulated(rows[row], pool_names(len(profiles)), simulation, place, request)
    answered = [rows[row] for row in order]
    return SizeAnswer(asked_of(request, law), tuple(answered), best_of(answered))


def best_of(rows: Sequence[FleetAnswer]) -> int:
    """Position of the first row that meets its limit, 0 where none does."""
    return next((place for place, row in enumerate(rows) if row.meets), 0)


def _simulated(
    fleet: FleetAnswer, names: Sequence[str], simulation: Verification, row: int, request: SizeRequest
) -> FleetAnswer:
    """A fleet with what its simulation says, which decides whether it meets the limit."""
    pools = tuple(_simulated_pool(pool, simulation, row, names.index(pool.name)) for pool in fleet.pools)
    return dataclasses.replace(
        fleet,
        pools=pools,
        meets=meets_limit(pools, fleet.refused, request),
        confidence=float(simulation.all_confidence[row]) if serves_enough(fleet.refused, request) else 0.0,
    )


def _simulated_pool(pool: PoolAnswer, simulation: Verification, row: int, place: int) -> PoolAnswer:
    figures = Interval(*(float(end[row, place]) * MS_PER_S for end in simulation.ttft_s))
    likely = simulation.confidence[row, place] >= LIKELY
    verdict = pool.verdict if pool.verdict not in (MET, MISSED) else (MET if likely else MISSED)
    return dataclasses.replace(pool, ttft_simulated_ms=figures, verdict=verdict)
