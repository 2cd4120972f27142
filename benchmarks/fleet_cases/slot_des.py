# SPDX-License-Identifier: Apache-2.0
"""Queues simulated slot by slot: stated arrivals replayed, and the percentiles of the fleet reference's own draws.

The reference draws arrivals and lengths from one stream of the standard library's generator, the short pool before the
long one. The same draws are made here, so that its percentiles must come out exactly.
"""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aicjax.fleet.cdf import Knots, parse_knots, share
from aicjax.fleet.profile import Profile, first_token_s, service_s, slots
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.slot_queue import slot_waits
from benchmarks.fleet_cases import Row, profile_of

_SEED = 42
_COMPRESSED = 0.75  # share of the requests between the threshold and gamma times it that are made short
_QUANTILE = 0.99
_PERCENTILE = "p99_{pool}_ms"
_waits = jax.jit(slot_waits, static_argnames="width")


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every replay and both percentiles of every simulation."""
    for stated in answers["fcfs_replay"]:
        arrivals, service = np.asarray(stated["arrivals"]), np.asarray(stated["service"])
        found = _waits_s(np.diff(arrivals, prepend=0.0), service, stated["c"])
        yield Row(f"replay, {stated['c']} servers", found, stated["wait"], "absolute")
    for stated in answers["optimizer_des"]:
        case, count = stated["case"], stated["n_req"]
        label = f"{case['cdf']} {case['gs']} {case['B']} gamma {case['gamma']}, {count} requests"
        for pool, found in _percentiles_ms(answers, case, count).items():
            yield Row(f"{label}: {pool}", found, stated["result"][_PERCENTILE.format(pool=pool)])


def _percentiles_ms(answers: Mapping[str, Any], case: Mapping[str, Any], count: int) -> dict[str, float]:
    knots = parse_knots(answers["cdfs"][case["cdf"]], case["cdf"])
    stream = random.Random(_SEED)
    border = int(case["gamma"] * case["B"])
    below, below_border = float(share(knots, case["B"])), float(share(knots, border))
    to_short = min(1.0, below + max(0.0, below_border - below) * _COMPRESSED)
    short, long = _short(knots, case["B"]), _long(knots, border, below_border, case["L"])
    return {
        "short": _percentile_ms(
            stream, short, 0, case["lam"] * to_short, case["n_s"], profile_of(answers, case["gs"]), case["B"], count
        ),
        "long": _percentile_ms(
            stream,
            long,
            border,
            case["lam"] * (1 - to_short),
            case["n_l"],
            profile_of(answers, case["gl"]),
            case["L"],
            count,
        ),
    }


def _short(knots: Knots, threshold: int) -> Knots:
    kept = knots.tokens <= threshold
    return Knots(knots.tokens[kept], knots.shares[kept] / knots.shares[kept][-1])


def _long(knots: Knots, border: int, below: float, max_tokens: int) -> Knots:
    kept = knots.tokens > border
    if below >= 1 or not kept.any():
        return Knots(np.array([max_tokens]), np.ones(1))
    shares = np.clip((knots.shares[kept] - below) / (1 - below), 0.0, 1.0)
    shares[-1] = 1.0
    return Knots(knots.tokens[kept], shares)


def _percentile_ms(
    stream: random.Random,
    knots: Knots,
    before: int,
    rate_per_s: float,
    replicas: int,
    profile: Profile,
    max_tokens: int,
    count: int,
) -> float:
    """P99 of the TTFT of one pool, after as many more requests as a fifth of `count`."""
    warm_up = count // 5
    gaps, total = np.empty((2, count + warm_up))
    tokens = [int(x) for x in knots.tokens]
    starts = [max(1, before + 1 if before else 1), *(t + 1 if before else t for t in tokens)]
    for number in range(count + warm_up):
        gaps[number] = stream.expovariate(rate_per_s)
        knot = int(np.searchsorted(knots.shares, stream.random()))
        total[number] = stream.randint(starts[knot], max(starts[knot], tokens[knot]))
    isl = np.maximum(1, 4 * total // 5)
    osl = np.maximum(1, total - isl)
    service = service_s(profile, isl, osl, max_tokens, rules=FLEET_REFERENCE)
    prefill = first_token_s(profile, isl, 1.0, rules=FLEET_REFERENCE)
    waits = _waits_s(gaps, np.asarray(service), replicas * int(slots(profile, max_tokens)))
    ttft = np.sort((waits + np.asarray(prefill))[warm_up:])
    return float(ttft[max(0, int(_QUANTILE * count) - 1)]) * 1e3


def _waits_s(gaps_s: np.ndarray, service_s: np.ndarray, servers: int) -> np.ndarray:
    dtype = jnp.result_type(float)
    return np.asarray(_waits(jnp.asarray(gaps_s, dtype), jnp.asarray(service_s, dtype), servers, width=servers))
