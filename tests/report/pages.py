# SPDX-License-Identifier: Apache-2.0
"""Pages of made-up results, for tests of reports."""

import dataclasses
from typing import Any

import numpy as np

from aicjax.explore.result import Explanation, SearchResult, Sensitivity
from aicjax.report.html import page, search_page
from tests.report import results
from tests.report.frames import agg_frame, disagg_frame

COMMAND = (
    "aicjax search --model maker/model --system some_gpu --total-gpus 32 --ttft 300 --tpot 10 --report report.html"
)
STEP = dataclasses.replace(results.STEP, rooflines=lambda: (2.0, float("nan")))
EXPLANATION = dataclasses.replace(results.EXPLANATION, steps=(STEP,))
MOVES = (
    Sensitivity("hardware", "gpu.memory_bandwidth_bytes_per_s", "some_gpu", 4.8e12, 0.5, -0.1, -0.5),
    Sensitivity("workload", "isl", "", 4000, -0.2, 0.3, None),
)


def cloud(points: int = 40) -> dict[str, np.ndarray]:
    """Aggregated rows along a front, the fastest for one user last; every tenth has no TPOT."""
    frame = agg_frame(*range(points, 0, -1))
    user = np.linspace(20.0, 200.0, points)
    figures = {"tokens/s/user": user, "tokens/s/gpu": 900.0 - 4 * user, "tpot": 1000 / user, "ttft": 300 - user}
    figures["tpot"][::10] = np.nan
    return {**frame, **figures, "tokens/s/gpu_cluster": figures["tokens/s/gpu"]}


def explained(_: int) -> Explanation:
    """What lies behind every row."""
    return EXPLANATION


def result(**changes: Any) -> SearchResult:
    """A search whose page has every panel."""
    kept = cloud()
    behind = {"explain": explained, "sensitivities": lambda _: MOVES}
    agg = results.task("agg", agg_frame(16, 28), feasible=kept, pareto=kept, **behind)
    return results.result(agg, results.task("disagg", disagg_frame(), resolved=results.RESOLVED, **behind), **changes)


def text(**changes: Any) -> str:
    """The page of `result`."""
    return page.render(search_page.page(result(**changes), command=COMMAND))
