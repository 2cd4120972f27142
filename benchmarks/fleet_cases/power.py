# SPDX-License-Identifier: Apache-2.0
"""Demand response and tokens per watt of single pools and of fleets. Event-simulated columns belong to another file."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aicjax._units import MS_PER_S
from aicjax.fleet.capacity import PoolLoad, Target, least_replicas
from aicjax.fleet.cdf import Knots, share
from aicjax.fleet.demand_response import FixedFleet, demand_response
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.pool_power import PoolPower, power_law
from aicjax.fleet.pools import Pool, service_of
from aicjax.fleet.profile import Profile, slots, unnamed
from aicjax.fleet.reference_draws import DRAWS, reference_draws
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.tokens_per_watt import Efficiency, at_utilization, binned_mean_osl, pool_efficiency
from benchmarks.fleet_cases import Row, profile_of

_W_PER_KW = 1e3
_UTILIZATIONS = (0.2, 0.4, 0.6, 0.8)
_PADS = ("edge", "edge", "constant")  # isl, osl, weight
_LEAST_SHARE = 1e-6  # of the requests in a pool of the reference's split


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


class _Point(NamedTuple):
    """One pool at one utilisation."""

    profile: Profile
    load: PoolLoad
    efficiency: Efficiency
    power: PoolPower


def _knots(answers: Mapping[str, Any], name: str) -> Knots:
    tokens, shares = np.asarray(answers["cdfs"][name], float).T
    return Knots(tokens, shares)


def _draws(knots: Knots, max_tokens: int) -> Lengths:
    """The reference's draws with points of no weight up to their number: one compiled program serves all."""
    law = reference_draws(knots, max_tokens)
    more = DRAWS - len(law.weight)
    return Lengths(
        *(np.pad(np.asarray(leaf, float), (0, more), mode=mode) for leaf, mode in zip(law, _PADS, strict=True))
    )


def _pool(profile: Profile, knots: Knots, max_tokens: int) -> Pool:
    law = _draws(knots, max_tokens)
    return Pool(profile, float(max_tokens), law, jnp.zeros_like(jnp.asarray(law.weight)), jnp.ones(()))


def _points(profile: Profile, knots: Knots, case: Mapping[str, Any], scale: float = 1.0) -> list[_Point]:
    """The pool sized by the limit, then by each utilisation; `scale` is its share of the rate."""
    pool, target = _pool(unnamed(profile), knots, case["ctx"]), Target(case["slo"] / MS_PER_S)
    found = _evaluated(pool, float(case["lam"] * scale), target, binned_mean_osl(knots), np.array(_UTILIZATIONS))
    rows = range(1 + len(_UTILIZATIONS))
    return [_Point(profile, *jax.tree.map(lambda leaf, row=row: np.asarray(leaf)[row], found)) for row in rows]


@jax.jit
def _evaluated(
    pool: Pool, rate: Any, target: Target, osl: Any, utilizations: Any
) -> tuple[PoolLoad, Efficiency, PoolPower]:
    service = service_of(pool, rules=FLEET_REFERENCE)
    room = slots(pool.profile, pool.max_tokens).astype(float)
    sized = least_replicas(room, rate, service, target, rules=FLEET_REFERENCE)
    others = jax.vmap(lambda rho: at_utilization(pool, rho, rate, target, rules=FLEET_REFERENCE))(utilizations)
    loads = jax.tree.map(lambda first, rest: jnp.append(first, rest), sized, others)
    return loads, *pool_efficiency(pool, loads, rate, mean_osl=osl, rules=FLEET_REFERENCE)


