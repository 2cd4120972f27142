# SPDX-License-Identifier: Apache-2.0
"""Answers of simulations: a stated fleet, and routing rules on the same requests."""

from collections.abc import Sequence

import numpy as np

from aicjax._units import HOURS_PER_YEAR, MS_PER_S
from aicjax.fleet.answer_bounds import bounds_of
from aicjax.fleet.answer_parts import MET, MISSED, Interval
from aicjax.fleet.fleet_rows import asked_of, finite_ms
from aicjax.fleet.fleet_simulation import Deployment, Runs, compare_policies
from aicjax.fleet.fleet_summary import FleetSummary, Served, paired_difference, summaries
from aicjax.fleet.histogram import histogram
from aicjax.fleet.inputs import law_of
from aicjax.fleet.requests import RoutersRequest, SimulateRequest
from aicjax.fleet.run_answers import RouterRow, RoutersAnswer, SimulateAnswer, Simulated, SimulatedPool
from aicjax.fleet.run_cases import Traffic, deployment_of, route_of, traffic_of
from aicjax.fleet.statistics import BATCHES, WARM_UP_SHARE, after_warm_up
from aicjax.fleet.statistics import Interval as Estimate

MEDIAN = 50.0
HISTOGRAM_BINS = 30


def simulate(request: SimulateRequest) -> SimulateAnswer:
    """How a stated fleet serves a load.

    Raises:
        InputError: A name that is not known, or a trace that is too short.
        DataError: A file breaks its rules.
        MissingData: A deployment of an engine has no measured data.
    """
    deployment, profiles = deployment_of(request.fleet)
    traffic = traffic_of(request, deployment)
    runs, found = _run(request, deployment, traffic, [request.fleet.router])
    whole, *each = _simulated(request, runs, found[0], deployment, traffic, 0)
    counts = np.asarray(deployment.slots())
    pools = [
        SimulatedPool(
            name=pool.name,
            replica=profile.name,
            replicas=pool.replicas,
            gpus=int(pool.replicas * profile.gpus),
            max_tokens=pool.max_tokens,
            slots=int(slots),
            price_per_hour=float(pool.replicas * profile.price_per_hour),
            result=result,
        )
        for pool, profile, slots, result in zip(request.fleet.pools, profiles, counts, each, strict=True)
    ]
    price_per_hour = sum(pool.price_per_hour for pool in pools)
    return SimulateAnswer(
        asked=asked_of(request, law_of(request)),
        router=request.fleet.router,
        pools=tuple(pools),
        fleet=whole,
        gpus=sum(pool.gpus for pool in pools),
        price_per_hour=price_per_hour,
        price_per_year=price_per_hour * HOURS_PER_YEAR,
        runs=traffic.gaps_s.shape[0],
        requests=traffic.gaps_s.shape[1],
        horizon_s=_horizon_s(traffic),
        start=None if request.horizon_s is None else request.start,
        histogram=_histogram(runs, _warm_up(request)),
        verdict=_verdict(whole, each, request.quantile, forever=request.horizon_s is None),
        bounds=bounds_of(request, profiles),
    )


def routers(request: RoutersRequest) -> RoutersAnswer:
    """How routing rules do on the same requests.

    Raises:
        InputError: A name that is not known, or a trace that is too short.
        DataError: A file breaks its rules.
        MissingData: A deployment of an engine has no measured data.
    """
    deployment, _ = deployment_of(request.fleet)
    traffic = traffic_of(request, deployment)
    runs, found = _run(request, deployment, traffic, request.routers)
    slower = paired_difference(runs, request.percentile)
    rows = []
    for place, router in enumerate(request.routers):
        whole, *each = _simulated(request, runs, found[place], deployment, traffic, place)
        shares = [pool.requests / whole.requests for pool in each]
        rows.append(
            RouterRow(
                router=router,
                fleet=whole,
                pools=dict(zip([pool.name for pool in request.fleet.pools], shares, strict=True)),
                slower_ms=_interval(Estimate(*(np.asarray(end)[place] for end in slower)), MS_PER_S),
                verdict=_verdict(whole, each, request.quantile, forever=True),
            )
        )
    return RoutersAnswer(
        asked=asked_of(request, law_of(request)),
        rows=tuple(rows),
        runs=traffic.gaps_s.shape[0],
        requests=traffic.gaps_s.shape[1],
        horizon_s=_horizon_s(traffic),
    )


