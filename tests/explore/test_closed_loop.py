# SPDX-License-Identifier: Apache-2.0
"""Requests under constants of the closed loop: estimates, searches, loads, replicas, refusals."""

from typing import Any

import numpy as np
import pytest

import aicjax
from aicjax._results import InputError
from aicjax.constants import load_constants
from aicjax.explore import frame as frames
from aicjax.serving.closed_loop import ClosedLoop, LoopTimes, LoopWork, closed_loop_estimate
from tests.loop_constants import write_loop_constants

MODEL: dict[str, Any] = {"model_path": "Qwen/Qwen3-32B-FP8", "system": "h200_sxm", "isl": 3000, "osl": 300}
POINT: dict[str, Any] = MODEL | {"tp_size": 4, "batch_size": 24}
REPLICA: dict[str, Any] = MODEL | {
    "mode": "disagg",
    "prefill_tp_size": 2,
    "prefill_batch_size": 1,
    "prefill_num_workers": 3,
    "decode_tp_size": 4,
    "decode_batch_size": 40,
    "decode_num_workers": 1,
}
LAYERS = 64


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_loop_constants(tmp_path_factory.mktemp("constants"))


def row_of(**changed: Any) -> dict[str, Any]:
    return aicjax.estimate(**{**POINT, **changed}).row


def step_ms(point: Any, step: str, part: str = "") -> float:
    """Time of the operators of a step, those of a part by their prefix."""
    (found,) = (s for s in point.steps if s.step == step)
    return sum(ms for name, ms in zip(found.names, found.latency_ms, strict=True) if name.startswith(part))


@pytest.mark.parametrize("backend", ["trtllm", "sglang"])
def test_point_is_the_closed_loop_of_its_steps(loop: str, backend: str):
    point = aicjax.estimate(**POINT, backend=backend, constants=loop)
    constants = load_constants(backend, loop).loop
    decode_ms = step_ms(point, "decode step")
    if backend == "sglang":
        prompt_ms = step_ms(point, "prefill")  # in a step of its own
    else:
        alone = aicjax.estimate(**POINT, backend=backend, constants=loop).steps
        assert [step.step for step in alone] == ["mixed step", "decode step"]
        prompt_ms = step_ms(point, "mixed step") - decode_ms
    times = LoopTimes(decode_ms, prompt_ms, prompt_ms, prompt_ms)
    want = closed_loop_estimate(ClosedLoop(24.0), LoopWork(300.0, LAYERS), times, constants)
    assert point.row["ttft"] == pytest.approx(float(want.ttft_ms), rel=1e-5)
    assert point.row["tpot"] == pytest.approx(float(want.tpot_ms), rel=1e-5)
    assert point.row["seq/s"] * (want.request_latency_ms / 1000) == pytest.approx(24, rel=1e-5)


def test_first_wave_and_shorter_lengths(loop: str):
    steady, closed, varied = (
        row_of(constants=loop, **load)
        for load in ({}, {"load": "closed"}, {"load": "closed", "waves": 10, "length_low": 0.8})
    )
    assert steady["ttft"] < varied["ttft"] < closed["ttft"]
    assert closed["tpot"] < steady["tpot"]  # the last wave meets no prefills
    assert (varied["isl"], varied["osl"]) == (3000, 300) and varied["memory"] == steady["memory"]
    long = row_of(constants=loop, load="closed", waves=1e6)
    assert long["tpot"] == pytest.approx(steady["tpot"], rel=1e-4)
    mean = row_of(isl=2700, osl=270, constants=loop, load="closed", length_low=1.0)
    assert varied["tpot"] == pytest.approx(mean["tpot"], rel=1e-6)
    assert varied["tokens/s"] == pytest.approx(varied["seq/s"] * 269, rel=1e-6)


@pytest.mark.parametrize("changed", [{"nextn": 2, "nextn_accepted": 1.2}, {"prefix": 2000}, {"prefix": 3000}])
def test_drafts_and_cached_prompts_help(loop: str, changed: dict[str, Any]):
    plain, helped = (row_of(constants=loop, **more) for more in ({}, changed))
    assert helped["seq/s"] > plain["seq/s"] and helped["tpot"] < plain["tpot"]
    if "prefix" in changed:
        assert helped["ttft"] < plain["ttft"]


def test_smallest_requests(loop: str):
    single = row_of(batch_size=1, constants=loop)
    assert single["seq/s"] == pytest.approx(1000 / single["request_latency"])
    token = row_of(osl=1, constants=loop)
    assert token["tpot"] is None and token["seq/s"] == pytest.approx(24000 / token["ttft"])
    few = row_of(osl=2, constants=loop)
    assert few["seq/s"] < 1.02 * token["seq/s"]


def test_images_come_on_top(loop: str):
    load = {"system": "h200_sxm", "isl": 500, "osl": 100, "tp_size": 2, "batch_size": 8, "constants": loop}
    model: dict[str, Any] = {"model_path": "Qwen/Qwen3-VL-8B-Instruct", "backend": "vllm"}
    row = aicjax.estimate(**model, **load, image_height=512, image_width=512).row
    assert row["ttft"] > row["encoder_latency"] > 0
    assert row["seq/s"] * row["request_latency"] / 1000 == pytest.approx(8, rel=1e-5)


