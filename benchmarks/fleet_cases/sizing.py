# SPDX-License-Identifier: Apache-2.0
"""Two-pool sweeps, their candidates verified by the reference's own draws, tables of thresholds, and what-ifs."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aicjax._units import HOURS_PER_YEAR, MS_PER_S
from aicjax.fleet.capacity import Target
from aicjax.fleet.cdf import Knots, parse_knots, share
from aicjax.fleet.reference_sizing import reference_sweep
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.sizing import Sizing, cheapest
from aicjax.fleet.thresholds import knot_thresholds, on_front
from benchmarks.fleet_cases import Row, profile_of
from benchmarks.fleet_cases.slot_des import SEED, percentile_s, pools_of

_GAMMAS = tuple(1.0 + step / 10.0 for step in range(11))
_SUCCESS = 0.75
_VERIFIED_REQUESTS = 10_000
_LEAST_SIMULATED_PER_S = 0.1  # rate up to which the long pool is not simulated
_WHAT_IF = {"cdf": "azure", "B": 6144, "L": 65536, "slo": 500}
_AMPLIFIED = 4096.0  # rounding errors of the chance of waiting in a wait whose chance is near 1 %
_TIGHT = 1e-11  # of simulated times, as shares of the longest stay


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every sweep, table and what-if."""
    knots = {name: parse_knots(table, name) for name, table in answers["cdfs"].items()}
    for stated in answers["optimize"]:
        case = stated["case"]
        label = f"{case['cdf']} {case['gs']}/{case['gl']} {case['B']}, {case['lam']} req/s"
        sizing = _sweep(answers, case, knots, _GAMMAS)
        order = np.argsort(sizing.usd_per_hour, kind="stable")
        yield from _fleets(label, sizing, order, np.asarray(_GAMMAS), stated["sweep"])
        best = int(cheapest(sizing))
        yield Row(f"{label}: best", _GAMMAS[best], stated["best_analytical"]["gamma"], "relative", 1e-12)
        yield from _verified(answers, label, stated)
    for stated in answers["threshold_pareto"]:
        yield from _thresholds(answers, stated, knots)
    for stated in answers["whatif"]:
        case = {**_WHAT_IF, "gs": stated["gpu"], "gl": stated["gpu"], "lam": stated["lam"]}
        sizing = _sweep(answers, case, knots, _GAMMAS)
        best = np.array([int(cheapest(sizing))])
        yield from _fleets(
            f"what-if {stated['gpu']} {stated['lam']}", sizing, best, np.asarray(_GAMMAS), [stated["best"]]
        )


def _sweep(
    answers: Mapping[str, Any], case: Mapping[str, Any], knots: Mapping[str, Knots], gammas: Sequence[float]
) -> Sizing:
    return reference_sweep(
        [profile_of(answers, case["gs"]), profile_of(answers, case["gl"])],
        knots[case["cdf"]],
        case["B"],
        case["L"],
        gammas,
        case["lam"],
        Target(case["slo"] / MS_PER_S),
        case.get("p_c", _SUCCESS),
        case.get("node_avail", 1.0),
    )


def _fleets(
    label: str, sizing: Sizing, order: np.ndarray, gammas: np.ndarray, stored: Sequence[Mapping[str, Any]]
) -> Iterator[Row]:
    """Fleets in an order beside stored rows."""
    counts, ttft_s = np.asarray(sizing.load.replicas)[order], np.asarray(sizing.load.ttft_s)[order]
    usd = np.asarray(sizing.usd_per_hour)[order]
    yield Row(f"{label}: gamma", gammas[order], [row["gamma"] for row in stored], tolerance=1e-12)
    yield Row(f"{label}: replicas", counts, [[row["n_s"], row["n_l"]] for row in stored], "exact")
    yield Row(f"{label}: $/h", usd, [row["cost_per_hr"] for row in stored])
    yield Row(f"{label}: k$/yr", usd * HOURS_PER_YEAR / 1e3, [row["annualised_cost_kusd"] for row in stored])
    theirs = [[row["p99_ttft_short_ms"], row["p99_ttft_long_ms"]] for row in stored]
    yield _ttft(label, ttft_s, theirs)
    yield Row(f"{label}: met", np.asarray(sizing.met)[order], [row["slo_met"] for row in stored], "exact")


