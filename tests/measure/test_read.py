# SPDX-License-Identifier: Apache-2.0
"""Result files of four load generators: the same run read from each, and what is refused, by file and key."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aicjax._results import AicjaxError, DataError, InputError
from aicjax.measure import read_runs

FILES = Path(__file__).parents[1] / "references" / "benchmarks"
MODEL = "Qwen/Qwen3-32B-FP8"
TOOLS = {
    "profile_export_aiperf.json": ("aiperf", "0.13.0", MODEL, 32, 318, 2),
    "profile_export_aiperf.csv": ("aiperf", "", "", None, 318, 2),
    "vllm_bench_serve.json": ("vllm", "", MODEL, 32, 318, 2),
    "sglang_bench_serving.jsonl": ("sglang", "0.5.23", MODEL, 32, 320, 1),
    "guidellm_benchmarks.json": ("guidellm", "0.8.1", MODEL, 32, 320, 2),
}


def _changed(tmp_path: Path, name: str, change: Callable[[Any], Any]) -> Path:
    values = json.loads(
        (FILES / name).read_text().splitlines()[0] if name.endswith("l") else (FILES / name).read_text()
    )
    change(values)
    path = tmp_path / "result"
    path.write_text(json.dumps(values))
    return path


def _delete(*keys: Any) -> Callable[[Any], None]:
    def change(values: Any) -> None:
        for key in keys[:-1]:
            values = values[key]
        del values[keys[-1]]

    return change


def _set(value: Any, *keys: Any) -> Callable[[Any], None]:
    def change(values: Any) -> None:
        for key in keys[:-1]:
            values = values[key]
        values[keys[-1]] = value

    return change


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_gives_the_same_run(tmp_path: Path, name: str):
    renamed = tmp_path / "whatever.txt"
    renamed.write_bytes((FILES / name).read_bytes())
    run = read_runs(renamed)[-1]
    assert (run.tool, run.version, run.model, run.concurrency, run.requests, run.failed_requests) == TOOLS[name]
    assert (run.isl, run.osl, run.ttft_ms, run.tpot_ms) == pytest.approx((1000, 200, 150, 12))
    assert run.requests_per_s == pytest.approx(12.3)
    assert run.output_tokens_per_s == pytest.approx(2460)


def test_a_file_may_hold_several_runs():
    assert [run.concurrency for run in read_runs(FILES / "sglang_bench_serving.jsonl")] == [8, 32]
    assert [run.concurrency for run in read_runs(FILES / "guidellm_benchmarks.json")] == [1, 32]


def test_failures_that_no_file_states_are_unknown():
    first, _ = read_runs(FILES / "sglang_bench_serving.jsonl")
    assert first.failed_requests is None


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("vllm_bench_serve.json", _delete("mean_ttft_ms"), "mean_ttft_ms is missing"),
        ("vllm_bench_serve.json", _set("fast", "mean_tpot_ms"), "mean_tpot_ms must be a number above 0"),
        ("vllm_bench_serve.json", _set(0, "completed"), "completed must be a whole number of at least 1"),
        ("vllm_bench_serve.json", _set(4.0, "request_rate"), "request_rate is 4.0, an open loop"),
        ("vllm_bench_serve.json", _set("linear", "ramp_up_strategy"), "ramp_up_strategy makes the run an open loop"),
        ("vllm_bench_serve.json", _set(70.0, "spec_decode_acceptance_rate"), "speculative decoding"),
        ("sglang_bench_serving.jsonl", _delete("request_throughput"), "request_throughput is missing"),
        ("sglang_bench_serving.jsonl", _set("trace", "request_rate"), "request_rate is 'trace', an open loop"),
        ("sglang_bench_serving.jsonl", _set(2.1, "accept_length"), "accept_length is of speculative decoding"),
        ("profile_export_aiperf.json", _delete("inter_token_latency"), "inter_token_latency is missing"),
        ("profile_export_aiperf.json", _delete("time_to_first_token", "avg"), "time_to_first_token.avg is missing"),
        (
            "profile_export_aiperf.json",
            _set("min", "time_to_first_token", "unit"),
            "time_to_first_token.unit must be ns or us or ms",
        ),
        ("profile_export_aiperf.json", _set(True, "was_cancelled"), "was_cancelled is true"),
        ("profile_export_aiperf.json", _set(False, "is_complete"), "is_complete is false"),
        (
            "profile_export_aiperf.json",
            _set("poisson", "input_config", "phases", 1, "type"),
            "input_config.phases[1].type is 'poisson', an open loop",
        ),
        ("guidellm_benchmarks.json", _set(1, "metadata", "version"), "metadata.version must be 2"),
        (
            "guidellm_benchmarks.json",
            _delete("benchmarks", 1, "metrics", "time_to_first_token_ms"),
            "benchmarks[1].metrics.time_to_first_token_ms is missing",
        ),
        (
            "guidellm_benchmarks.json",
            _set("constant", "benchmarks", 0, "config", "strategy", "type_"),
            "config.strategy.type_ is 'constant', an open loop",
        ),
        ("guidellm_benchmarks.json", _set([], "benchmarks"), "benchmarks holds no run"),
    ],
)
def test_what_is_missing_or_odd_is_named_by_file_and_key(tmp_path: Path, name: str, change: Any, said: str):
    path = _changed(tmp_path, name, change)
    with pytest.raises(DataError) as error:
        read_runs(path)
    assert str(error.value).startswith(f"{path}: ") and said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "hello", "[]", '{"a": 1}', "a,b\n1,2\n", '{"a": 1', "\x00\x01"])
def test_files_of_no_known_tool_are_refused(tmp_path: Path, text: str):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(AicjaxError, match=r"aiperf|no JSON") as error:
        read_runs(path)
    assert str(path) in str(error.value)


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="an existing file"):
        read_runs(tmp_path / "none.json")


@pytest.mark.parametrize(("unit", "factor"), [("sec", 1e-3), ("us", 1e3), ("ns", 1e6)])
def test_stated_units_are_converted(tmp_path: Path, unit: str, factor: float):
    def change(values: Any) -> None:
        for key in ("time_to_first_token", "inter_token_latency"):
            values[key] |= {"unit": unit, "avg": values[key]["avg"] * factor}

    (run,) = read_runs(_changed(tmp_path, "profile_export_aiperf.json", change))
    assert (run.ttft_ms, run.tpot_ms) == pytest.approx((150, 12))


def test_older_aiperf_files_state_the_load_elsewhere(tmp_path: Path):
    older = {"endpoint": {"model_names": [MODEL]}, "loadgen": {"concurrency": 32}}
    (run,) = read_runs(_changed(tmp_path, "profile_export_aiperf.json", _set(older, "input_config")))
    assert (run.concurrency, run.model) == (32, MODEL)
    older["loadgen"]["request_rate"] = 3
    with pytest.raises(DataError, match=r"input_config\.loadgen\.request_rate makes the run an open loop"):
        read_runs(_changed(tmp_path, "profile_export_aiperf.json", _set(older, "input_config")))


def test_without_a_limit_all_prompts_were_in_flight(tmp_path: Path):
    (run,) = read_runs(_changed(tmp_path, "vllm_bench_serve.json", _set(None, "max_concurrency")))
    assert run.concurrency == 320


def test_failures_of_older_vllm_files_are_what_is_not_completed(tmp_path: Path):
    (run,) = read_runs(_changed(tmp_path, "vllm_bench_serve.json", _delete("failed")))
    assert run.failed_requests == 2
