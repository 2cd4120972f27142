# SPDX-License-Identifier: Apache-2.0
"""Statistics of request lengths for clients that draw them: percentiles and histograms."""

from typing import Any

import numpy as np

from aicjax._units import PERCENT
from aicjax.fleet.histogram import histogram

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


def _percentile(values: np.ndarray, weight: np.ndarray, rank: float) -> int:
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    index = np.searchsorted(below, rank / PERCENT * below[-1])
    return round(float(values[order][min(index, len(values) - 1)]))
