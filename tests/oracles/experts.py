# SPDX-License-Identifier: Apache-2.0
"""Expert layers from the definition: rooflines in whole numbers, curves that hold their end, borrowed shapes."""

import math
from collections.abc import Callable, Mapping, Sequence

from aicjax._results import Provenance
from tests.oracles.curves import Curve, between
from tests.oracles.grid import MISS, Answer


def roofline(
    tokens: int,
    topk: int,
    experts: int,
    hidden: int,
    inter: int,
    tp: int,
    ep: int,
    matrices: int,
    element_bytes: float,
    peak: float,
    mem_bw: float,
) -> float:
    """Milliseconds of one GPU; every division rounds down, in this order."""
    routed = tokens * topk
    operations = routed * hidden * inter * matrices * 2 // ep // tp
    local = routed // ep
    weights = hidden * inter * matrices // tp * min(experts // ep, local)
    moved = local * hidden * 2 + local * inter * matrices // tp + weights
    return max(operations / peak, moved * element_bytes / mem_bw) * 1e3


def end_curve(curve: Curve, tokens: int, sol: Callable[[float], float]) -> Answer:
    """Beyond an end its point's utilisation holds; below a curve of one point there is no answer."""
    if (inside := between(curve, tokens)) is not None:
        return inside
    if not curve or (len(curve) == 1 and tokens < min(curve)):
        return MISS
    end = min(curve) if tokens < min(curve) else max(curve)
    if not (curve[end] > 0 and sol(end) > 0 and sol(tokens) > 0):
        return MISS
    return curve[end] * sol(tokens) / sol(end), Provenance.HELD


def shape_distances(shapes: Sequence[tuple[float, ...]], asked: tuple[float, ...]) -> list[float]:
    """Squared distance of each shape in logarithms, every axis scaled by the span of the shapes."""
    axes = list(zip(*[[math.log(size) for size in shape] for shape in shapes], strict=True))
    spans = [max(axis) - min(axis) or 1.0 for axis in axes]
    return [
        sum(((math.log(x) - math.log(y)) / span) ** 2 for x, y, span in zip(shape, asked, spans, strict=True))
        for shape in shapes
    ]


def utilizations(curve: Mapping[int, float], sol: Callable[[float], float]) -> dict[tuple[float, ...], float]:
    """Utilisation by token count, of the points that have one."""
    return {(tokens,): sol(tokens) / latency for tokens, latency in curve.items() if latency > 0 and sol(tokens) > 0}
