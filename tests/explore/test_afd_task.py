# SPDX-License-Identifier: Apache-2.0
"""Searches over attention and feed-forward apart: stored rows, budgets, and what is said where nothing is found."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from aicjax._results import InputError
from aicjax.explore import SearchRequest, SearchResult, search
from aicjax.explore import frame as frames
from aicjax.explore.afd_space import afd_candidates
from aicjax.explore.columns import AFD, CLUSTER
from aicjax.explore.grid import load_grid
from aicjax.explore.roles import deploy
from aicjax.serving.afd import PIPELINES

REFERENCES = Path(__file__).parents[1] / "references"
PARITY = 1e-4  # relative: float32 on the device against float64
COARSE = 1.001e-2  # absolute: one unit of the second decimal
BASE: dict[str, Any] = {"system": "h200_sxm", "total_gpus": 24, "isl": 4000, "osl": 500, "serving_mode": "afd"}
STORED: dict[str, Any] = {
    "dense": {**BASE, "model_path": "Qwen/Qwen3-32B-FP8", "ttft": 1000, "tpot": 30, "compat": "reference"},
    "moe": {**BASE, "model_path": "Qwen/Qwen3-235B-A22B-FP8", "ttft": 2000, "tpot": 50, "compat": "reference"},
}
WHICH = ("parallel", "(a)bs", "num_microbatches", "pipeline_model", "(p)workers", "(p)tp", "(p)ep", "(p)bs")
NUMBERS = ("tpot", "ttft", "request_latency", "tokens/s/user", "seq/s", "t_a_layer", "t_f_layer", "t_step")
COARSE_NUMBERS = ("tokens/s/gpu", "tokens/s", "(a)memory", "(f)memory", "memory")


@functools.cache
def run(**values: Any) -> SearchResult:
    return search(SearchRequest(**values))


@pytest.mark.parametrize("name", ["dense", pytest.param("moe", marks=pytest.mark.slow)])
def test_stored_rows_are_found(name: str):
    task = run(**STORED[name]).tasks["afd"]
    found = {tuple(row[key] for key in WHICH): row for row in frames.rows(task.feasible)}
    stored = [row for row in pq.read_table(REFERENCES / "search_afd.parquet").to_pylist() if row["search"] == name]
    assert len(stored) >= 11
    for row in stored:
        ours = found[tuple(row[key] for key in WHICH)]
        for column in NUMBERS:
            assert ours[column] == pytest.approx(row[column], rel=PARITY, abs=1.001e-3), column
        for column in COARSE_NUMBERS:
            assert ours[column] == pytest.approx(row[column], rel=PARITY, abs=COARSE), column
    top = [row for row in stored if row["kind"] == "top"]
    np.testing.assert_allclose(task.best[CLUSTER], [row[CLUSTER] for row in top], rtol=PARITY)
    assert set(task.best["parallel"]) == {row["parallel"] for row in top}


def test_rows_obey_budget_limits_and_identities():
    request = SearchRequest(**STORED["dense"])
    frame = run(**STORED["dense"]).tasks["afd"].feasible
    assert tuple(frame) == AFD
    pools = 8 * (frame["(a)nodes"] + frame["(f)nodes"])
    np.testing.assert_array_equal(frame["num_total_gpus"], pools + frame["(p)workers"] * frame["(p)num_gpus"])
    assert (frame["num_total_gpus"] <= request.total_gpus).all()
    assert (frame["ttft"] <= request.ttft).all()
    assert (np.diff(frame["tokens/s/gpu"]) <= 0).all()
    latency = frame["ttft"] + frame["tpot"] * (request.osl - 1)
    np.testing.assert_allclose(frame["request_latency"], latency, rtol=1e-5)


@pytest.mark.slow
def test_lists_and_factors_of_the_request_count():
    narrow = {**STORED["dense"], "afd_tp_a_candidates": (2,), "afd_microbatch_candidates": (3,)}
    frame = run(**narrow, afd_decode_latency_correction=1.5).tasks["afd"].feasible
    assert set(frame["(a)tp"]) == {2}
    assert set(frame["num_microbatches"]) == {3}
    plain = run(**narrow).tasks["afd"].feasible
    step = {batch: ms for batch, ms in zip(plain["(a)bs"], plain["tpot"], strict=True) if batch == 1}
    slower = {batch: ms for batch, ms in zip(frame["(a)bs"], frame["tpot"], strict=True) if batch == 1}
    assert slower[1] == pytest.approx(1.5 * step[1], rel=1e-2)


@pytest.mark.slow
def test_pools_without_prefill_workers_fill_the_budget_alone():
    frame = run(**{**STORED["dense"], "total_gpus": 16}, afd_combined_with_pd=False).tasks["afd"].feasible
    assert set(frame["num_total_gpus"]) == {16}
    assert set(frame["(p)impl"]) == {""}


@pytest.mark.parametrize(("gpus", "reason"), [(8, "two nodes"), (16, "left to prefill workers")])
def test_budget_that_is_too_small_says_so(gpus: int, reason: str):
    assert reason in str(run(**{**STORED["dense"], "total_gpus": gpus}).errors["afd"])


def test_too_many_candidates_are_refused_or_cut():
    with pytest.raises(InputError, match="afd_max_candidates"):
        run(**STORED["dense"], afd_max_candidates=5)
    request = SearchRequest(**STORED["dense"], afd_max_candidates=7, afd_candidate_overflow="truncate")
    cut = afd_candidates(request, deploy(request, "agg", "trtllm"), 24, load_grid().afd)
    assert len(cut.topology) == 7
    ways = [(int(count), PIPELINES[at]) for count, at in zip(cut.microbatches, cut.pipeline, strict=True)]
    assert ways[:5] == [
        (2, "conservative"),
        (3, "optimistic"),
        (3, "conservative"),
        (4, "optimistic"),
        (4, "conservative"),
    ]
    assert cut.topologies[0].label == "a1n-tp1+f1n-ep1"
