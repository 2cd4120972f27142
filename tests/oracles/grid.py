# SPDX-License-Identifier: Apache-2.0
"""Ragged grids of any number of axes: a recursion over axes in float64, from the definition.

A table is a mapping from coordinates to latency. Axis after axis, a coordinate that was measured leads into the
points measured there; one between two measured values blends what both sides answer; one outside ends the search.
Each set of points has its own measured values: nothing says that a table is a box.
"""

import math
from collections.abc import Callable, Collection, Mapping

from aicjax._results import Provenance

Point = tuple[float, ...]
Table = Mapping[Point, float]
Sol = Callable[..., float]
Answer = tuple[float, Provenance]

MISS: Answer = (math.nan, Provenance.MISSING)


def grid(table: Table, query: Point, sol: Sol, sqrt_axes: Collection[int] = ()) -> Answer:
    """Latency of `query`: inside the measured range a blend, outside the boundary's utilisation held.

    Args:
        table: Measured latencies by coordinates, outermost axis first.
        query: The coordinates asked for.
        sol: Roofline of coordinates, one argument an axis.
        sqrt_axes: Axes blended in the square root.
    """
    inside = _inside(dict(table), query, sol, sqrt_axes, 0)
    return hold(table, query, sol) if inside is None else inside


def _inside(points: dict[Point, float], query: Point, sol: Sol, sqrt_axes: Collection[int], axis: int) -> Answer | None:
    if axis == len(query):
        ((_, latency),) = points.items()
        return latency, Provenance.EXACT

    def at(key: float) -> Answer | None:
        return _inside({p: v for p, v in points.items() if p[axis] == key}, query, sol, sqrt_axes, axis + 1)

    wanted = query[axis]
    keys = sorted({point[axis] for point in points})
    if wanted in keys:
        return at(wanted)
    if not keys or not keys[0] < wanted < keys[-1]:
        return None
    low = max(key for key in keys if key < wanted)
    high = min(key for key in keys if key > wanted)
    sides = [(key, answer) for key in (low, high) if (answer := at(key)) is not None]
    if not sides:
        return None
    if len(sides) == 1:
        ((key, (latency, _)),) = sides
        roof, roof_there = sol(*query), sol(*query[:axis], key, *query[axis + 1 :])
        scale = roof / roof_there if roof > 0 and roof_there > 0 else 1.0
        return latency * scale, Provenance.ONE_SIDED
    share = (wanted - low) / (high - low)
    (_, (first, first_code)), (_, (second, second_code)) = sides
    if axis in sqrt_axes:
        blend = (math.sqrt(first) * (1 - share) + math.sqrt(second) * share) ** 2
    else:
        blend = first * (1 - share) + second * share
    return blend, max(first_code, second_code, Provenance.INTERPOLATED)


def distance(point: Point, query: Point) -> float:
    """Octaves between two coordinates."""
    return math.dist(*([math.log2(max(x, 1e-12)) for x in p] for p in (point, query)))


def hold(table: Table, query: Point, sol: Sol) -> Answer:
    """The roofline over the mean utilisation of the four nearest points.

    A point at distance d weighs ((R - d) / (R d))^2, R the distance of the fifth, so that a point enters and leaves
    the four with no weight; 1 / d^2 when there is no fifth; all alike when all of them are as far as the fifth.
    """
    usable = sorted((distance(p, query), sol(*p) / v) for p, v in table.items() if v > 0 and sol(*p) > 0)
    roof = sol(*query)
    if not usable or not roof > 0:
        return MISS
    nearest = usable[:4]
    if len(usable) > 4:
        radius = usable[4][0]
        weights = [(max(radius - d, 0.0) / (radius * d + 1e-12)) ** 2 for d, _ in nearest]
    else:
        weights = [1 / (d**2 + 1e-12) for d, _ in nearest]
    if sum(weights) == 0:
        weights = [1.0] * len(nearest)
    utilization = sum(w * u for w, (_, u) in zip(weights, nearest, strict=True)) / sum(weights)
    return roof / utilization, Provenance.HELD