def _run(
    request: SimulateRequest | RoutersRequest, deployment: Deployment, traffic: Traffic, routers: Sequence[str]
) -> tuple[Runs, tuple[FleetSummary, ...]]:
    routes = {router: route_of(router, request.fleet, deployment, traffic) for router in routers}
    runs = compare_policies(
        traffic.gaps_s,
        traffic.requests,
        routes,
        deployment,
        traffic.balance_draws,
        start_key=traffic.start_key,
    )
    found = summaries(
        runs,
        np.asarray(traffic.gaps_s),
        deployment,
        request.ttft_ms / MS_PER_S,
        (MEDIAN, request.percentile),
        warm_up=_warm_up(request),
        batches=BATCHES if _warm_up(request) else request.seeds,
    )
    return runs, found


def _warm_up(request: SimulateRequest | RoutersRequest) -> float:
    """Share of a run that does not count: none over a stated horizon."""
    return WARM_UP_SHARE if isinstance(request, RoutersRequest) or request.horizon_s is None else 0.0


def _simulated(
    request: SimulateRequest | RoutersRequest,
    runs: Runs,
    found: FleetSummary,
    deployment: Deployment,
    traffic: Traffic,
    policy: int,
) -> list[Simulated]:
    """The fleet, then each pool."""
    slots = np.asarray(deployment.replicas) * np.asarray(deployment.slots())
    held_s = np.nan_to_num(np.asarray(runs.run.service_s)[policy])
    pool = np.asarray(runs.run.pool)[policy]
    time_s = float(np.sum(np.asarray(traffic.gaps_s, np.float64)))
    work_s = [float(held_s[pool == place].sum()) for place in range(slots.size)]
    offered = [float(work / (time_s * count)) if count else 0.0 for work, count in zip(work_s, slots, strict=True)]
    all_offered = float(sum(work_s) / (time_s * slots.sum())) if slots.sum() else 0.0
    parts = zip((found.fleet, *found.pools), (all_offered, *offered), strict=True)
    return [_served(served, load, request.percentile) for served, load in parts]


def _served(served: Served, offered: float, percentile: float) -> Simulated:
    wait_s = served.wait_s[percentile]
    return Simulated(
        requests=served.requests,
        completed=served.completed,
        rejected=served.rejected,
        refused=served.refused,
        ttft_p50_ms=_interval(served.ttft_s[MEDIAN], MS_PER_S),
        ttft_ms=_interval(served.ttft_s[percentile], MS_PER_S),
        wait_ms=None if wait_s is None else finite_ms(wait_s),
        within_limit=_interval(served.slo_share, 1.0),
        utilization=served.utilization,
        offered=offered,
    )


def _interval(estimate: Estimate | None, factor: float) -> Interval | None:
    """An interval in other units; None where its figure is not finite, open where an end is not."""
    if estimate is None or not np.isfinite(estimate.value):
        return None
    low, high = (float(end) * factor if np.isfinite(end) else None for end in (estimate.low, estimate.high))
    return Interval(float(estimate.value) * factor, low, high)


def _histogram(runs: Runs, warm_up: float) -> tuple[dict[str, float], ...]:
    """Of the first policy, in milliseconds."""
    ttft_ms = after_warm_up(np.asarray(runs.ttft_s, np.float64), warm_up)[0].ravel() * MS_PER_S
    ttft_ms = ttft_ms[np.isfinite(ttft_ms)]
    if not ttft_ms.size:
        return ()
    return tuple(histogram(ttft_ms, np.ones_like(ttft_ms), ttft_ms.size, HISTOGRAM_BINS))


def _horizon_s(traffic: Traffic) -> float:
    return float(np.asarray(traffic.gaps_s, np.float64).sum(axis=-1).mean())


def _verdict(fleet: Simulated, pools: Sequence[Simulated], quantile: float, *, forever: bool) -> str:
    if forever and any(pool.offered >= 1 for pool in pools):
        return "unstable"
    within = fleet.within_limit
    return MET if within is not None and within.value >= quantile else MISSED
