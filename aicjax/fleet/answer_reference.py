# SPDX-License-Identifier: Apache-2.0
"""Sizings as in the fleet reference: two pools, its draws, its Kimura waits, in double precision."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from aicjax._results import InputError
from aicjax._units import HOURS_PER_YEAR, MS_PER_S, PERCENT, USD_PER_KUSD
from aicjax.fleet.cdf import Knots, load_lengths, share
from aicjax.fleet.fleet_rows import asked_of
from aicjax.fleet.inputs import law_of, load_of, profile_of, target_of
from aicjax.fleet.lengths import from_cdf
from aicjax.fleet.pool_queue import simulate_queues
from aicjax.fleet.profile import Profile, slots
from aicjax.fleet.reference_answers import ReferenceAnswer
from aicjax.fleet.reference_sizing import long_knots, reference_sweep, short_knots
from aicjax.fleet.replica_spec import Replica
from aicjax.fleet.requests import ParetoRequest, SizeRequest, WhatIfRequest
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.service_times import service_law
from aicjax.fleet.sizing import Sizing, cheapest
from aicjax.fleet.statistics import after_warm_up, nearest_rank
from aicjax.fleet.thresholds import knot_thresholds, on_front

Row = dict[str, Any]


def knots_of(request: Any) -> Knots:
    """The distribution of total tokens of a request.

    Raises:
        InputError: The workload is no distribution.
    """
    if request.workload is None:
        raise InputError("workload", None, "a distribution when compat = fleet-reference")
    return load_lengths(request.workload).knots


def size(request: SizeRequest) -> ReferenceAnswer:
    """Fleets by reach of compression, cheapest first, then the first of them simulated."""
    rows = [rounded(row) for row in fleets(request)]
    best = best_of(rows)
    return ReferenceAnswer(asked_of(request, law_of(request)), rows, _phrase(best), bool(best["slo_met"]))


def fleets(request: SizeRequest) -> list[Row]:
    """The rows of a sizing in all their digits."""
    pair = _pair(request.replica, request.replica_long)
    threshold = _threshold(request.thresholds)
    with jax.enable_x64(True):
        found = _swept(request, pair, threshold, request.gammas, load_of(request)[0])
        order = np.argsort(np.asarray(found.usd_per_hour), kind="stable")
        rows = [_size_row(found, int(place), request.gammas) for place in order]
        return rows + [_simulated_row(request, pair, threshold, row) for row in rows[: request.verify_top]]


def best_of(rows: Sequence[Row]) -> Row:
    """The first row that meets the limit, a simulated one where there are any; the first of all where none does."""
    simulated = [row for row in rows if row["source"] == "simulated"]
    tried = simulated or rows
    return next((row for row in tried if row["slo_met"]), rows[0])


def rounded(row: Row) -> Row:
    """A row as the commands write it."""
    digits = {"annualised_cost_kusd": 1, "p99_ttft_short_ms": 1, "p99_ttft_long_ms": 1, "cost_per_hr": 2}
    return {name: round(value, digits[name]) if name in digits else value for name, value in row.items()}


def whatif(request: WhatIfRequest) -> ReferenceAnswer:
    """The cheapest fleet at each rate, or of each kind of replica at each rate."""
    threshold = _threshold(request.thresholds)
    rows: list[Row] = []
    with jax.enable_x64(True):
        for rate in request.rates_per_s:
            if request.compare is None:
                best = _best(request, _pair(request.replica, request.replica_long), threshold, rate)
                kept = {name: best[name] for name in ("n_s", "n_l", "total_gpus", "annualised_cost_kusd")}
                rows.append({"lam": rate, **kept, "gamma_opt": best["gamma"]})
                continue
            each = {}
            for kind in request.compare:
                best = _best(request, _pair(kind, None), threshold, rate)
                names = ("total_gpus", "cost_per_hr", "annualised_cost_kusd", "p99_ttft_short_ms", "slo_met")
                each[getattr(kind, "preset", None) or profile_of(kind).name] = {name: best[name] for name in names}
            rows.append({"lam": rate, **each})
    gpus = ", ".join(str(row.get("total_gpus", "")) for row in rows) if request.compare is None else "see the rows"
    headline = f"GPUs by rate: {gpus}"
    return ReferenceAnswer(asked_of(request, law_of(request)), rows, headline, True)


def pareto(request: ParetoRequest) -> ReferenceAnswer:
    """Fleets by threshold; the saving is against one pool of the longest context."""
    pair = _pair(request.replica, request.replica_long)
    knots = knots_of(request)
    thresholds = [int(tokens) for tokens in (request.thresholds or knot_thresholds(knots))]
    gammas, rate_per_s = (request.gamma_max,), load_of(request)[0]
    with jax.enable_x64(True):
        found = [_swept(request, pair, tokens, gammas, rate_per_s) for tokens in [*thresholds, request.max_tokens]]
        usd = np.asarray([float(np.asarray(sizing.usd_per_hour)[0]) for sizing in found])
        worst_s = np.asarray([float(np.max(np.asarray(sizing.load.ttft_s)[0])) for sizing in found])
        alike_s = worst_s[:-1].round(12)  # sums of equal times differ in their last digits
        front = np.asarray(on_front(usd[:-1], alike_s, rules=FLEET_REFERENCE))
        shares = [float(share(knots, float(tokens))) for tokens in thresholds]
    rows = []
    for place, (tokens, sizing) in enumerate(zip(thresholds, found[:-1], strict=True)):
        short, long = np.asarray(sizing.load.replicas)[0].astype(int).tolist()
        late_ms = (np.asarray(sizing.load.ttft_s)[0] * MS_PER_S).tolist()
        rows.append(
            {
                "b_short": tokens,
                "alpha": shares[place],
                "n_s": short,
                "n_l": long,
                "total_gpus": short + long,
                "cost_kusd_yr": usd[place] * HOURS_PER_YEAR / USD_PER_KUSD,
                "savings_vs_homo_pct": PERCENT * (1.0 - usd[place] / usd[-1]),
                "p99_short_ms": late_ms[0],
                "p99_long_ms": late_ms[1],
                "worst_p99_ms": max(late_ms),
                "slo_met": bool(np.asarray(sizing.met)[0]),
                "pareto": bool(front[place]),
            }
        )
    good = [row for row in rows if row["slo_met"] and row["pareto"]]
    best = min(good, key=lambda row: row["cost_kusd_yr"]) if good else rows[0]
    headline = f"threshold {best['b_short']}: {best['n_s']} short + {best['n_l']} long"
    return ReferenceAnswer(asked_of(request, law_of(request)), rows, headline, bool(good))


def _pair(short: Replica, long: Replica | None) -> list[Profile]:
    return [profile_of(kind, FLEET_REFERENCE) for kind in (short, short if long is None else long)]


def _threshold(thresholds: Sequence[int]) -> int:
    if len(thresholds) != 1:
        raise InputError("thresholds", list(thresholds), "one when compat = fleet-reference: it has two pools")
    return thresholds[0]


def _swept(request: Any, pair: Sequence[Profile], threshold: int, gammas: Sequence[float], rate_per_s: float) -> Sizing:
    return reference_sweep(
        pair,
        knots_of(request),
        threshold,
        request.max_tokens,
        gammas,
        rate_per_s,
        target_of(request),
        request.compressible,
        request.availability,
    )


def _best(request: WhatIfRequest, pair: Sequence[Profile], threshold: int, rate_per_s: float) -> Row:
    found = _swept(request, pair, threshold, request.gammas, rate_per_s)
    return rounded(_size_row(found, int(cheapest(found)), request.gammas, hourly=True))


def _size_row(found: Sizing, place: int, gammas: Sequence[float], *, hourly: bool = False) -> Row:
    short, long = np.asarray(found.load.replicas)[place].astype(int).tolist()
    late_ms = np.asarray(found.load.ttft_s)[place] * MS_PER_S
    usd = float(np.asarray(found.usd_per_hour)[place])
    return {
        "gamma": gammas[place],
        "n_s": short,
        "n_l": long,
        "total_gpus": short + long,
        **({"cost_per_hr": usd} if hourly else {}),
        "annualised_cost_kusd": usd * HOURS_PER_YEAR / USD_PER_KUSD,
        "p99_ttft_short_ms": float(late_ms[0]),
        "p99_ttft_long_ms": float(late_ms[1]),
        "slo_met": bool(np.asarray(found.met)[place]),
        "source": "analytical",
    }


def _simulated_row(request: SizeRequest, pair: Sequence[Profile], threshold: int, row: Row) -> Row:
    """A fleet with the percentile of a simulation of the same laws; the draws are not those of the fleet reference."""
    knots, rate_per_s = knots_of(request), load_of(request)[0]
    reach = int(row["gamma"] * threshold)
    below, reached = float(share(knots, float(threshold))), float(share(knots, float(reach)))
    to_short = min(1.0, below + max(0.0, reached - below) * request.compressible)
    laws = (short_knots(knots, threshold), long_knots(knots, reach, reached, request.max_tokens))
    counts, limits = (row["n_s"], row["n_l"]), (threshold, request.max_tokens)
    late_ms = []
    for profile, law, count, limit, part in zip(pair, laws, counts, limits, (to_short, 1 - to_short), strict=True):
        if not count or part <= 0:
            late_ms.append(0.0)
            continue
        servers = count * int(slots(profile, limit))
        service = service_law(profile, from_cdf(law), float(limit), rules=FLEET_REFERENCE)
        sample = simulate_queues(
            jax.random.key(request.seed),
            service,
            rate_per_s * part,
            servers,
            requests=request.run_length(float(servers)),
            seeds=request.seeds,
        )
        ranked = nearest_rank(after_warm_up(sample.ttft_s).ravel(), request.quantile)
        late_ms.append(0.0 if ranked is None else float(ranked) * MS_PER_S)
    met = max(late_ms) <= request.ttft_ms
    late = dict(zip(("p99_ttft_short_ms", "p99_ttft_long_ms"), late_ms, strict=True))
    return {**row, **late, "slo_met": met, "source": "simulated"}


def _phrase(row: Row) -> str:
    return f"{row['n_s']} short + {row['n_l']} long, gamma {row['gamma']:g}: {row['annualised_cost_kusd']} k$ a year"
