# SPDX-License-Identifier: Apache-2.0
"""Statistics of request lengths for clients that draw them: percentiles and histograms."""

from typing import Any

import numpy as np

BINS = 25
OF_A_LAW = 1000  # requests that the histograms of a distribution are drawn for


def statistics(isl: np.ndarray, osl: np.ndarray, weight: np.ndarray, count: int) -> dict[str, Any]:
    """Percentiles and histograms of prompt and output tokens.

    Args:
        isl, osl: Lengths [point].
        weight: Their probabilities [point].
        count: Requests that the histograms add up to.
    """
    total = isl + osl
    return {
        "n_requests": count,
        **{f"p{rank}_prompt_tokens": _percentile(isl, weight, rank) for rank in (50, 95, 99)},
        **{f"p{rank}_output_tokens": _percentile(osl, weight, rank) for rank in (50, 99)},
        **{f"p{rank}_total_tokens": _percentile(total, weight, rank) for rank in (50, 99)},
        "prompt_histogram": histogram(isl, weight, count),
        "output_histogram": histogram(osl, weight, count),
    }


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


def _percentile(values: np.ndarray, weight: np.ndarray, rank: float) -> int:
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    index = np.searchsorted(below, rank / 100 * below[-1])
    return round(float(values[order][min(index, len(values) - 1)]))
