# SPDX-License-Identifier: Apache-2.0
"""Scattered shapes with a curve of tokens each, in float64, from the definition: which shapes answer for another.

Rows are `(m, n, k, latency)` in the order in which they were measured; the first of a repeated key counts.
"""

import math
from collections.abc import Callable, Iterable

from aicjax._results import Provenance
from tests.oracles.curves import Curve, is_answer, token_curve
from tests.oracles.grid import MISS, Answer

Row = tuple[int, int, int, float]
Shape = tuple[int, int]
Sol = Callable[[float, float, float], float]

NEIGHBOURS = 4
GATE = 2.0  # octaves


def curves_by_rank(rows: Iterable[Row]) -> dict[Shape, Curve]:
    """Curve of each shape; shapes in the order of a walk over first-met m, then n under it, then k under both."""
    nested: dict[int, dict[int, dict[int, float]]] = {}
    for m, n, k, latency in rows:
        nested.setdefault(m, {}).setdefault(n, {}).setdefault(k, latency)
    curves: dict[Shape, dict[float, float]] = {}
    for m, by_n in nested.items():
        for n, by_k in by_n.items():
            for k, latency in by_k.items():
                curves.setdefault((n, k), {})[m] = latency
    return dict(curves)


def octaves(shape: Shape, other: Shape) -> float:
    return math.sqrt(sum((math.log2(a) - math.log2(b)) ** 2 for a, b in zip(shape, other, strict=True)))


def neighbours(curves: dict[Shape, Curve], shape: Shape, tokens: float) -> list[Shape]:
    """Up to four shapes that answer for one that was not measured, nearest first, ties by rank."""
    spanning = [s for s, curve in curves.items() if min(curve) <= tokens <= max(curve)] or list(curves)
    kept = [s for s in spanning if octaves(s, shape) <= GATE] or waived(spanning, shape)
    return sorted(kept, key=lambda s: octaves(s, shape))[:NEIGHBOURS]  # stable: equals stay in rank order


def waived(candidates: list[Shape], shape: Shape) -> list[Shape]:
    """Shapes beyond the gate that still count: near on one axis, when the asked one exceeds them all on the other."""
    over = [shape[axis] > max(s[axis] for s in candidates) for axis in (0, 1)]
    under = [shape[axis] < min(s[axis] for s in candidates) for axis in (0, 1)]
    if any(under) or over[0] == over[1]:
        return []
    other = 1 if over[0] else 0
    return [s for s in candidates if abs(math.log2(s[other]) - math.log2(shape[other])) <= GATE]


def weights(shapes: list[Shape], shape: Shape) -> list[float]:
    raw = [1 / (octaves(s, shape) ** 2 + 1e-12) for s in shapes]
    return [w / sum(raw) for w in raw]


def product(curves: dict[Shape, Curve], shape: Shape, tokens: float, sol: Sol) -> Answer:
    """Latency of `[tokens, k] @ [k, n]`; `sol(m, n, k)` is the roofline."""
    if shape in curves:
        return token_curve(curves[shape], tokens, lambda m: sol(m, *shape))
    total = utilization = 0.0
    chosen = neighbours(curves, shape, tokens) if curves and min(shape) > 0 else []
    for near, weight in zip(chosen, weights(chosen, shape), strict=True):
        answer = token_curve(curves[near], tokens, lambda m, near=near: sol(m, *near))
        if is_answer(answer) and answer[0] > 0:
            total += weight
            utilization += weight * sol(tokens, *near) / answer[0]
    return (sol(tokens, *shape) / (utilization / total), Provenance.TRANSFERRED) if total else MISS
