# SPDX-License-Identifier: Apache-2.0
"""One-dimensional curves in float64, from the definition: latency over message size, and over tokens."""

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from aicjax._results import Provenance
from tests.oracles.grid import MISS, Answer

Curve = Mapping[Any, float]  # by size or tokens, counts or fractions


def between(curve: Curve, at: float) -> Answer | None:
    """The measured value at `at`, the line between its neighbours, or None beyond the ends."""
    if at in curve:
        return curve[at], Provenance.EXACT
    below, above = [x for x in curve if x < at], [x for x in curve if x > at]
    if not below or not above:
        return None
    low, high = max(below), min(above)
    slope = (curve[high] - curve[low]) / (high - low)
    return curve[low] + slope * (at - low), Provenance.INTERPOLATED


def size_curve(curve: Curve, size: float) -> Answer:
    """Beyond the ends latency is proportional to size, through the last point measured there."""
    if (inside := between(curve, size)) is not None:
        return inside
    if not curve or size <= 0:
        return MISS
    end = min(curve) if size < min(curve) else max(curve)
    return (curve[end] * size / end, Provenance.HELD) if curve[end] > 0 else MISS


def token_curve(curve: Curve, tokens: float, sol: Callable[[float], float]) -> Answer:
    """Beyond the ends, and on a curve of one point, the median utilisation of the three points of that end holds."""
    if (inside := between(curve, tokens)) is not None:
        return inside
    if not curve:
        return MISS
    ascending = sorted(curve)
    end = ascending[:3] if tokens < ascending[0] else ascending[-3:]
    utilizations = [sol(m) / curve[m] for m in end if curve[m] > 0 and sol(m) > 0]
    if not utilizations or not sol(tokens) > 0:
        return MISS
    return sol(tokens) / statistics.median(utilizations), Provenance.HELD


def is_answer(answer: Answer) -> bool:
    return math.isfinite(answer[0])