def test_searches_find_estimates(loop: str):
    result = aicjax.search(**MODEL, total_gpus=8, serving_mode="agg", ttft=900, tpot=25, constants=loop)
    task = result.require()
    assert frames.length(task.best) > 1 and result.inputs["constants"] == loop
    for row in frames.rows(task.best):
        where = {"tp_size": row["tp"], "batch_size": row["bs"], "ctx_tokens": row["ctx_tokens"]}
        again = aicjax.estimate(**MODEL, **where, constants=loop).row
        for column in ("ttft", "tpot", "seq/s", "tokens/s/gpu"):
            assert row[column] == pytest.approx(again[column], rel=1e-4, abs=6e-4), column
        assert row["ttft"] <= 900 and row["tpot"] <= 25
    gain = task.grid_gain
    assert gain is not None and gain.percent is not None and gain.percent >= 0
    names = {move.name for move in task.sensitivities(0)} if task.sensitivities else set()
    assert "loop.prefill_level" in names and "serving.queue_base" not in names


def test_replicas_wait_by_their_utilisation(loop: str):
    constants = load_constants("trtllm", loop)
    numbers, disagg = constants.loop, constants.disagg
    row = aicjax.estimate(**REPLICA, constants=loop).row
    kernels = {
        mode: aicjax.estimate(**MODEL, mode=mode, tp_size=tp, batch_size=batch, constants=loop).row
        for mode, tp, batch in (("static_ctx", 2, 1), ("static_gen", 4, 40))
    }
    prompt_ms = numbers.disagg_prefill_level * numbers.prefill_level * kernels["static_ctx"]["ttft"]
    prompt_ms += numbers.host_ms_per_prefill + numbers.host_ms_per_prefill_layer * LAYERS
    host_ms = numbers.host_ms_per_step + 40 * numbers.host_ms_per_running_request
    tpot_ms = numbers.disagg_decode_level * (kernels["static_gen"]["tpot"] + host_ms)
    rate = min(3000 / prompt_ms * disagg.prefill_degradation, 40000 / (299 * tpot_ms) * disagg.decode_degradation)
    busy = rate * prompt_ms / 3000
    wait_ms = numbers.disagg_queue_weight * busy / (1 - busy) * prompt_ms
    assert row["tpot"] == pytest.approx(tpot_ms, rel=1e-4)
    assert row["seq/s"] == pytest.approx(rate, rel=1e-3)
    assert row["ttft"] == pytest.approx(numbers.disagg_request_ms + prompt_ms + wait_ms, rel=1e-3)
    burst = aicjax.estimate(**REPLICA, constants=loop, load="closed").row
    places = numbers.disagg_burst_weight / 10 * (40 / 3 - 1) / 2
    assert burst["ttft"] == pytest.approx(row["ttft"] + places * prompt_ms - 0.1 * wait_ms, rel=1e-3)


def test_searches_of_replicas_plan_for_the_highest_utilisation(loop: str):
    lists: dict[str, Any] = {f"{role}_{axis}_candidates": (2, 4) for role in ("prefill", "decode") for axis in ("tp",)}
    result = aicjax.search(
        **MODEL, **lists, total_gpus=16, serving_mode="disagg", ttft=1500, tpot=25, constants=loop, grid="reference"
    )
    numbers = load_constants("trtllm", loop).loop
    for row in frames.rows(result.require().best):
        sides = {f"{side}_{name}": row[f"({side[0]}){name}"] for side in ("prefill", "decode") for name in ("workers",)}
        again = aicjax.estimate(
            **MODEL,
            mode="disagg",
            constants=loop,
            prefill_num_workers=sides["prefill_workers"],
            decode_num_workers=sides["decode_workers"],
            **{f"{side}_tp_size": row[f"({side[0]})tp"] for side in ("prefill", "decode")},
            **{f"{side}_batch_size": row[f"({side[0]})bs"] for side in ("prefill", "decode")},
        ).row
        assert row["seq/s"] == pytest.approx(again["seq/s"], rel=1e-3)
        assert row["tpot"] == pytest.approx(again["tpot"], abs=1e-3)
        assert again["ttft"] <= row["ttft"] * (1 + 1e-4) <= 1500 * (1 + 1e-4)
        alone_ms = (row["ttft"] - numbers.disagg_request_ms) / (1 + numbers.disagg_queue_weight * 0.9 / 0.1)
        assert alone_ms == pytest.approx(1000 * row["(p)bs"] / row["(p)seq/s/worker"], rel=1e-3)


@pytest.mark.parametrize(
    ("fields", "argument"),
    [
        ({"load": "open"}, "request_rate"),
        ({"load": "closed", "constants": "reference"}, "load"),
        ({"load": "closed", "compat": "reference"}, "load"),
        ({"waves": 3}, "waves"),
        ({"length_low": 0.5}, "length_low"),
        ({"load": "closed", "length_low": 0}, "length_low"),
        ({"load": "closed", "waves": 0.5}, "waves"),
        ({"load": "closed", "mode": "static"}, "load"),
        ({"constants": "mine.yaml"}, "constants"),
    ],
)
def test_bad_loads_are_refused(fields: dict[str, Any], argument: str):
    with pytest.raises(InputError) as refused:
        row_of(**fields)
    assert refused.value.argument == argument and "\n" not in str(refused.value)


def test_full_use_of_prefill_workers_has_no_finite_wait(loop: str):
    with pytest.raises(InputError, match="rate_match_prefill_degradation"):
        aicjax.search(**MODEL, total_gpus=8, serving_mode="disagg", rate_match_prefill_degradation=1, constants=loop)


def test_first_wave_in_searches(loop: str):
    result = aicjax.search(**MODEL, total_gpus=8, constants=loop, load="closed", ttft=5000, tpot=30)
    assert result.chosen == "agg" and "load closed" in str(result.errors["disagg"])
    assert np.all(result.require().best["ttft"] <= 5000)


def test_reference_constants_go_with_compat():
    for compat, constants in (("reference", None), ("default", "reference")):
        request = aicjax.estimate(**POINT, compat=compat, constants=constants).request
        assert request.constants_name == "reference"
