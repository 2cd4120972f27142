# SPDX-License-Identifier: Apache-2.0
"""From sized fleets on the device to the rows of an answer."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from aicjax._units import MS_PER_S
from aicjax.fleet import lengths
from aicjax.fleet.answer_parts import (
    MET,
    MISSED,
    PREFILL_TOO_SLOW,
    Asked,
    CostAnswer,
    FleetAnswer,
    PoolAnswer,
    Workload,
)
from aicjax.fleet.capacity import PoolLoad, Verdict
from aicjax.fleet.cost import cost, tokens_per_usd
from aicjax.fleet.inputs import load_of
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.pools import PoolFacts
from aicjax.fleet.profile import Profile
from aicjax.fleet.request_fields import LimitFields, LoadFields, Request, WorkloadFields
from aicjax.fleet.requests import ParetoRequest, SizeRequest, WhatIfRequest
from aicjax.fleet.sizing import Sizing

SizingRequest = SizeRequest | ParetoRequest | WhatIfRequest

VERDICTS = {
    Verdict.MET: MET,
    Verdict.OVERLOADED: "overloaded",
    Verdict.MISSED: MISSED,
    Verdict.PREFILL_TOO_SLOW: PREFILL_TOO_SLOW,
    Verdict.COUNT_TOO_LARGE: "too many replicas",
    Verdict.NO_SLOTS: "no room for a request",
}


def workload_of(request: WorkloadFields, law: Lengths) -> Workload:
    """The lengths of a request's workload."""
    name = request.workload or (str(request.trace) if request.trace else f"isl {request.isl}, osl {request.osl}")
    mean_isl, mean_osl = lengths.mean(law)
    present = np.asarray(law.weight) > 0
    longest = int(np.ceil((np.asarray(law.isl) + np.asarray(law.osl))[present].max()))
    return Workload(name, float(mean_isl), float(mean_osl), longest)


def asked_of(request: Request, law: Lengths) -> Asked:
    """What an answer is for."""
    rate_per_s = load_of(request)[0] if isinstance(request, LoadFields) else None
    return Asked(workload_of(request, law), rate_per_s, request.ttft_ms, request.percentile, request.compat)


def finite_ms(seconds: float) -> float | None:
    """Milliseconds, or None of what is not finite."""
    return float(seconds) * MS_PER_S if math.isfinite(seconds) else None


def busy_share(load: PoolLoad) -> float | None:
    """Share of the slots in use; None of a pool without a replica or without room for a request."""
    if load.replicas == 0 or load.verdict == Verdict.NO_SLOTS:
        return None
    return float(load.utilization)


def cost_of(usd_per_hour: float, isl_per_s: float, osl_per_s: float, prefill_share: float) -> CostAnswer:
    """What a fleet costs.

    Args:
        usd_per_hour: Price of all replicas.
        isl_per_s, osl_per_s: Prompt and output tokens of all requests.
        prefill_share: Share of the time in service that is prefill; what rounding adds to one is cut off.
    """
    paid = cost(usd_per_hour, isl_per_s, osl_per_s, min(prefill_share, 1.0))
    return CostAnswer(
        *(float(value) for value in paid),
        tokens_per_usd=float(tokens_per_usd(paid.per_million_total)) if usd_per_hour > 0 else None,
    )


def serves_enough(refused: float, request: LimitFields) -> bool:
    """Whether no more requests are refused than may miss the limit."""
    return refused <= 1 - request.quantile


def meets_limit(pools: Sequence[PoolAnswer], refused: float, request: LimitFields) -> bool:
    """Whether every pool meets the limit, and enough requests are served."""
    return all(pool.verdict == MET for pool in pools) and serves_enough(refused, request)


def fleet_answers(
    sizings: Sizing,
    facts: PoolFacts,
    rates_per_s: Sequence[float],
    gammas: Sequence[float],
    pools: Sequence[tuple[str, Profile]],
    request: SizingRequest,
) -> list[FleetAnswer]:
    """Rows of sized fleets.

    Args:
        sizings: Replicas and loads [fleet pool].
        facts: Of the pools [fleet pool].
        rates_per_s: Arrivals of all requests [fleet].
        gammas: Reach of compression of each [fleet].
        pools: Name and replica of each [pool].
        request: What was asked; a fleet that refuses more than its percentile leaves does not meet the limit.
    """
    sizings, facts = jax.tree.map(np.asarray, (sizings, facts))
    return [
        _fleet(_at(sizings, row), _at(facts, row), rate, gamma, pools, request)
        for row, (rate, gamma) in enumerate(zip(rates_per_s, gammas, strict=True))
    ]


def _at(tree: Any, place: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[place], tree)


def _fleet(
    sizing: Sizing,
    facts: PoolFacts,
    rate_per_s: float,
    gamma: float,
    named: Sequence[tuple[str, Profile]],
    request: SizingRequest,
) -> FleetAnswer:
    used = [place for place in range(len(named)) if sizing.load.replicas[place] > 0]
    pools = [
        _pool(
            _at(sizing.load, place),
            _at(sizing.share, place),
            _at(facts, place),
            rate_per_s,
            *named[place],
            request.spare_replicas,
        )
        for place in used
    ]
    busy = (sizing.load.replicas * sizing.load.utilization * facts.slots)[used]
    prefill_share = float(busy @ facts.prefill_share[used] / busy.sum()) if busy.any() else 0.0
    rates = rate_per_s * sizing.share[used]
    price_per_hour = sum(pool.price_per_hour for pool in pools)
    isl_per_s, osl_per_s = (float(rates @ mean[used]) for mean in (facts.mean_isl, facts.mean_osl))
    ttfts = [pool.ttft_ms for pool in pools if pool.ttft_ms is not None]
    return FleetAnswer(
        pools=tuple(pools),
        gamma=float(gamma),
        replicas=sum(pool.replicas for pool in pools),
        gpus=sum(pool.gpus for pool in pools),
        cost=cost_of(price_per_hour, isl_per_s, osl_per_s, prefill_share),
        ttft_ms=max(ttfts) if len(ttfts) == len(pools) and ttfts else None,
        refused=float(sizing.refused),
        meets=meets_limit(pools, float(sizing.refused), request),
        confidence=None,
    )


def _pool(
    load: PoolLoad, share: float, facts: PoolFacts, rate_per_s: float, name: str, profile: Profile, spare: int
) -> PoolAnswer:
    bought = int(load.replicas) + spare
    return PoolAnswer(
        name=name,
        replica=profile.name,
        max_tokens=int(facts.max_tokens),
        replicas=bought,
        spare=spare,
        gpus=int(bought * profile.gpus),
        slots=int(facts.slots),
        share=float(share),
        rate_per_s=float(rate_per_s * share),
        utilization=busy_share(load),
        wait_probability=float(load.wait_probability),
        wait_ms=finite_ms(float(load.wait_s)),
        ttft_ms=finite_ms(float(load.ttft_s)),
        ttft_simulated_ms=None,
        price_per_hour=float(bought * profile.price_per_hour),
        verdict=VERDICTS[Verdict(int(load.verdict))],
    )
