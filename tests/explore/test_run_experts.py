# SPDX-License-Identifier: Apache-2.0
"""Whole searches of models with experts on the measured tables: stored top rows, and what their layouts obey."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from aicjax.explore import SearchRequest, SearchResult, search
from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER

pytestmark = pytest.mark.as_shipped

REFERENCES = Path(__file__).parents[1] / "references"
PARITY = 1e-4  # relative: float32 on the device against float64, of sums over operators
ROUNDED = 1.001e-3  # absolute: one unit of the last reported decimal
SEARCHES: dict[str, dict[str, Any]] = {
    "p04": {
        "model_path": "Qwen/Qwen3-235B-A22B-FP8",
        "system": "h200_sxm",
        "total_gpus": 32,
        "isl": 4000,
        "osl": 500,
        "ttft": 1000,
        "tpot": 30,
    },
    "p18": {
        "model_path": "Qwen/Qwen3-30B-A3B",
        "system": "h100_sxm",
        "total_gpus": 8,
        "backend": "sglang",
        "isl": 2000,
        "osl": 500,
        "ttft": 800,
        "tpot": 20,
    },
    "p26": {
        "model_path": "openai/gpt-oss-120b",
        "system": "b200_sxm",
        "total_gpus": 8,
        "isl": 1024,
        "osl": 1024,
        "ttft": 500,
        "tpot": 10,
    },
    "p08": {
        "model_path": "deepseek-ai/DeepSeek-V3",
        "system": "h200_sxm",
        "total_gpus": 32,
        "isl": 3000,
        "osl": 300,
        "ttft": 2000,
        "tpot": 40,
    },
    "p25": {
        "model_path": "deepseek-ai/DeepSeek-R1",
        "system": "h200_sxm",
        "total_gpus": 16,
        "nextn": 1,
        "nextn_accepted": 0.8,
        "isl": 2000,
        "osl": 400,
        "ttft": 2000,
        "tpot": 30,
    },
    "p40": {
        "model_path": "deepseek-ai/DeepSeek-V3",
        "system": "h200_sxm",
        "total_gpus": 32,
        "backend": "sglang",
        "isl": 4000,
        "osl": 500,
        "ttft": 2000,
        "tpot": 50,
    },
}
SLOW = ("p04", "p26", "p08", "p25", "p40")


@functools.cache
def run(name: str) -> SearchResult:
    return search(SearchRequest(**SEARCHES[name], compat="reference"))


@pytest.mark.parametrize("name", ["p18", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_top_rows_are_those_of_the_stored_search(name):
    files = ("search_top_experts.parquet", "search_top_wide.parquet")
    stored = [row for file in files for row in pq.read_table(REFERENCES / file).to_pylist()]
    for mode, task in run(name).tasks.items():
        expected = [row for row in stored if (row["search"], row["mode"]) == (name, mode)]
        got = list(frames.rows(task.best))
        assert len(got) == len(expected)
        for row, want in zip(got, sorted(expected, key=lambda row: row["rank"]), strict=True):
            equals = [other for other in expected if other[CLUSTER] == want[CLUSTER]]
            assert row[CLUSTER] == pytest.approx(want[CLUSTER], rel=PARITY, abs=ROUNDED)
            if len(equals) == 1:
                check_row(row, want, "(d)" if mode == "disagg" else "")
            else:
                assert mode == "disagg", "only replicas bound by their prefill side tie"
                assert row["tpot"] <= max(other["tpot"] for other in equals)


def check_row(row: dict, want: dict, side: str) -> None:
    assert [row[f"{side}{name}"] for name in ("parallel", "bs", "moe")] == [want["layout"], want["batch"], want["moe"]]
    if side:
        replica = [row[name] for name in ("(p)parallel", "(p)workers", "(d)workers")]
        assert replica == [want["prefill"], want["prefill_workers"], want["decode_workers"]]
    assert row[f"{side}memory"] == pytest.approx(want["memory"], abs=ROUNDED)
    for column in ("ttft", "tpot", "request_latency", "seq/s", "tokens/s/gpu", "tokens/s/user"):
        assert row[column] == pytest.approx(want[column], rel=PARITY, abs=ROUNDED), column


def test_widths_of_attention_and_experts_agree():
    tasks = run("p18").tasks
    for frame, side in ((tasks["agg"].feasible, ""), (tasks["disagg"].feasible, "(p)")):
        attention = frame[f"{side}tp"] * frame[f"{side}dp"] * frame[f"{side}cp"]
        np.testing.assert_array_equal(attention, frame[f"{side}moe_tp"] * frame[f"{side}moe_ep"])
        assert frame[f"{side}cp"].max() > 1
        np.testing.assert_array_equal(frame[f"{side}global_bs"], frame[f"{side}bs"] * frame[f"{side}dp"])


def test_caches_go_between_workers_of_one_tensor_parallel_size():
    frame = run("p18").tasks["disagg"].feasible
    np.testing.assert_array_equal(frame["(p)tp"], frame["(d)tp"])


@pytest.mark.slow
def test_caches_of_experts_on_many_gpus_go_anywhere():
    task = run("p40").tasks["disagg"]
    wide = task.resolved["roles"]["decode"]["large_ep"]
    assert wide["tp1pp1dp16etp1ep16"] == {"context": "deepep_ht", "generation": "deepep_ll"}
    frame = task.feasible
    free = np.isin(frame["(p)parallel"], list(task.resolved["roles"]["prefill"]["large_ep"]))
    free |= np.isin(frame["(d)parallel"], list(wide))
    assert (frame["(p)tp"] != frame["(d)tp"]).any()
    np.testing.assert_array_equal(frame["(p)tp"][~free], frame["(d)tp"][~free])
    assert set(frame["(d)fmha"][np.isin(frame["(d)parallel"], list(wide))]) == {"fp8_block"}


def test_reasons_cover_every_operator_of_both_roles():
    task = run("p18").tasks["disagg"]
    assert task.explain is not None
    reason = task.explain(0)
    prefill, decode = reason.steps
    row = frames.row(task.best, 0)
    assert prefill.total_ms * 1.8 == pytest.approx(row["ttft"], rel=1e-3)
    assert decode.total_ms < row["tpot"], "the first decode step is the shortest"
    assert {"context_moe", "context_attention"} <= set(prefill.names)
    assert "generation_moe" in decode.names
