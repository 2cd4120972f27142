# SPDX-License-Identifier: Apache-2.0
"""What a trace looks like: load, burstiness, lengths; host side."""

import dataclasses

import numpy as np

from aicjax.fleet.traces import Trace

PERCENTILES = (50, 90, 95, 99)


@dataclasses.dataclass(frozen=True)
class TraceStatistics:
    """What a trace looks like.

    Attributes:
        requests, refused: Requests read, and rows refused.
        duration_s: Time from the first to the last arrival [s].
        rate_per_s: Mean rate; 0 where all arrive at once.
        gap_cv2: Squared coefficient of variation of the gaps; 1 for Poisson.
        dispersion: Variance over mean of the arrivals in windows of `window_s`; 1 for Poisson; 0 with one window.
        window_s: That window [s].
        isl, osl, total: Percentiles [tokens] by their number.
        isl_share: Prompt tokens of all tokens.
        repeated_share: Prompt tokens that an earlier request had too, of all prompt tokens.
        models: Share of the requests by model; empty where the trace names none.
    """

    requests: int
    refused: int
    duration_s: float
    rate_per_s: float
    gap_cv2: float
    dispersion: float
    window_s: float
    isl: dict[int, float]
    osl: dict[int, float]
    total: dict[int, float]
    isl_share: float
    repeated_share: float
    models: dict[str, float]


def trace_statistics(trace: Trace, window_s: float = 60.0) -> TraceStatistics:
    """Load, burstiness and lengths of a trace, arrivals counted in windows of `window_s`."""
    duration_s = float(trace.time_s[-1])
    windows = int(duration_s // window_s)
    counts = np.bincount((trace.time_s // window_s).astype(np.int64))[:windows]
    names, times = np.unique(trace.model[trace.model != ""], return_counts=True)

    def percentiles(tokens: np.ndarray) -> dict[int, float]:
        return dict(zip(PERCENTILES, np.percentile(tokens, PERCENTILES).tolist(), strict=True))

    return TraceStatistics(
        requests=trace.isl.size,
        refused=trace.refused,
        duration_s=duration_s,
        rate_per_s=trace.rate_per_s,
        gap_cv2=trace.gap_cv2,
        dispersion=float(np.var(counts) / np.mean(counts)) if windows > 1 and counts.any() else 0.0,
        window_s=window_s,
        isl=percentiles(trace.isl),
        osl=percentiles(trace.osl),
        total=percentiles(trace.isl + trace.osl),
        isl_share=float(trace.isl.sum() / (trace.isl + trace.osl).sum()),
        repeated_share=float(trace.repeated_tokens.sum() / trace.isl.sum()),
        models=dict(zip(names.tolist(), (times / trace.isl.size).tolist(), strict=True)),
    )