def _ttft(label: str, ours_s: np.ndarray, theirs_ms: Sequence[Sequence[float]]) -> Row:
    tolerance = max(1e-9, _AMPLIFIED * float(np.finfo(ours_s.dtype).eps))
    return Row(f"{label}: TTFT", ours_s * MS_PER_S, np.asarray(theirs_ms, float), tolerance=tolerance)


def _verified(answers: Mapping[str, Any], label: str, stated: Mapping[str, Any]) -> Iterator[Row]:
    """Simulated percentiles of the first candidates, and the best of them."""
    for row in stated["des_verified"]:
        case = {**stated["case"], "gamma": row["gamma"], "n_s": row["n_s"], "n_l": row["n_l"]}
        stream = random.Random(SEED)
        for pool in pools_of(answers, case):
            if pool.name == "long" and (pool.rate_per_s <= _LEAST_SIMULATED_PER_S or not pool.replicas):
                found_s, longest_s = 0.0, 1.0
            else:
                found_s, longest_s = percentile_s(stream, pool, _VERIFIED_REQUESTS)
            theirs_s = row[f"p99_ttft_{pool.name}_ms"] / MS_PER_S
            name = f"{label}: gamma {row['gamma']} simulated, {pool.name}"
            yield Row(name, found_s / longest_s, theirs_s / longest_s, "absolute", _TIGHT)


def _thresholds(answers: Mapping[str, Any], stated: Mapping[str, Any], knots: Mapping[str, Knots]) -> Iterator[Row]:
    """One table of thresholds."""
    case, stored = stated["case"], stated["rows"]
    label = f"thresholds {case['cdf']} {case['gpu_short']}/{case['gpu_long']}, {case['lam']} req/s"
    asked = {**case, "gs": case["gpu_short"], "gl": case["gpu_long"], "slo": case["slo_ms"], "L": case["long_max_ctx"]}
    distribution = knots[case["cdf"]]
    thresholds = [int(tokens) for tokens in knot_thresholds(distribution)]
    yield Row(f"{label}: tokens", thresholds, [row["b_short"] for row in stored], "exact")
    shares = [float(share(distribution, float(tokens))) for tokens in thresholds]
    yield Row(f"{label}: alpha", shares, [row["alpha"] for row in stored])
    found = [_sweep(answers, {**asked, "B": tokens}, knots, [case["gamma"]]) for tokens in [*thresholds, asked["L"]]]
    *usd, single = (float(sizing.usd_per_hour[0]) for sizing in found)
    ttft_s = np.stack([np.asarray(sizing.load.ttft_s[0]) for sizing in found[:-1]])
    counts = [np.asarray(sizing.load.replicas[0]).tolist() for sizing in found[:-1]]
    yield Row(f"{label}: replicas", counts, [[row["n_s"], row["n_l"]] for row in stored], "exact")
    yield Row(f"{label}: k$/yr", np.asarray(usd) * HOURS_PER_YEAR / 1e3, [row["cost_kusd_yr"] for row in stored])
    saving = 100.0 * (1.0 - np.asarray(usd) / single)
    yield Row(f"{label}: saving", saving, [row["savings_vs_homo_pct"] for row in stored], "absolute")
    theirs = [[row["p99_short_ms"], row["p99_long_ms"]] for row in stored]
    yield _ttft(label, ttft_s, theirs)
    front = on_front(np.asarray(usd), ttft_s.max(axis=1), rules=FLEET_REFERENCE)
    yield Row(f"{label}: front", np.asarray(front), [row["pareto"] for row in stored], "exact")
    met = [bool(sizing.met[0]) for sizing in found[:-1]]
    yield Row(f"{label}: met", met, [row["slo_met"] for row in stored], "exact")
