# SPDX-License-Identifier: Apache-2.0
"""Whole searches on the measured tables: stored top rows, and cases whose verdict is known."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from aicjax._results import InputError, NoFeasible
from aicjax.explore import SearchRequest, SearchResult, TaskResult, recommend, search
from aicjax.explore import frame as frames
from aicjax.explore.columns import AGG, CLUSTER, DISAGG

pytestmark = pytest.mark.as_shipped

REFERENCES = Path(__file__).parents[1] / "references"
PARITY = 1e-4  # relative: float32 on the device against float64, of sums over operators
ROUNDED = 1.001e-3  # absolute: one unit of the last reported decimal
MODEL = "Qwen/Qwen3-32B-FP8"
BASE: dict[str, Any] = {
    "model_path": MODEL,
    "system": "h200_sxm",
    "isl": 4000,
    "osl": 500,
    "prefix": 500,
    "ttft": 300,
    "tpot": 10,
    "constants": "reference",
}
STORED: dict[str, Any] = {
    "p01": {**BASE, "total_gpus": 32},
    "p02": {**BASE, "total_gpus": 32, "backend": "vllm"},
    "p03": {**BASE, "total_gpus": 32, "backend": "sglang"},
    "p05": {"model_path": "Qwen/Qwen3-32B", "system": "h100_sxm", "total_gpus": 8, "constants": "reference"},
}
CHOSEN = {"p01": "disagg", "p02": "disagg", "p03": "disagg", "p05": "agg"}


@functools.cache
def run(**values) -> SearchResult:
    return search(SearchRequest(**values))


def first(task: TaskResult) -> dict:
    return frames.row(task.best, 0)


@pytest.mark.parametrize("name", ["p01", *(pytest.param(n, marks=pytest.mark.slow) for n in ("p02", "p03", "p05"))])
def test_top_rows_are_those_of_the_stored_search(name):
    result = run(**STORED[name], compat="reference")
    assert result.chosen == CHOSEN[name]
    rows = [row for row in pq.read_table(REFERENCES / "search_top.parquet").to_pylist() if row["search"] == name]
    for mode, task in result.tasks.items():
        expected = sorted((row for row in rows if row["mode"] == mode), key=lambda row: row["rank"])
        got = list(frames.rows(task.best))
        assert len(got) == len(expected)
        for row, stored in zip(got, expected, strict=True):
            side = "(d)" if mode == "disagg" else ""
            assert row[f"{side}parallel"] == stored["layout"]
            columns = ["tokens/s/gpu", CLUSTER, "seq/s"]
            if row[f"{side}bs"] == stored["batch"]:
                columns += ["ttft", "tpot", "request_latency", "tokens/s", "tokens/s/user"]
                assert row[f"{side}memory"] == pytest.approx(stored["memory"], abs=ROUNDED)
            else:
                assert mode == "disagg", "only replicas bound by their prefill side tie"
                assert row["tpot"] < stored["tpot"]
                columns.remove("seq/s")
            for column in columns:
                assert row[column] == pytest.approx(stored[column], rel=PARITY, abs=ROUNDED), column


def test_columns_are_in_the_order_of_the_files():
    tasks = run(**STORED["p01"]).tasks
    assert tuple(tasks["agg"].feasible) == AGG
    assert tuple(tasks["agg"].best) == (*AGG, CLUSTER)
    assert tuple(tasks["disagg"].best) == (*DISAGG, CLUSTER)


def test_rows_obey_their_identities():
    for task in run(**STORED["p01"]).tasks.values():
        frame = task.feasible
        latency = frame["ttft"] + (frame["osl"] - 1) * frame["tpot"]
        np.testing.assert_allclose(frame["request_latency"], latency, rtol=1e-3)
        np.testing.assert_allclose(frame["tokens/s/user"], 1000 / frame["tpot"], rtol=1e-3)
        np.testing.assert_allclose(frame["tokens/s/gpu"], frame["tokens/s"] / frame["num_total_gpus"], rtol=1e-4)
        assert (frame["num_total_gpus"] <= 32).all()
        assert (np.diff(frame["tokens/s/gpu"]) <= 0).all()


def test_explanation_names_the_limit_and_the_next_batch():
    task = run(**STORED["p01"]).tasks["agg"]
    assert task.explain is not None
    reason = task.explain(0)
    row = first(task)
    assert reason.binding == "tpot"
    assert reason.next_batch == 20
    assert "over 10 ms" in reason.next_batch_reason
    assert reason.memory[0].total == pytest.approx(row["memory"], abs=ROUNDED)
    assert reason.concurrency_in_use == pytest.approx(row["concurrency"], rel=0.01)


def test_prefill_bound_replica_says_what_is_in_flight():
    task = run(**{**STORED["p01"], "tpot": 100}).tasks["disagg"]
    assert task.explain is not None
    reasons = [task.explain(row) for row in range(frames.length(task.best))]
    bound = [(r, row) for r, row in zip(reasons, frames.rows(task.best), strict=True) if r.binding == "prefill"]
    assert bound
    for reason, row in bound:
        tpot = row["tpot"] if reason.tpot_in_use is None else reason.tpot_in_use
        in_flight = row["seq/s"] * (row["ttft"] + tpot * (row["osl"] - 1)) / 1000
        assert reason.concurrency_in_use == pytest.approx(min(in_flight, row["concurrency"]))


def test_budget_is_a_hard_cap():
    for task in run(**{**BASE, "total_gpus": 8, "ttft": 2000, "tpot": 50}).tasks.values():
        assert (task.feasible["num_total_gpus"] <= 8).all()


def test_isolated_prefill_over_the_limit_is_a_verdict():
    result = run(**{**BASE, "total_gpus": 16, "ttft": 15})
    assert result.chosen is None
    for task in result.tasks.values():
        assert task.shortfall is not None
        assert task.shortfall.binding == "isolated prefill time"
        assert task.shortfall.violation_pct is not None
        assert task.shortfall.violation_pct > 100
    with pytest.raises(NoFeasible, match="isolated prefill time"):
        result.require()


def test_no_replica_count_helps_an_isolated_prefill():
    result = recommend(SearchRequest(**{**BASE, "ttft": 15}, target_request_rate=100.0))
    assert result.chosen is None
    assert {task.shortfall.binding for task in result.tasks.values() if task.shortfall} == {"isolated prefill time"}


def test_nearest_rows_are_given_with_their_violation():
    result = run(**{**BASE, "total_gpus": 16, "tpot": 1.5, "ttft": 2000})
    task = result.winner
    assert task is not None
    assert not task.meets_target
    assert task.shortfall is not None
    assert task.shortfall.binding == "tpot"
    with pytest.raises(NoFeasible, match=r"TPOT, limit 1.5 ms, exceeded by \d+"):
        result.require()


@pytest.mark.slow
def test_model_that_fits_no_layout_says_what_it_needs():
    result = run(model_path="meta-llama/Meta-Llama-3.1-405B", system="h100_sxm", total_gpus=1, serving_mode="agg")
    with pytest.raises(NoFeasible, match=r"needs \d+\.\d+ GiB per GPU .* smallest power-of-two TP that fits is 16"):
        result.require()


@pytest.mark.slow
def test_one_output_token_has_no_tpot():
    result = run(**{**BASE, "osl": 1, "total_gpus": 8})
    row = first(result.tasks["agg"])
    assert row["tpot"] is None
    assert row["request_latency"] == row["ttft"]
    assert row["tokens/s"] == row["seq/s"] > 0
    assert isinstance(result.errors["disagg"], NoFeasible)


def test_fewest_gpus_for_a_rate():
    result = recommend(SearchRequest(**{**BASE, "ttft": 1000, "tpot": 20}, target_request_rate=50.0))
    row = first(result.tasks["agg"])
    assert row["replicas_needed"] == np.ceil(50 / row["seq/s"])
    assert row["total_gpus_needed"] == row["replicas_needed"] * row["num_total_gpus"]


@pytest.mark.slow
def test_engines_are_merged_and_ranked():
    result = run(**{**BASE, "backend": "auto", "total_gpus": 8, "serving_mode": "agg"})
    assert set(result.by_backend) == {"agg_trtllm", "agg_sglang", "agg_vllm"}
    best = result.tasks["agg"].best
    assert np.all(np.diff(best[CLUSTER]) <= 0)
    assert set(best["backend"]) <= {"trtllm", "sglang", "vllm"}
    meeting = [task for task in result.by_backend.values() if task.meets_target]
    assert best[CLUSTER][0] == max(first(task)[CLUSTER] for task in meeting)
    assert (best["tpot"] <= 10).all()


@pytest.mark.slow
def test_engine_without_tables_is_skipped_with_its_reason():
    result = run(**{**BASE, "system": "b60", "backend": "auto", "total_gpus": 4, "ttft": 60000, "tpot": 1000})
    failed = [name for name, task in result.by_backend.items() if task.error is not None]
    assert any("trtllm" in name for name in failed)
    assert all("\n" not in str(error) for error in result.errors.values())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_path": "nobody/nothing"}, "model"),
        ({"system": "h999"}, "system|one of"),
        ({"total_gpus": None}, "`total_gpus` must be given, or a load target"),
        ({"backend_version": "0.0.1"}, "version"),
        ({"agg_tp_candidates": [3], "agg_num_gpu_candidates": [3]}, "64 query heads"),
        ({"grid": "nonsense"}, "grid"),
    ],
)
def test_bad_input_is_refused(values, message):
    with pytest.raises(InputError, match=message):
        search(SearchRequest(**{**BASE, "total_gpus": 8, "serving_mode": "agg", **values}))


def test_same_answer_in_any_letter_case():
    lower = run(**{**STORED["p01"], "model_path": MODEL.lower()})
    assert first(lower.tasks["agg"]) == first(run(**STORED["p01"]).tasks["agg"])
