# SPDX-License-Identifier: Apache-2.0
"""Histograms whose whole counts add up."""

from typing import Any

import numpy as np

BINS = 25


def histogram(values: np.ndarray, weight: np.ndarray, count: int, bins: int = BINS) -> list[dict[str, Any]]:
    """Counts of `count` requests in bins of equal width; the last one holds the largest value too.

    Counts are whole and add up: those up to the end of each bin are rounded, not each bin.
    """
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    inside, _ = np.histogram(values, edges, weights=weight)
    counts = np.diff(np.round(np.cumsum(inside) / inside.sum() * count), prepend=0.0).astype(int)
    ends = [round(float(edge), 6) for edge in edges]
    return [{"lo": lo, "hi": hi, "count": int(number)} for lo, hi, number in zip(ends, ends[1:], counts, strict=False)]
