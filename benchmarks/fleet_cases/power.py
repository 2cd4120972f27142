# SPDX-License-Identifier: Apache-2.0
"""Demand response and tokens per watt of single pools and of fleets. Event-simulated columns belong to another file."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from aicjax._units import MS_PER_S
from aicjax.fleet.capacity import Target
from aicjax.fleet.cdf import Knots, share
from aicjax.fleet.demand_response import FixedFleet, demand_response
from aicjax.fleet.profile import Profile
from aicjax.fleet.reference_draws import reference_draws
from aicjax.fleet.reference_power import W_PER_KW, Point, point_row, points, split_knots, total_row
from aicjax.fleet.rules import FLEET_REFERENCE
from benchmarks.fleet_cases import Row, profile_of

_UTILIZATIONS = (0.2, 0.4, 0.6, 0.8)


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every analytic row."""
    for at, stated in enumerate(answers["grid_flex"]):
        yield from _response_rows(f"response {at}", answers, stated)
    for at, stated in enumerate(answers["tok_per_watt"]):
        case = stated["case"]
        found = [
            point
            for key in case["gpus"]
            for point in _points(profile_of(answers, key), _knots(answers, case["cdf"]), case)
        ]
        for ours, theirs in zip(found, stated["rows"], strict=True):
            yield from _point_rows(f"tokens {at} {theirs['gpu_name']} {theirs['n_gpus']}", ours, theirs)
    for at, stated in enumerate(answers["fleet_tok_per_watt"]):
        yield from _fleet_rows(f"fleet {at}", answers, stated)


def _knots(answers: Mapping[str, Any], name: str) -> Knots:
    tokens, shares = np.asarray(answers["cdfs"][name], float).T
    return Knots(tokens, shares)


def _points(profile: Profile, knots: Knots, case: Mapping[str, Any], scale: float = 1.0) -> list[Point]:
    """The pool sized by the limit, then by each utilisation; `scale` is its share of the rate."""
    return points(profile, knots, case["ctx"], case["lam"] * scale, Target(case["slo"] / MS_PER_S), _UTILIZATIONS)


def _response_rows(label: str, answers: Mapping[str, Any], stated: Mapping[str, Any]) -> Iterator[Row]:
    case, theirs = stated["case"], stated["rows"]
    profile = profile_of(answers, case["gpu"])
    law = reference_draws(_knots(answers, case["cdf"]), case["ctx"])
    fleet = FixedFleet(float(case["n"]), float(case["ctx"]), law, float(case["lam"]))
    cuts = np.asarray([row["flex_pct"] for row in theirs]) / 100.0
    limit_s = case["slo"] / MS_PER_S
    found = demand_response(profile, fleet, jnp.asarray(cuts), Target(limit_s), FLEET_REFERENCE)
    yield Row(f"{label} cap", np.asarray(found.cap), [row["n_max_cap"] for row in theirs], "exact")
    watts = [row["power_per_gpu_w"] for row in theirs]
    yield Row(f"{label} power", found.cap_gpu_w, watts)
    yield Row(f"{label} fleet power", found.cap_w / W_PER_KW, [row["power_fleet_kw"] for row in theirs])
    ttft_s = np.asarray(found.load.ttft_s)
    yield Row(f"{label} TTFT", ttft_s * MS_PER_S, [row["p99_ttft_ms"] for row in theirs])
    if not stated["des_requests"]:  # else the verdict is that of its event simulation
        yield Row(f"{label} verdict", ttft_s <= limit_s, [row["slo_met"] for row in theirs], "exact")


def _point_rows(label: str, ours: Point, theirs: Mapping[str, Any]) -> Iterator[Row]:
    found = point_row(ours, sized=True)
    counted = ("n_gpus", "power_model_qual")
    yield Row(label, [found[key] for key in counted], [theirs[key] for key in counted], "exact")
    numbers = ("rho", "n_active", "power_per_gpu_w", "tokens_per_watt", "cost_per_mil", "p99_ttft_ms")
    yield Row(label, [found[key] for key in numbers], [theirs[key] for key in numbers])


def _fleet_rows(label: str, answers: Mapping[str, Any], stated: Mapping[str, Any]) -> Iterator[Row]:
    case = stated["case"]
    knots, edge = _knots(answers, case["cdf"]), case["b"]
    short, long, alpha = split_knots(knots, edge, float(share(knots, float(edge))))
    yield Row(f"{label} share", alpha, stated["alpha"])
    near, far = profile_of(answers, case["gs"]), profile_of(answers, case["gl"])
    one = _points(far, knots, case)[:1]
    two = _points(near, short, case, alpha)[:1] + _points(far, long, case, 1.0 - alpha)[:1]
    for key, pools in (("homo", one), ("routed", two)):
        theirs = stated[key]
        for ours, row in zip(pools, theirs["pools"], strict=True):
            yield from _point_rows(f"{label} {key} {row['pool_label']}", ours, row)
        numbers = {
            **total_row(pools),
            "worst_p99_ms": max(float(point.load.ttft_s) for point in pools) * MS_PER_S,
        }
        yield Row(f"{label} {key}", list(numbers.values()), [theirs[name] for name in numbers])
