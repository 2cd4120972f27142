# SPDX-License-Identifier: Apache-2.0
"""The answer to a sizing: fleets by reach of compression, the cheapest of them checked by simulation."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from aicjax._units import MS_PER_S
from aicjax.fleet.answer_parts import FleetAnswer, Interval, PoolAnswer, SizeAnswer
from aicjax.fleet.fleet_rows import asked_of, fleet_answers
from aicjax.fleet.inputs import law_of, profile_of
from aicjax.fleet.profile import stacked
from aicjax.fleet.requests import SizeRequest
from aicjax.fleet.size_cases import by_gamma, demand_of, floats, numbers_of, pool_names, pools_by_gamma, target_of
from aicjax.fleet.verify import REQUESTS, Verification, verified

LIKELY = 0.5  # probability from which on a simulated limit counts as met


def size(request: SizeRequest) -> SizeAnswer:
    """The fleets that serve a rate, one for each reach of compression, cheapest first.

    Raises:
        InputError: A name that is not known.
        DataError: A file breaks its rules.
        MissingData: A deployment of an engine has no measured data.
    """
    law = law_of(request)
    profiles = [profile_of(replica) for replica in request.pool_replicas]
    gammas = request.gammas if len(request.thresholds) == 1 else (1.0,)
    numbers = numbers_of(request, thresholds=request.thresholds, max_tokens=request.max_tokens, gamma=gammas)
    rates = [float(numbers["rate_per_s"])] * len(gammas)
    found, facts = by_gamma(stacked(profiles), floats(law), numbers)
    named = list(zip(pool_names(len(profiles)), profiles, strict=True))
    rows = fleet_answers(found, facts, rates, gammas, named, request.spare_replicas)
    order = sorted(range(len(rows)), key=lambda row: (not rows[row].meets, rows[row].cost.per_hour))
    checked = order[: request.verify_top]
    if checked:
        tried = {**numbers, "gamma": numbers["gamma"][jnp.asarray(checked)]}
        simulation = verified(
            jax.random.key(request.seed),
            pools_by_gamma(stacked(profiles), floats(law), tried),
            found.load.replicas[jnp.asarray(checked)],
            demand_of(numbers)._replace(arrival_cv2=float(numbers["arrival_cv2"])),
            target_of(numbers),
            requests=REQUESTS if request.requests is None else request.requests,
            seeds=request.seeds,
        )
        for place, row in enumerate(checked):
            rows[row] = _simulated(rows[row], pool_names(len(profiles)), simulation, place)
    answered = [rows[row] for row in order]
    return SizeAnswer(asked_of(request, law), tuple(answered), best_of(answered))


def best_of(rows: Sequence[FleetAnswer]) -> int:
    """Position of the first row that meets its limit, 0 where none does."""
    return next((place for place, row in enumerate(rows) if row.meets), 0)


def _simulated(fleet: FleetAnswer, names: Sequence[str], simulation: Verification, row: int) -> FleetAnswer:
    """A fleet with what its simulation says, which decides whether it meets the limit."""
    pools = tuple(_simulated_pool(pool, simulation, row, names.index(pool.name)) for pool in fleet.pools)
    return dataclasses.replace(
        fleet,
        pools=pools,
        meets=all(pool.verdict == "met" for pool in pools),
        confidence=float(simulation.all_confidence[row]),
    )


def _simulated_pool(pool: PoolAnswer, simulation: Verification, row: int, place: int) -> PoolAnswer:
    figures = Interval(*(float(end[row, place]) * MS_PER_S for end in simulation.ttft_s))
    likely = simulation.confidence[row, place] >= LIKELY
    verdict = pool.verdict if pool.verdict not in ("met", "missed") else ("met" if likely else "missed")
    return dataclasses.replace(pool, ttft_simulated_ms=figures, verdict=verdict)
