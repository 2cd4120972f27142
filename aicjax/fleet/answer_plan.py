# SPDX-License-Identifier: Apache-2.0
"""The answer to a plan: deployment, replicas and cost, from the search of this project and the sizing of fleets."""

import math

import jax

from aicjax.fleet import lengths
from aicjax.fleet.answer_parts import MET, PREFILL_TOO_SLOW
from aicjax.fleet.capacity import pool_load
from aicjax.fleet.failures import enough_up
from aicjax.fleet.fleet_rows import asked_of, cost_of, finite_ms
from aicjax.fleet.inputs import law_of, load_of, target_of
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.plan_answers import PlanAnswer, PlanRow
from aicjax.fleet.plan_candidates import Candidate, candidates
from aicjax.fleet.plan_request import PlanRequest
from aicjax.fleet.plan_simulation import Checked, least_checked

_pool_load = jax.jit(pool_load)


def plan(request: PlanRequest) -> PlanAnswer:
    """Deployments with their replicas; the cheapest that meets the limits is first.

    Replicas are counted by the queue law and by the capacity of the searched deployment, then raised until a simulation
    of the engine's steps meets both limits. Deployments are simulated cheapest first, until none that is left can be
    cheaper than the best.

    Raises:
        InputError: A name that is not known.
        NoFeasible: The model fits no replica of that many GPUs.
        MissingData: No system has measured data for the model.
    """
    law = law_of(request)
    found, refused = candidates(request, law)
    rows: list[PlanRow] = []
    best = (math.inf, math.inf)
    for candidate in found:
        count = None
        if not candidate.prefill_too_slow and best > _price(candidate, _bought(request, candidate.needed)):
            count = least_checked(request, law, candidate)
            if count.met:
                best = min(best, _price(candidate, _bought(request, count.replicas)))
        rows.append(_row(request, law, candidate, count))
    rows.sort(key=_order)
    return PlanAnswer(asked_of(request, law), request.model_path, request.tpot_ms, tuple(rows), refused)


def _bought(request: PlanRequest, needed: int) -> int:
    """Replicas that are paid for: those needed, and those that may fail."""
    return math.ceil(needed / request.availability) + request.spare_replicas


def _price(candidate: Candidate, replicas: int) -> tuple[float, float]:
    """Price and GPUs of so many replicas: how they are ranked, without prices by GPUs."""
    profile = candidate.run.profile
    return replicas * float(profile.price_per_hour), replicas * float(profile.gpus)


def _row(request: PlanRequest, law: Lengths, candidate: Candidate, count: Checked | None) -> PlanRow:
    replica, profile = candidate.replica, candidate.run.profile
    needed = candidate.needed if count is None else count.replicas
    rate_per_s, cv2 = load_of(request)
    load = _pool_load(float(needed), candidate.slots, rate_per_s, candidate.service, target_of(request), cv2)
    bought = _bought(request, needed)
    price, gpus = _price(candidate, bought)
    isl, osl = (rate_per_s * float(mean) for mean in lengths.mean(law))
    prefill_share = float((candidate.service.weight * candidate.service.prefill_s).sum())
    prefill_share /= float((candidate.service.weight * candidate.service.service_s).sum())
    return PlanRow(
        system=replica.system,
        backend=replica.backend,
        tp=replica.tp,
        pp=replica.pp,
        dp=replica.dp,
        moe_tp=replica.moe_tp or 1,
        moe_ep=replica.moe_ep or 1,
        batch_size=replica.batch_size,
        gpus_per_replica=int(profile.gpus),
        needed=needed,
        spare=bought - needed,
        replicas=bought,
        gpus=int(gpus),
        cost=None if request.price_per_gpu_hour is None else cost_of(price, isl, osl, prefill_share),
        capacity_per_s=candidate.capacity_per_s,
        utilization=rate_per_s / (needed * candidate.capacity_per_s),
        ttft_ms=finite_ms(float(load.ttft_s)),
        ttft_simulated_ms=None if count is None else count.ttft_ms,
        tpot_ms=candidate.tpot_ms,
        tpot_simulated_ms=None if count is None else count.tpot_ms,
        confidence=None if count is None else count.confidence,
        enough_up=float(enough_up(float(bought), float(needed), request.availability)),
        verdict=_verdict(request, candidate, count),
    )


def _order(row: PlanRow) -> tuple[bool, bool, float, int]:
    """Those that meet the limits first, of these the cheapest; without prices that of fewest GPUs."""
    return row.verdict != MET, row.confidence is None, row.cost.per_hour if row.cost else 0.0, row.gpus


def _verdict(request: PlanRequest, candidate: Candidate, count: Checked | None) -> str:
    if candidate.prefill_too_slow:
        return PREFILL_TOO_SLOW
    if count is None:
        return MET if candidate.tpot_ms <= request.tpot_ms else "TPOT"
    if count.met:
        return MET
    return "TPOT" if not count.tpot_met else "TTFT"
