# SPDX-License-Identifier: Apache-2.0
"""The first requests of generated loads, exact with the generator of the standard library, and quantiles of knots."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aicjax.fleet.cdf import DEFAULT_INPUT_SHARE, Knots, parse_knots
from aicjax.fleet.lengths import split
from benchmarks.fleet_cases import Row

CATEGORIES = {"prose": 0.60, "code": 0.25, "rag": 0.15}  # of requests, drawn beside their lengths


class _Requests(NamedTuple):
    """A generated load [request]."""

    arrival_s: list[float]
    isl: np.ndarray
    osl: np.ndarray
    category: list[str]


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every load."""
    for case in answers["cases"]:
        knots = parse_knots(answers["cdfs"][case["cdf"]], case["cdf"])
        label = f"{case['cdf']}, seed {case['seed']}"
        arrival, isl, osl, category = zip(*case["rows"], strict=True)
        found = _requests(knots, case["lam"], len(arrival), case["seed"])
        yield Row(f"{label}: arrivals", found.arrival_s, list(arrival), "exact")
        yield Row(f"{label}: isl", found.isl, list(isl), "exact")
        yield Row(f"{label}: osl", found.osl, list(osl), "exact")
        yield Row(f"{label}: categories", found.category, list(category), "exact")
        for quantile, tokens in case["p_quantile"].items():
            place = min(int(np.searchsorted(knots.shares, float(quantile))), knots.tokens.size - 1)
            yield Row(f"{label}: knot of {quantile}", int(knots.tokens[place]), tokens, "exact")


def _requests(knots: Knots, rate_per_s: float, n: int, seed: int) -> _Requests:
    """A Poisson load: one stream for gaps, one for lengths and categories, of one seed.

    An interval of knots includes both its ends, so that a knot's length belongs to two intervals.
    """
    gaps, stream = random.Random(seed), random.Random(seed)
    tokens = knots.tokens.astype(int).tolist()
    arrival, now, totals, categories = [], 0.0, [], []
    for _ in range(n):
        now += gaps.expovariate(rate_per_s)
        arrival.append(now)
        place = int(np.searchsorted(knots.shares, stream.random()))
        if place == len(tokens):
            totals.append(tokens[-1])
        else:
            low = max(1, tokens[place - 1] if place else 1)
            totals.append(stream.randint(low, max(low, tokens[place])))
        categories += stream.choices(list(CATEGORIES), list(CATEGORIES.values()))
    return _Requests(arrival, *split(np.asarray(totals, np.float64), DEFAULT_INPUT_SHARE), categories)
