# SPDX-License-Identifier: Apache-2.0
"""Jobs with parameters and results in the shape of vllm-sr-sim: `optimize`, `simulate` and `whatif`."""

from typing import Any

from aicjax._results import InputError
from aicjax._units import PERCENT, USD_PER_KUSD
from aicjax.fleet import answer_reference, answer_run, answer_size
from aicjax.fleet.answer_parts import FleetAnswer, SizeAnswer
from aicjax.fleet.answer_reference import best_of
from aicjax.fleet.cdf import bundled_lengths
from aicjax.fleet.request_fields import MOST_REQUESTS, CompatName, Request
from aicjax.fleet.requests import SimulateRequest, SizeRequest
from aicjax.fleet.run_answers import SimulateAnswer, Simulated
from aicjax.service.catalogue import replica_of
from aicjax.service.schemas import FleetBody, JobBody, SimulateBody, WhatIfBody, WorkloadBody
from aicjax.service.state import State
from aicjax.service.traces import file_of

VERIFIED = 3  # fleets of `optimize` that are simulated
ENOUGH = 0.99  # share of the requests within the limit below which a rate breaks a fleet
_ROUTERS = {"compress_route": "compress"}


def requests(body: JobBody, state: State, rules: CompatName) -> list[Request]:
    """What a job asks: one request, or one for each rate.

    Raises:
        InputError: A name that is not known.
        NotFound: No such fleet or trace.
    """
    if body.optimize is not None and body.type == "optimize":
        return [_optimize(body, state, rules)]
    if body.simulate is not None and body.type == "simulate":
        return [_simulate(body.simulate, body.simulate.lam, state, rules)]
    return [] if body.whatif is None else _what_if_requests(body.whatif, state, rules)


def result(body: JobBody, asked: list[Any]) -> dict[str, Any]:
    """The result of a job."""
    match body.type:
        case "optimize" if asked[0].compat == "fleet-reference":
            return _optimized_there(asked[0])
        case "optimize":
            return _optimized(answer_size.size(asked[0]))
        case "simulate":
            return _simulated(answer_run.simulate(asked[0]))
        case _:
            return _what_if([answer_run.simulate(request) for request in asked])


def _optimize(body: JobBody, state: State, rules: CompatName) -> SizeRequest:
    asked = body.optimize
    assert asked is not None
    return SizeRequest(
        **_workload(asked.workload, state),
        compat=rules,
        rate_per_s=asked.lam,
        ttft_ms=asked.slo_ms,
        thresholds=(asked.b_short,),
        max_tokens=asked.long_max_ctx,
        replica=replica_of(asked.gpu_short),
        replica_long=replica_of(asked.gpu_long),
        gamma_min=asked.gamma_min,
        gamma_max=asked.gamma_max,
        gamma_step=asked.gamma_step,
        compressible=asked.p_c,
        availability=asked.node_avail,
        requests=asked.n_sim_requests,
        verify_top=VERIFIED,
    )


def _what_if_requests(asked: WhatIfBody, state: State, rules: CompatName) -> list[Request]:
    """One request for each rate, together no more work than one answer may take."""
    each = [_simulate(asked, rate, state, rules) for rate in sorted(asked.lam_range)]
    runs = sum(request.runs for request in each)
    most = MOST_REQUESTS // runs
    if asked.n_requests > most:
        raise InputError("whatif.n_requests", asked.n_requests, f"at most {most} with {runs} runs of all rates")
    return [*each]


def _simulate(asked: SimulateBody | WhatIfBody, rate_per_s: float, state: State, rules: CompatName) -> SimulateRequest:
    fleet = asked.fleet
    if fleet is None:
        record = state.get("fleets", str(asked.fleet_id))
        fleet = FleetBody(**{name: record[name] for name in FleetBody.model_fields})
    pools = [
        {
            "name": pool.pool_id,
            "replica": replica_of(pool.gpu),
            "replicas": pool.n_gpus,
            "max_tokens": pool.max_ctx,
        }
        for pool in fleet.pools
    ]
    gamma = {} if fleet.compress_gamma is None else {"gamma": fleet.compress_gamma}
    return SimulateRequest(
        **_workload(asked.workload, state),
        compat=rules,
        rate_per_s=rate_per_s,
        ttft_ms=asked.slo_ms,
        fleet={"pools": pools, "router": _ROUTERS.get(fleet.router, fleet.router), **gamma},  # pyright: ignore[reportArgumentType]
        requests=asked.n_requests,
    )


