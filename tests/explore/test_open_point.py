# SPDX-License-Identifier: Apache-2.0
"""Points at a stated request rate: figures, verdicts, limits and refusals, from Python and from the command line."""

import json
from typing import Any

import pytest

import aicjax
from aicjax._results import InputError, NoFeasible
from aicjax.cli.app import run

POINT: dict[str, Any] = {
    "model_path": "Qwen/Qwen3-32B-FP8",
    "system": "h200_sxm",
    "isl": 3000,
    "osl": 300,
    "tp_size": 4,
    "batch_size": 64,
    "constants": "silicon",
}
COMMAND = "estimate --model Qwen/Qwen3-32B-FP8 --system h200_sxm --isl 3000 --osl 300 --tp-size 4 --batch-size 64"


def point(rate: float, **changed: Any) -> Any:
    return aicjax.estimate(**{**POINT, **changed}, load="open", request_rate=rate)


@pytest.mark.parametrize("backend", ["trtllm", "sglang"])
def test_figures_of_a_stable_load(backend: str):
    got = point(4.0, backend=backend)
    row, load = got.row, got.open_load
    assert load.verdict == "stable" and load.utilization == pytest.approx(4.0 / load.largest_stable_rate)
    assert row["seq/s"] == row["request_rate"] == 4.0
    assert row["tokens/s"] == pytest.approx(4 * 299) and row["tokens/s/gpu"] == pytest.approx(299)
    assert row["concurrency"] == pytest.approx(4 * row["request_latency"] / 1000)
    assert row["request_latency"] == pytest.approx(row["ttft"] + 299 * row["tpot"])
    assert load.batch < row["concurrency"] and row["bs"] == round(load.batch)
    # A closed loop of as many requests has their TPOT, but for what one request more or less does.
    near = aicjax.estimate(**{**POINT, "batch_size": round(load.batch) + 1, "backend": backend}).row
    assert row["tpot"] == pytest.approx(near["tpot"], rel=0.1)


def test_a_small_rate_is_one_request_alone():
    got, alone = point(1e-4).row, aicjax.estimate(**{**POINT, "batch_size": 1}).row
    for name in ("ttft", "tpot", "request_latency"):
        assert got[name] == pytest.approx(alone[name], rel=2e-3)


def test_even_arrivals_wait_less():
    poisson, even = point(6.0), point(6.0, arrivals="even")
    assert even.open_load.queue_wait_ms < poisson.open_load.queue_wait_ms
    assert even.row["request_latency"] < poisson.row["request_latency"]


def test_an_unstable_load_has_a_largest_rate_and_no_latencies():
    got = point(50.0)
    load = got.open_load
    assert load.verdict == "unstable" and load.reason.startswith("batch_size") and load.batch is None
    for name in ("ttft", "tpot", "request_latency", "concurrency", "seq/s", "tokens/s/user"):
        assert got.row[name] is None
    most = load.largest_stable_rate
    assert point(0.999 * most).open_load.verdict == "stable"
    assert point(1.001 * most).open_load.verdict == "unstable"


def test_what_limits_a_rate():
    assert point(1.0, batch_size=4096, isl=8000, osl=2).open_load.reason.startswith("prompts")
    memory = point(0.1, batch_size=4096, isl=8000, free_gpu_memory_fraction=0.2).open_load
    assert memory.reason.startswith("memory") and memory.batch_limit < 4096
    with pytest.raises(NoFeasible):
        point(1.0, free_gpu_memory_fraction=1e-4)


@pytest.mark.parametrize(
    "changed",
    [
        {"osl": 1},
        {"batch_size": 1},
        {"nextn": 2, "nextn_accepted": 1.2},
        {"ctx_tokens": 1000},
        {"ctx_tokens": 9000},
        {"prefix": 2000},
    ],
)
def test_other_points_have_numbers(changed: dict[str, Any]):
    got = point(0.2, **changed)
    assert got.open_load.verdict == "stable" and got.row["ttft"] > 0
    assert got.row["tpot"] is None if changed.get("osl") == 1 else got.row["tpot"] > 0


@pytest.mark.parametrize(
    ("fields", "argument"),
    [
        ({}, "request_rate"),
        ({"request_rate": 0}, "request_rate"),
        ({"request_rate": float("nan")}, "request_rate"),
        ({"request_rate": float("inf")}, "request_rate"),
        ({"request_rate": 1, "arrivals": "bursts"}, "arrivals"),
        ({"request_rate": 1, "waves": 3}, "waves"),
        ({"request_rate": 1, "constants": "reference"}, "load"),
        ({"request_rate": 1, "mode": "static"}, "load"),
        ({"request_rate": 1, "image_height": 500, "image_width": 500}, "load"),
        ({"request_rate": 1, "load": "steady"}, "request_rate"),
        ({"arrivals": "even", "load": "closed"}, "arrivals"),
        ({"request_rate": 1, "ctx_tokens": 10**6}, "ctx_tokens"),
    ],
)
def test_bad_loads_are_refused(fields: dict[str, Any], argument: str):
    with pytest.raises(InputError) as refused:
        aicjax.estimate(**{**POINT, "load": "open"} | fields)
    assert refused.value.argument == argument and "\n" not in str(refused.value)


def test_searches_refuse_open_loads():
    with pytest.raises(InputError, match="load"):
        aicjax.search(model_path=POINT["model_path"], system="h200_sxm", total_gpus=8, load="open")


@pytest.mark.parametrize("rate", ["1e-300", "3", "1e9"])
def test_json_holds_finite_numbers(rate: str, capsys: pytest.CaptureFixture[str]):
    run([*COMMAND.split(), "--load", "open", "--request-rate", rate, "--constants", "silicon", "--json"])
    content = json.loads(capsys.readouterr().out)
    assert content["open_load"]["request_rate"] == float(rate) and content["ranges"] is None
    assert content["open_load"]["verdict"] == ("unstable" if rate == "1e9" else "stable")


def test_text_says_what_becomes_of_the_rate(capsys: pytest.CaptureFixture[str]):
    run([*COMMAND.split(), "--load", "open", "--request-rate", "3", "--constants", "silicon"])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("open load"))
    assert "3 req/s (poisson): stable at" in line and "of 64" in line
