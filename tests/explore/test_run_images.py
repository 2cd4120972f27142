# SPDX-License-Identifier: Apache-2.0
"""Searches and single points of models that see images, on the measured tables: stored answers, and what rows obey."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from aicjax._results import InputError, NoFeasible
from aicjax.constants import load_constants
from aicjax.explore import SearchRequest, SearchResult, estimate, search
from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER

REFERENCES = Path(__file__).parents[1] / "references"
PARITY = 1e-4  # relative: float32 on the device against float64, of sums over operators
ROUNDED = 1.001e-3  # absolute: one unit of the last reported decimal
SEARCHES: dict[str, dict[str, Any]] = {
    "p32": {
        "model_path": "Qwen/Qwen3-VL-32B-Instruct",
        "backend": "vllm",
        "image_height": 1024,
        "image_width": 1024,
        "num_images": 2,
        "ttft": 2000,
    },
    "p33": {
        "model_path": "Qwen/Qwen3-VL-8B-Instruct",
        "backend": "sglang",
        "image_height": 1280,
        "image_width": 720,
        "enable_epd": True,
        "ttft": 1500,
    },
}
SHARED = {"system": "h200_sxm", "total_gpus": 8, "isl": 500, "osl": 200, "tpot": 30, "compat": "reference"}
POINTS = json.loads((REFERENCES / "points_images.json").read_text())


@functools.cache
def run(name: str) -> SearchResult:
    return search(SearchRequest(**SHARED, **SEARCHES[name]))


@pytest.mark.parametrize("name", [pytest.param("p32", marks=pytest.mark.slow), "p33"])
def test_top_rows_are_those_of_the_stored_search(name):
    stored = pq.read_table(REFERENCES / "search_top_images.parquet").to_pylist()
    for mode, task in run(name).tasks.items():
        expected = [row for row in stored if (row["search"], row["mode"]) == (name, mode)]
        got = list(frames.rows(task.best))
        assert len(got) == len(expected)
        for row, want in zip(got, sorted(expected, key=lambda row: row["rank"]), strict=True):
            check_row(row, want, "(d)" if mode == "disagg" else "")


def check_row(row: dict, want: dict, side: str) -> None:
    """Layout, counts and rate; batches and latencies unless other choices yield the same on as many GPUs."""
    assert row[f"{side}parallel"] == want["layout"]
    columns = [CLUSTER, "tokens/s/gpu", "seq/s", "num_total_gpus"]
    if not side and "(a)workers" not in row:
        columns += ["ttft", "tpot", "request_latency", "encoder_latency", "encoder_memory"]
        assert row["bs"] == want["batch"]
    if "(a)workers" in row:
        assert row["(a)workers"] == want["agg_workers"]
        assert row["tpot"] == pytest.approx(want["tpot"], rel=PARITY)
        assert row["ttft"] < want["ttft"] + ROUNDED, "of choices that yield the same, the quickest"
    for column in columns:
        assert row[column] == pytest.approx(want[column], rel=PARITY, abs=ROUNDED), column


def test_a_cell_is_the_slower_of_its_sides():
    frame, share = run("p33").tasks["agg"].feasible, load_constants("sglang", "reference").disagg.encoder_degradation
    capacity = frame["(e)bs"] / frame["encoder_latency"] * 1000 * share * frame["(e)workers"]
    assert (frame["seq/s"] <= capacity * (1 + PARITY)).all()
    bound = np.isclose(frame["seq/s"], capacity, rtol=PARITY)
    assert 0.01 < bound.mean() < 0.99
    gpus = frame["tp"] * frame["cp"] * frame["(a)workers"] + frame["(e)tp"] * frame["(e)workers"]
    np.testing.assert_array_equal(gpus, frame["num_total_gpus"])
    assert (frame["ttft"] < SEARCHES["p33"]["ttft"]).all()
    assert not np.diff(frame["tokens/s/gpu"]).max() > 0


def test_reasons_cover_the_encode_workers():
    for mode, task in run("p33").tasks.items():
        assert task.explain is not None
        reason, row = task.explain(0), frames.row(task.best, 0)
        assert [use.role for use in reason.memory] == [
            "encode",
            *(("agg",) if mode == "agg" else ("prefill", "decode")),
        ]
        assert reason.memory[0].weights + reason.memory[0].activations == pytest.approx(row["(e)memory"], abs=ROUNDED)
        assert reason.steps[0].step == "encode worker, encoder"
        assert reason.steps[0].total_ms == pytest.approx(row["encoder_latency"], abs=ROUNDED)
        assert not any("encoder" in name for step in reason.steps[1:] for name in step.names)


@pytest.mark.parametrize("at", [1, 4, 6, 7])
def test_points_are_the_stored_ones(at):
    asked, want = POINTS[at]["point"], POINTS[at]["row"]
    got = estimate(compat="reference", **asked)
    for column, value in want.items():
        assert got.row[column] == pytest.approx(value, rel=PARITY, abs=ROUNDED), column
    assert ("encode" in [use.role for use in got.memory]) == asked.get("enable_epd", False)
    runs = any("encoder_attention" in step.names for step in got.steps)
    assert runs == (asked["mode"] != "static_gen"), "decode workers see no images"


@pytest.mark.parametrize("at", [pytest.param(at, marks=pytest.mark.slow) for at in (0, 3, 5)])
def test_more_points_are_the_stored_ones(at):
    test_points_are_the_stored_ones(at)


def test_images_need_an_encoder_that_fits():
    asked: dict[str, Any] = {**SHARED, **SEARCHES["p33"]}
    with pytest.raises(InputError, match="`model` must be a model with a vision encoder"):
        search(SearchRequest(**{**asked, "model_path": "Qwen/Qwen3-8B"}))
    with pytest.raises(InputError, match="`encoder batch` must be at most 8, but got 16"):
        search(SearchRequest(**asked, encoder_batch_candidates=(16,)))
    failed = search(SearchRequest(**{**asked, "serving_mode": "agg"}, encoder_tp_candidates=(3,)))
    assert isinstance(failed.errors["agg"], NoFeasible)
    assert "cannot be cut over any of [3] GPUs" in str(failed.errors["agg"])