def _workload(workload: WorkloadBody, state: State) -> dict[str, Any]:
    if workload.type == "trace":
        return {"trace": file_of(state, state.get("traces", str(workload.trace_id)))}
    if workload.name not in bundled_lengths():
        raise InputError("workload.name", workload.name, f"one of {', '.join(bundled_lengths())}")
    return {"workload": workload.name}


def _optimized(answer: SizeAnswer) -> dict[str, Any]:
    rows = [_row(fleet, simulated=False) for fleet in answer.fleets]
    rows += [_row(fleet, simulated=True) for fleet in answer.fleets if fleet.simulated]
    best = answer.chosen
    validation = {"probability": best.confidence} if best.simulated else None
    return {**_beside_baseline(_row(best, simulated=best.simulated), rows), "sim_validation": validation}


def _optimized_there(asked: SizeRequest) -> dict[str, Any]:
    """By the rules of vllm-sr-sim."""
    names = {
        "annualised_cost_kusd": "annual_cost_kusd",
        "p99_ttft_short_ms": "p99_short_ms",
        "p99_ttft_long_ms": "p99_long_ms",
    }
    found = answer_reference.fleets(asked)
    best, *rows = ({names.get(name, name): value for name, value in row.items()} for row in (best_of(found), *found))
    return {**_beside_baseline(best, rows), "sim_validation": None}


def _beside_baseline(best: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the best fleet saves of the cost without compression."""
    cost = next((row["annual_cost_kusd"] for row in rows if row["gamma"] == 1), None)
    saved = round(PERCENT * (1 - best["annual_cost_kusd"] / cost), 1) if cost else None
    return {"best": best, "sweep": rows, "baseline_annual_cost_kusd": cost, "savings_pct": saved}


def _row(fleet: FleetAnswer, *, simulated: bool) -> dict[str, Any]:
    pools = {pool.name: pool for pool in fleet.pools}

    def late_ms(name: str) -> float | None:
        pool = pools.get(name)
        if pool is None:
            return 0.0
        if not simulated:
            return pool.ttft_ms
        return None if pool.ttft_simulated_ms is None else pool.ttft_simulated_ms.value

    return {
        "gamma": fleet.gamma,
        "n_s": pools["short"].replicas if "short" in pools else 0,
        "n_l": pools["long"].replicas if "long" in pools else 0,
        "total_gpus": fleet.replicas,
        "annual_cost_kusd": fleet.cost.per_year / USD_PER_KUSD,
        "p99_short_ms": late_ms("short"),
        "p99_long_ms": late_ms("long"),
        "slo_met": fleet.meets,
        "source": "simulated" if simulated else "analytical",
    }


def _simulated(answer: SimulateAnswer) -> dict[str, Any]:
    return {
        "total_gpus": sum(pool.replicas for pool in answer.pools),
        "annual_cost_kusd": answer.price_per_year / USD_PER_KUSD,
        **_fleet(answer.fleet),
        "pools": [
            {
                "pool_id": pool.name,
                "gpu": pool.replica,
                "n_gpus": pool.replicas,
                "p50_ttft_ms": _value(pool.result.ttft_p50_ms),
                "p99_ttft_ms": _value(pool.result.ttft_ms),
                "p99_queue_wait_ms": pool.result.wait_ms,
                "slo_compliance": _value(pool.result.within_limit),
                "mean_utilisation": pool.result.utilization,
                "cost_per_hr": pool.price_per_hour,
            }
            for pool in answer.pools
        ],
        "ttft_histogram": list(answer.histogram),
        "arrival_rate_actual": round(answer.requests / answer.horizon_s, 2),
        "verdict": answer.verdict,
    }


def _fleet(fleet: Simulated) -> dict[str, Any]:
    return {
        "fleet_p99_ttft_ms": _value(fleet.ttft_ms),
        "fleet_p50_ttft_ms": _value(fleet.ttft_p50_ms),
        "fleet_slo_compliance": _value(fleet.within_limit),
        "fleet_mean_utilisation": fleet.utilization,
    }


def _value(interval: Any) -> float | None:
    return None if interval is None else interval.value


def _what_if(found: list[SimulateAnswer]) -> dict[str, Any]:
    points = []
    for answer in found:
        figures = _fleet(answer.fleet)
        del figures["fleet_p50_ttft_ms"]
        points.append(
            {"lam": answer.asked.rate_per_s, **figures, "annual_cost_kusd": answer.price_per_year / USD_PER_KUSD}
        )
    broken = [point["lam"] for point in points if (point["fleet_slo_compliance"] or 0.0) < ENOUGH]
    return {"points": points, "slo_break_lam": broken[0] if broken else None}