def _response_rows(label: str, answers: Mapping[str, Any], stated: Mapping[str, Any]) -> Iterator[Row]:
    case, theirs = stated["case"], stated["rows"]
    profile = profile_of(answers, case["gpu"])
    law = _draws(_knots(answers, case["cdf"]), case["ctx"])
    fleet = FixedFleet(float(case["n"]), float(case["ctx"]), law, float(case["lam"]))
    cuts = np.asarray([row["flex_pct"] for row in theirs]) / 100.0
    limit_s = case["slo"] / MS_PER_S
    found = demand_response(profile, fleet, jnp.asarray(cuts), Target(limit_s), FLEET_REFERENCE)
    yield Row(f"{label} cap", np.asarray(found.cap), [row["n_max_cap"] for row in theirs], "exact")
    watts = [row["power_per_gpu_w"] for row in theirs]
    yield Row(f"{label} power", found.cap_gpu_w, watts)
    yield Row(f"{label} fleet power", found.cap_w / _W_PER_KW, [row["power_fleet_kw"] for row in theirs])
    ttft_s = np.asarray(found.load.ttft_s)
    yield Row(f"{label} TTFT", ttft_s * MS_PER_S, [row["p99_ttft_ms"] for row in theirs])
    if not stated["des_requests"]:  # else the verdict is that of its event simulation
        yield Row(f"{label} verdict", ttft_s <= limit_s, [row["slo_met"] for row in theirs], "exact")


def _point_rows(label: str, ours: _Point, theirs: Mapping[str, Any]) -> Iterator[Row]:
    yield Row(label, ours.load.replicas.tolist(), theirs["n_gpus"], "exact")
    numbers = {
        "rho": ours.load.utilization,
        "n_active": ours.power.running,
        "power_per_gpu_w": ours.power.gpu_w,
        "tokens_per_watt": ours.efficiency.tokens_per_joule,
        "cost_per_mil": ours.efficiency.usd_per_million_tokens,
        "p99_ttft_ms": ours.load.ttft_s * MS_PER_S,
    }
    yield Row(label, list(numbers.values()), [theirs[key] for key in numbers])
    yield Row(label, power_law(ours.profile).evidence, theirs["power_model_qual"].lower(), "exact")


def _fleet_rows(label: str, answers: Mapping[str, Any], stated: Mapping[str, Any]) -> Iterator[Row]:
    case = stated["case"]
    knots, edge = _knots(answers, case["cdf"]), case["b"]
    alpha = float(np.clip(share(knots, float(edge)), _LEAST_SHARE, 1.0 - _LEAST_SHARE))
    yield Row(f"{label} share", alpha, stated["alpha"])
    short, long = _split(knots, edge, alpha)
    near, far = profile_of(answers, case["gs"]), profile_of(answers, case["gl"])
    one = _points(far, knots, case)[:1]
    two = _points(near, short, case, alpha)[:1] + _points(far, long, case, 1.0 - alpha)[:1]
    for key, points in (("homo", one), ("routed", two)):
        theirs = stated[key]
        for ours, row in zip(points, theirs["pools"], strict=True):
            yield from _point_rows(f"{label} {key} {row['pool_label']}", ours, row)
        total = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[point.efficiency for point in points]).total()
        numbers = {
            "fleet_tpw": total.tokens_per_joule,
            "fleet_cost_per_mil": total.usd_per_million_tokens,
            "fleet_power_kw": total.watts / _W_PER_KW,
            "total_gpus": sum(point.load.replicas for point in points),
            "worst_p99_ms": max(point.load.ttft_s for point in points) * MS_PER_S,
        }
        yield Row(f"{label} {key}", list(numbers.values()), [theirs[name] for name in numbers])


def _split(knots: Knots, edge: int, alpha: float) -> tuple[Knots, Knots]:
    """Knots of both sides of an edge, as the fleet reference has them: the long side has none at the edge."""
    tokens, shares = knots.tokens, knots.shares
    below = tokens <= edge
    near, far = (tokens[below], shares[below] / alpha), (tokens[~below], (shares[~below] - alpha) / (1.0 - alpha))
    if near[0][-1] < edge:
        near = np.append(near[0], edge), np.append(near[1], 1.0)
    else:
        near[1][-1] = 1.0
    if far[0].size:
        far[1][-1] = 1.0
    else:
        far = np.array([edge + 1.0]), np.ones(1)
    return Knots(*near), Knots(*far)
