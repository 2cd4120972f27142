# SPDX-License-Identifier: Apache-2.0
"""Searches on the full grid: never worse than on the coarse one, which they run beside it."""

from typing import Any

import numpy as np
import pytest

from aicjax.explore import SearchRequest, SearchResult, recommend, search
from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER

ROUNDED = 1e-3  # a unit of the last decimal that rows report
FLOAT32 = 1e-6  # relative: sums of float32 times in kernels of other sizes
DEMO: dict[str, Any] = {
    "model_path": "Qwen/Qwen3-32B-FP8",
    "system": "h200_sxm",
    "isl": 4000,
    "osl": 500,
    "prefix": 500,
    "ttft": 300,
    "tpot": 10,
    "constants": "reference",
}
SLOW = pytest.mark.slow
SEARCHES = {
    "demo": {**DEMO, "total_gpus": 32},
    "odd budget": {**DEMO, "total_gpus": 13, "ttft": 1000, "tpot": 12.5},
    "request latency": {**DEMO, "total_gpus": 16, "request_latency": 6000},
    "chunked prefill": {**DEMO, "total_gpus": 16, "enable_chunked_prefill": True, "serving_mode": "agg"},
    "one output token": {**DEMO, "total_gpus": 4, "osl": 1},
    "rate": {**DEMO, "target_request_rate": 47.0},
    "in flight": {**DEMO, "tpot": 20, "target_concurrency": 700.0},
    "in flight under a ceiling": {**DEMO, "tpot": 20, "target_concurrency": 700.0, "total_gpus": 8},
    "same tensor parallelism": {**DEMO, "total_gpus": 24, "backend": "sglang"},
    "drafts": {**DEMO, "total_gpus": 16, "backend": "vllm", "nextn": 2, "nextn_accepted": 1.2},
    "short prompts": {**DEMO, "total_gpus": 7, "isl": 100, "prefix": 0, "ttft": 100},
    "stated lists": {
        **DEMO, "total_gpus": 32, "num_gpu_per_replica": (6, 12),
        "decode_max_batch_size": 70, "prefill_max_batch_size": 3,
    },
    "images": {
        "model_path": "Qwen/Qwen3-VL-8B-Instruct", "system": "h200_sxm", "backend": "sglang", "total_gpus": 8,
        "isl": 500, "osl": 200, "image_height": 1280, "image_width": 720, "enable_epd": True,
    },
    "experts": {"model_path": "Qwen/Qwen3-30B-A3B", "system": "h100_sxm", "backend": "sglang", "total_gpus": 16},
}  # fmt: skip
QUICK = ("demo", "odd budget", "request latency", "in flight")


def run(name: str, **changes: Any) -> SearchResult:
    request = SearchRequest(**SEARCHES[name], **changes)
    return (recommend if request.has_load_target else search)(request)


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in SEARCHES])
def test_full_grid_is_never_worse_than_the_coarse_one_that_it_tells(name):
    full, coarse = run(name), run(name, grid="reference")
    assert full.request.grid_name == "full"
    for task, known in zip(full.tasks.values(), coarse.tasks.values(), strict=True):
        assert coarse.grid_gain is known.baseline is None
        if known.error is not None and not frames.length(known.best):
            continue
        told = task.baseline
        assert told is not None
        assert told.meets_target == known.meets_target
        for column, values in known.best.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(told.best[column], values, rtol=FLOAT32, atol=1.001 * ROUNDED)
            else:
                np.testing.assert_array_equal(told.best[column], values)
        assert task.meets_target >= known.meets_target
        if known.meets_target:
            assert task.score >= known.score - ROUNDED
            gain = task.grid_gain
            assert gain is not None
            assert gain.percent == pytest.approx(100 * (task.score / known.score - 1), abs=1e-3)


def test_full_grid_tries_what_the_coarse_one_does_not():
    task = run("demo", serving_mode="agg").tasks["agg"]
    first = frames.row(task.best, 0)
    assert first["bs"] == 19
    gain = task.grid_gain
    assert gain is not None
    assert gain.percent is not None
    assert gain.percent > 7
    coarse = run("odd budget", serving_mode="disagg").tasks["disagg"]
    assert frames.row(coarse.best, 0)["num_total_gpus"] not in (1, 2, 4, 8)


def test_stated_batches_bound_the_full_grid():
    task = run("stated lists", serving_mode="disagg").tasks["disagg"]
    assert task.feasible["(p)bs"].max() <= 3
    assert task.feasible["(d)bs"].max() <= 70
    assert set(task.feasible["num_total_gpus"].tolist()) <= {6, 12}


def test_front_of_the_full_grid_is_not_below_that_of_the_coarse_one():
    full, coarse = (run("demo", grid=grid) for grid in ("full", "reference"))
    for name, task in coarse.tasks.items():
        front = full.tasks[name].pareto
        for speed, throughput in zip(task.pareto["tokens/s/user"], task.pareto[CLUSTER], strict=True):
            beside = front[CLUSTER][front["tokens/s/user"] >= speed]
            assert beside.max(initial=0.0) >= throughput - ROUNDED


def test_requests_in_flight_are_those_that_the_rate_keeps_busy():
    row = frames.row(run("in flight", serving_mode="disagg").tasks["disagg"].best, 0)
    busy = row["seq/s"] * (row["ttft"] + row["tpot"] * (row["osl"] - 1)) / 1000 * row["replicas_needed"]
    assert busy > 0.9 * 700
