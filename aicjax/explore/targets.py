# SPDX-License-Identifier: Apache-2.0
"""Latency targets of a sweep: for each of them the best points are kept, so that a sweep covers the whole front."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.grid import TargetGrid
from aicjax.explore.request import SearchRequest


class Targets(NamedTuple):
    """Limits of each target [ms]; arrays of one length."""

    ttft_ms: NDArray[np.float64]
    tpot_ms: NDArray[np.float64]


class Bounds(NamedTuple):
    """Limits of a sweep that keeps whole fronts instead of the best for each target [ms].

    Attributes:
        ttft_ms: On TTFT.
        latency_ms: On the latency whose front is kept.
        on_request: Whether that is the latency of the request; else TPOT.
    """

    ttft_ms: float
    latency_ms: float
    on_request: bool


def sweep_bounds(request: SearchRequest, grid: TargetGrid) -> Bounds:
    """The limits that all targets of a sweep together stand for."""
    if request.request_latency is not None:
        return Bounds(np.inf, request.request_latency, on_request=True)
    if request.osl == 1:
        return Bounds(request.ttft, np.inf, on_request=True)
    return Bounds(request.ttft, float(sweep_targets(request, grid).tpot_ms.max()), on_request=False)


def sweep_targets(request: SearchRequest, grid: TargetGrid) -> Targets:
    """The (TTFT, TPOT) limits that a sweep tries.

    With a limit on the request latency, pairs that just meet it; else the TTFT limit with a range of TPOT limits, which
    the stated one joins where it is looser, or with the stated one alone when `pareto_sweep` is off.
    """
    if request.request_latency is not None:
        return request_latency_targets(request.request_latency, request.osl, request.ttft, grid)
    listed = grid.tpot_ms if request.pareto_sweep else ()
    looser = (request.tpot,) if request.tpot > max(listed, default=0.0) else ()
    tpot = np.array([*listed, *looser], np.float64)
    return Targets(np.full(len(tpot), request.ttft), tpot)


def request_latency_targets(limit_ms: float, osl: int, ttft_ms: float, grid: TargetGrid) -> Targets:
    """Pairs with ttft + tpot (osl - 1) = `limit_ms`: listed TTFTs, shares of the limit beyond them, and `ttft_ms`.

    Needs at least two output tokens. Ascending in TTFT.
    """
    listed = grid.request_ttft_ms
    shares = [limit_ms * share for share in grid.request_ttft_shares]
    beyond = [ttft for ttft in shares if ttft < min(listed) or ttft > max(listed)]
    chosen = np.array(sorted({float(t) for t in (*listed, *beyond, ttft_ms) if t < limit_ms}))
    return Targets(chosen, (limit_ms - chosen) / (osl - 1))
