# SPDX-License-Identifier: Apache-2.0
"""A whole search result with made-up numbers, for tests of reports."""

from typing import Any

from aicjax._results import NoFeasible, Provenance
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import Explanation, MemoryUse, SearchResult, StepTimes, TaskResult
from tests.report.frames import agg_frame, disagg_frame

MEMORY = MemoryUse("agg", 8.0, 0.1, 6.0, 0.3, 0.3, 141.0, 110.0)
STEP = StepTimes("mixed step", ("gemm", "attention"), (3.0, 1.0), (Provenance.EXACT, Provenance.TRANSFERRED))
EXPLANATION = Explanation((MEMORY,), "tpot", 20, "its TPOT is 10.4 ms", 128.0, (STEP,))

RESOLVED = {
    "backend_version": "1.0",
    "corrections": {"prefill_degradation": 0.9, "decode_degradation": 0.92, "ttft_correction": 1.8},
}


def task(name: str, frame: dict, **changes: Any) -> TaskResult:
    """One experiment whose every frame is `frame`."""
    values: dict[str, Any] = {
        "name": name,
        "serving_mode": name,
        "backend": "trtllm",
        "resolved": {"backend_version": "1.0"},
        "feasible": frame,
        "pareto": frame,
        "best": frame,
        "meets_target": True,
        "evaluated": 100,
        "explain": lambda _: EXPLANATION,
    }
    return TaskResult(**(values | changes))


def result(*tasks: TaskResult, **changes: Any) -> SearchResult:
    """A result of the experiments, aggregated and disaggregated unless others are given."""
    tasks = tasks or (task("agg", agg_frame(16, 28)), task("disagg", disagg_frame(), resolved=RESOLVED))
    inputs: dict[str, Any] = {
        "model_path": "maker/model",
        "system": "some_gpu",
        "total_gpus": 32,
        "osl": 500,
        "prefix": 500,
    }
    request = SearchRequest(**{**inputs, "ttft": 300, "tpot": 10, **changes})
    by_name = {task.name: task for task in tasks}
    scores = {name: task.score for name, task in by_name.items() if task.score > 0}
    return SearchResult(request, by_name, by_name, max(scores, key=scores.__getitem__) if scores else None)


def failed(name: str, reason: str) -> TaskResult:
    """An experiment without a row."""
    return TaskResult(name, name, "trtllm", error=NoFeasible(reason))
