# SPDX-License-Identifier: Apache-2.0
"""The first requests of generated loads, exact with the generator of the standard library, and quantiles of knots."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aicjax.fleet.cdf import parse_knots
from aicjax.fleet.reference_draws import reference_requests
from benchmarks.fleet_cases import Row


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every load."""
    for case in answers["cases"]:
        knots = parse_knots(answers["cdfs"][case["cdf"]], case["cdf"])
        label = f"{case['cdf']}, seed {case['seed']}"
        arrival, isl, osl, category = zip(*case["rows"], strict=True)
        found = reference_requests(knots, case["lam"], len(arrival), case["seed"])
        yield Row(f"{label}: arrivals", found.arrival_s, list(arrival), "exact")
        yield Row(f"{label}: isl", found.isl, list(isl), "exact")
        yield Row(f"{label}: osl", found.osl, list(osl), "exact")
        yield Row(f"{label}: categories", found.category, list(category), "exact")
        for quantile, tokens in case["p_quantile"].items():
            place = min(int(np.searchsorted(knots.shares, float(quantile))), knots.tokens.size - 1)
            yield Row(f"{label}: knot of {quantile}", int(knots.tokens[place]), tokens, "exact")
