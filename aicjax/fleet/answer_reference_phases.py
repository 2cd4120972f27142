# SPDX-License-Identifier: Apache-2.0
"""Disaggregated fleets and power as in the fleet reference, and simulations of this project under its names."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aicjax._units import HOURS_PER_YEAR, MS_PER_S, PERCENT, USD_PER_KUSD, W_PER_KW
from aicjax.fleet.answer_parts import MET
from aicjax.fleet.answer_reference import Row, knots_of
from aicjax.fleet.capacity import Target
from aicjax.fleet.cdf import Knots, share
from aicjax.fleet.demand_response import FixedFleet, demand_response
from aicjax.fleet.disagg import Limits, Load, disagg_sweep
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.fleet_rows import asked_of
from aicjax.fleet.inputs import law_of, load_of, profile_of, target_of
from aicjax.fleet.lengths import constant
from aicjax.fleet.profile import Profile
from aicjax.fleet.reference_answers import ReferenceAnswer
from aicjax.fleet.reference_draws import reference_draws
from aicjax.fleet.reference_power import Point, point_row, points, split_knots, total_row
from aicjax.fleet.requests import DisaggRequest, PowerRequest, RoutersRequest, SimulateRequest
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.run_answers import RoutersAnswer, SimulateAnswer, Simulated

INPUT_SHARE = 0.75  # of the tokens of a mean request, taken at the upper ends of its intervals
_ROUTERS = {
    "length": "LengthRouter",
    "compress": "CompressAndRouteRouter",
    "random": "RandomRouter",
    "least_loaded": "LeastLoadedRouter",
    "spillover": "SpilloverRouter",
}


def disagg(request: DisaggRequest) -> ReferenceAnswer:
    """The cheapest counts of both phases, and those that none beats in price and GPUs."""
    prefill, decode = (profile_of(kind, FLEET_REFERENCE) for kind in (request.prefill, request.decode))
    isl, osl = _means(request)
    with jax.enable_x64(True):
        sweep = disagg_sweep(
            prefill,
            decode,
            request.max_prefill,
            request.max_decode,
            Load(load_of(request)[0], constant(isl, osl), float(request.max_tokens)),
            Limits(request.ttft_ms / MS_PER_S, request.tpot_ms / MS_PER_S),
            load_fleet_constants().disagg,
            rules=FLEET_REFERENCE,
        )
        sweep = jax.tree.map(np.asarray, sweep)
    within = (sweep.ttft_s * MS_PER_S <= request.ttft_ms) & (sweep.tpot_s * MS_PER_S <= request.tpot_ms)
    served = within & (sweep.capacity_per_s >= load_of(request)[0])
    rows = [
        {
            "n_prefill": int(sweep.prefill_replicas[place]),
            "n_decode": int(sweep.decode_replicas[place]),
            "total_gpus": int(sweep.gpus[place]),
            "system_rate": float(sweep.capacity_per_s[place]),
            "thru_per_gpu": float(sweep.capacity_per_s[place] / sweep.gpus[place]),
            "ttft_ms": float(sweep.ttft_s[place]) * MS_PER_S,
            "tpot_ms": float(sweep.tpot_s[place]) * MS_PER_S,
            "cost_per_hr": float(sweep.usd_per_hour[place]),
            "slo_met": True,
        }
        for place in zip(*np.nonzero(served), strict=True)
    ]
    rows.sort(key=lambda row: row["cost_per_hr"])
    best = rows[0] if rows else None
    headline = "nothing" if best is None else f"{best['n_prefill']} prefill + {best['n_decode']} decode replicas"
    content = {"best": best, "pareto": _unbeaten(rows)}
    return ReferenceAnswer(asked_of(request, law_of(request)), content, headline, best is not None)


def _means(request: DisaggRequest) -> tuple[int, int]:
    """Stated mean tokens, else shares of the mean of the distribution with every length at the end of its interval."""
    if request.isl is not None and request.osl is not None:
        return request.mean_isl or request.isl, request.mean_osl or request.osl
    knots = knots_of(request)
    total = float(knots.tokens @ np.diff(knots.shares, prepend=0.0))
    isl, osl = int(INPUT_SHARE * total), int((1 - INPUT_SHARE) * total)
    return request.mean_isl or isl, request.mean_osl or osl


def _unbeaten(rows: Sequence[Row]) -> list[Row]:
    """Rows that no other is as good as in price and GPUs and better in one."""

    def beats(other: Row, row: Row) -> bool:
        ours, theirs = (other["cost_per_hr"], other["total_gpus"]), (row["cost_per_hr"], row["total_gpus"])
        return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))

    return [row for row in rows if not any(beats(other, row) for other in rows)]


def power(request: PowerRequest) -> ReferenceAnswer:
    """Cuts of power, or tokens per watt of single pools or of two against one."""
    with jax.enable_x64(True):
        if request.replicas is not None:
            content: Any = _cuts(request, request.replicas)
            meets = any(row["slo_met"] for row in content)
        elif request.threshold is not None:
            content, meets = _routed(request, request.threshold), True
        else:
            content, meets = _kinds(request), True
    return ReferenceAnswer(asked_of(request, law_of(request)), content, "see the rows", meets)


def _cuts(request: PowerRequest, replicas: int) -> list[Row]:
    profile = profile_of(request.compare[0], FLEET_REFERENCE)
    law = reference_draws(knots_of(request), request.max_tokens)
    fleet = FixedFleet(float(replicas), float(request.max_tokens), law, load_of(request)[0])
    limit_s = request.ttft_ms / MS_PER_S
    cuts = jnp.asarray([percent / PERCENT for percent in request.flex_percents])
    found = jax.tree.map(np.asarray, demand_response(profile, fleet, cuts, Target(limit_s), FLEET_REFERENCE))
    return [
        {
            "flex_pct": float(percent),
            "n_max_cap": int(found.cap[place]),
            "power_per_gpu_w": float(found.cap_gpu_w[place]),
            "power_fleet_kw": float(found.cap_w[place]) / W_PER_KW,
            "p99_ttft_ms": float(found.load.ttft_s[place]) * MS_PER_S,
            "slo_met": bool(found.load.ttft_s[place] <= limit_s),
        }
        for place, percent in enumerate(request.flex_percents)
    ]


def _points(request: PowerRequest, profile: Profile, knots: Knots, part: float = 1.0) -> list[Point]:
    rate_per_s = load_of(request)[0] * part
    return points(profile, knots, request.max_tokens, rate_per_s, target_of(request), request.utilizations)


def _kinds(request: PowerRequest) -> list[Row]:
    knots = knots_of(request)
    rows = []
    for kind in request.compare:
        found = _points(request, profile_of(kind, FLEET_REFERENCE), knots)
        rows += [point_row(point, sized=place == 0) for place, point in enumerate(found)]
    return rows


def _routed(request: PowerRequest, threshold: int) -> dict[str, Row]:
    knots = knots_of(request)
    short, long = (profile_of(request.compare[place], FLEET_REFERENCE) for place in (0, -1))
    below = float(share(knots, float(threshold)))
    near, far, part = split_knots(knots, threshold, below)
    one = _points(request, long, knots)[:1]
    two = _points(request, short, near, part)[:1] + _points(request, long, far, 1.0 - part)[:1]
    return {"homo": total_row(one), "routed": total_row(two)}


def summary(request: SimulateRequest, found: SimulateAnswer) -> ReferenceAnswer:
    """A simulation of this project under the names of the fleet reference's summary."""
    content: Row = {
        "total_gpus": sum(pool.replicas for pool in found.pools),
        "total_completed": found.fleet.completed,
        "cost_per_hr_usd": round(found.price_per_hour, 4),
        "annualised_cost_kusd": round(found.price_per_hour * HOURS_PER_YEAR / USD_PER_KUSD, 1),
        "fleet_p99_ttft_ms": _rounded(found.fleet.ttft_ms),
        "fleet_p50_ttft_ms": _rounded(found.fleet.ttft_p50_ms),
        "fleet_p99_qwait_ms": found.fleet.wait_ms,
        "fleet_slo_compliance": _rounded(found.fleet.within_limit, 4),
        "mean_utilisation": round(found.fleet.utilization, 4),
    }
    for pool in found.pools:
        content |= {
            f"{pool.name}_n_gpus": pool.replicas,
            f"{pool.name}_p99_ttft_ms": _rounded(pool.result.ttft_ms),
            f"{pool.name}_p99_qwait_ms": pool.result.wait_ms,
            f"{pool.name}_util": round(pool.result.utilization, 4),
            f"{pool.name}_slo": _rounded(pool.result.within_limit, 4),
        }
    headline = f"{found.verdict}: P99 TTFT {content['fleet_p99_ttft_ms']} ms"
    return ReferenceAnswer(found.asked, content, headline, found.verdict == MET)


def routers(request: RoutersRequest, found: RoutersAnswer) -> ReferenceAnswer:
    """A comparison of this project under the names of the fleet reference."""
    rows = [
        {
            "router": _ROUTERS.get(row.router, row.router),
            "p99_ttft_ms": _rounded(row.fleet.ttft_ms, 2),
            "slo_compliance_pct": _percent(row.fleet),
            "mean_utilisation_pct": round(row.fleet.utilization * PERCENT, 2),
        }
        for row in found.rows
    ]
    return ReferenceAnswer(found.asked, rows, f"{len(rows)} routers", True)


def _percent(fleet: Simulated) -> float | None:
    return None if fleet.within_limit is None else round(fleet.within_limit.value * PERCENT, 2)


def _rounded(interval: Any, digits: int = 1) -> float | None:
    return None if interval is None else round(interval.value, digits)
