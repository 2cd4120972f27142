# SPDX-License-Identifier: Apache-2.0
"""Queues simulated slot by slot: stated arrivals replayed, and the percentiles of the fleet reference's own draws.

The reference draws arrivals and lengths from one stream of the standard library's generator, the short pool before the
long one. The same draws are made here, so that its percentiles must come out exactly. Times are compared as shares of
the longest time that a request stays, since rounding grows with it.
"""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aicjax.fleet.cdf import Knots, parse_knots, share
from aicjax.fleet.profile import Profile, first_token_s, service_s, slots
from aicjax.fleet.reference_sizing import long_knots, short_knots
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.slot_queue import slot_waits
from benchmarks.fleet_cases import Row, profile_of

SEED = 42
_COMPRESSED = 0.75  # share of the requests between the threshold and gamma times it that are made short
_QUANTILE = 0.99
_TIGHT = 1e-11  # of the longest stay
_waits = jax.jit(slot_waits, static_argnames="width")


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every replay and both percentiles of every simulation."""
    for stated in answers["fcfs_replay"]:
        arrivals, service = np.asarray(stated["arrivals"]), np.asarray(stated["service"])
        found = _waits_s(np.diff(arrivals, prepend=0.0), service, stated["c"])
        longest = np.max(found + service)
        ours, theirs = found / longest, np.asarray(stated["wait"]) / longest
        yield Row(f"replay, {stated['c']} servers", ours, theirs, "absolute", _TIGHT)
    for stated in answers["optimizer_des"]:
        case, count, stream = stated["case"], stated["n_req"], random.Random(SEED)
        label = f"{case['cdf']} {case['gs']} {case['B']} gamma {case['gamma']}, {count} requests"
        for pool in pools_of(answers, case):
            found_s, longest_s = percentile_s(stream, pool, count)
            theirs = stated["result"][f"p99_{pool.name}_ms"] / 1e3 / longest_s
            yield Row(f"{label}: {pool.name}", found_s / longest_s, theirs, "absolute", _TIGHT)


class ReferencePool(NamedTuple):
    """A pool of the reference: lengths above `longer_than` by their distribution, arrivals, replicas."""

    name: str
    knots: Knots
    longer_than: int
    rate_per_s: float
    replicas: int
    profile: Profile
    max_tokens: int


def pools_of(answers: Mapping[str, Any], case: Mapping[str, Any]) -> tuple[ReferencePool, ReferencePool]:
    """The short and the long pool of a case."""
    knots = parse_knots(answers["cdfs"][case["cdf"]], case["cdf"])
    border = int(case["gamma"] * case["B"])
    below, below_border = float(share(knots, case["B"])), float(share(knots, border))
    to_short = min(1.0, below + max(0.0, below_border - below) * case.get("p_c", _COMPRESSED))
    short, long = short_knots(knots, case["B"]), long_knots(knots, border, below_border, case["L"])
    rate, profiles = case["lam"], [profile_of(answers, case[key]) for key in ("gs", "gl")]
    return (
        ReferencePool("short", short, 0, rate * to_short, case["n_s"], profiles[0], case["B"]),
        ReferencePool("long", long, border, rate * (1 - to_short), case["n_l"], profiles[1], case["L"]),
    )


def percentile_s(stream: random.Random, pool: ReferencePool, count: int) -> tuple[float, float]:
    """P99 of the TTFT after as many more requests as a fifth of `count`, and the longest time that a request stays."""
    warm_up = count // 5
    gaps, total = np.empty((2, count + warm_up))
    ends = [int(tokens) for tokens in pool.knots.tokens]
    after = 1 if pool.longer_than else 0  # the long pool's intervals begin after their lower knot
    starts = [max(1, start + after) for start in (pool.longer_than, *ends)]
    for number in range(count + warm_up):
        gaps[number] = stream.expovariate(pool.rate_per_s)
        knot = int(np.searchsorted(pool.knots.shares, stream.random()))
        total[number] = stream.randint(starts[knot], max(starts[knot], ends[knot]))
    isl = np.maximum(1, 4 * total // 5)
    osl = np.maximum(1, total - isl)
    service = np.asarray(service_s(pool.profile, isl, osl, pool.max_tokens, rules=FLEET_REFERENCE))
    prefill = np.asarray(first_token_s(pool.profile, isl, 1.0, rules=FLEET_REFERENCE))
    waits = _waits_s(gaps, service, pool.replicas * int(slots(pool.profile, pool.max_tokens)))
    ttft = np.sort((waits + prefill)[warm_up:])
    return float(ttft[max(0, int(_QUANTILE * count) - 1)]), float(np.max(waits + service))


def _waits_s(gaps_s: np.ndarray, service_s: np.ndarray, servers: int) -> np.ndarray:
    dtype = jnp.result_type(float)
    return np.asarray(_waits(jnp.asarray(gaps_s, dtype), jnp.asarray(service_s, dtype), servers, width=servers))
