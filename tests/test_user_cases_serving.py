# SPDX-License-Identifier: Apache-2.0
"""Latency, throughput, replicas and speculation as users of predictors asked for them, on the measured tables.

Sources: AIConfigurator, Dynamo and inference-sim threads, and defects seen in public tools.
"""

import functools
import json
from typing import Any

import numpy as np
import pytest

from aicjax._results import InputError, NoFeasible
from aicjax.cli.app import run
from aicjax.constants import load_constants
from aicjax.explore import EstimateResult, SearchResult, estimate, search
from aicjax.explore import frame as frames
from aicjax.serving.disagg import WorkerCounts, Workers, disagg_estimate

pytestmark = pytest.mark.as_shipped

MODEL: dict[str, Any] = {"model_path": "Qwen/Qwen3-32B-FP8", "system": "h200_sxm", "constants": "reference"}
LOAD = {"isl": 4000, "osl": 500}
REPLICA: dict[str, Any] = {
    "mode": "disagg",
    "tp_size": 4,
    "prefill_batch_size": 1,
    "decode_batch_size": 64,
    "prefill_num_workers": 5,
    "decode_num_workers": 3,
}
DIP = 0.05
IDENTITY = 1e-3  # relative, of rounded rows


@functools.cache
def found(**limits: Any) -> SearchResult:
    return search(**{**MODEL, **LOAD, "total_gpus": 32, "ttft": 300, "tpot": 100, **limits})


@functools.cache
def point(**values: Any) -> EstimateResult:
    return estimate(**{**MODEL, **LOAD, **values})


@pytest.mark.parametrize("mode", ["agg", "static"])
def test_one_output_token_has_no_time_per_output_token_and_counts(mode: str):
    row = point(mode=mode, osl=1, batch_size=8, tp_size=4).row
    assert row["tpot"] is None
    assert row["request_latency"] == row["ttft"] > 0
    assert row["tokens/s"] == pytest.approx(row["seq/s"], rel=IDENTITY)
    assert row["seq/s"] > 0


def test_rows_obey_their_identities():
    """Output tokens of an aggregated row are those after the first; a replica counts them all."""
    for name, task in found().tasks.items():
        rows = task.feasible
        follow_up = rows["osl"] - 1
        counted = rows["osl"] if name == "disagg" else follow_up
        for left, right in (
            (rows["request_latency"], rows["ttft"] + follow_up * rows["tpot"]),
            (rows["tokens/s"], rows["seq/s"] * counted),
            (rows["tokens/s/user"], 1000 / rows["tpot"]),
            (rows["tokens/s/gpu"], rows["tokens/s"] / rows["num_total_gpus"]),
        ):
            np.testing.assert_allclose(left, right, rtol=IDENTITY)


def test_requests_in_flight_are_rate_times_latency():
    """Where prefill is the bottleneck fewer decode than are configured, and faster; the full grid configures those."""
    task = found(grid="reference").tasks["disagg"]
    assert task.explain is not None
    rows, faster = list(frames.rows(task.best)), []
    for at, row in enumerate(rows):
        reason = task.explain(at)
        tpot = row["tpot"] if reason.tpot_in_use is None else reason.tpot_in_use
        latency_s = (row["ttft"] + tpot * (row["osl"] - 1)) / 1000
        assert reason.concurrency_in_use == pytest.approx(row["seq/s"] * latency_s, rel=0.02)
        if reason.binding == "prefill":
            faster.append(reason.tpot_in_use is not None)
            assert tpot <= row["tpot"]
            assert reason.concurrency_in_use < row["concurrency"]
    assert any(faster)
    full = found().tasks["disagg"]
    assert full.explain is not None
    assert {full.explain(at).tpot_in_use for at in range(frames.length(full.best))} == {None}


def test_replicas_do_not_speed_up_a_lone_request():
    result = found(ttft=15)
    assert result.chosen is None
    assert {task.shortfall and task.shortfall.binding for task in result.tasks.values()} == {"isolated prefill time"}
    with pytest.raises(NoFeasible, match="no number of replicas lowers"):
        result.require()


def test_a_pair_sustains_the_slower_side():
    constants = load_constants("trtllm", "reference").disagg
    assert (constants.prefill_degradation, constants.decode_degradation) == (0.9, 0.92)
    prefill, decode = (Workers(np.array([rate]), np.array([1])) for rate in (3.391, 19.319))
    counts = WorkerCounts(*(np.array([workers]) for workers in (4, 1, 0)))
    pair = disagg_estimate(prefill, decode, counts, np.array([100.0]), np.array([10.0]), 500, constants)
    assert pair.seq_per_s == pytest.approx([3.391 * 4 * 0.9])
    assert pair.seq_per_s == pytest.approx([12.2076], abs=5e-5)
    assert pair.prefill_bound.tolist() == [True]


def test_budget_is_a_hard_cap():
    """5 prefill workers of 8 GPUs and 5 decode workers of 2 need 50: never among 32."""
    for task in found().tasks.values():
        assert task.feasible["num_total_gpus"].max() <= 32
    rows = found().tasks["disagg"].feasible
    used = rows["(p)workers"] * rows["(p)tp"] * rows["(p)cp"] + rows["(d)workers"] * rows["(d)tp"]
    assert np.array_equal(used, rows["num_total_gpus"])


def test_drafts_need_an_acceptance_and_pay_by_it():
    with pytest.raises(InputError, match="nextn_accepted"):
        point(nextn=3)
    for mode in ("agg", "static", "static_gen"):
        plain, rejected, accepted = (
            point(mode=mode, batch_size=4, tp_size=4, **drafts).row["tpot"]
            for drafts in ({}, {"nextn": 5, "nextn_accepted": 0}, {"nextn": 5, "nextn_accepted": 5})
        )
        assert accepted < plain <= rejected


@pytest.mark.slow
def test_drafts_change_searches_and_replicas():
    drafts = {"nextn": 5, "nextn_accepted": 5}
    plain, drafted = (point(**REPLICA, **extra).row for extra in ({}, drafts))
    assert drafted["tpot"] < plain["tpot"]
    for mode in ("agg", "disagg"):
        plain, drafted = (found(tpot=10, **extra).tasks[mode].score for extra in ({}, drafts))
        assert drafted > plain


def test_prefix_is_at_most_the_prompt_and_leaves_a_token_to_compute():
    with pytest.raises(InputError, match=r"`prefix` must be at most isl = 4000, but got 4001"):
        point(prefix=4001)
    times = [point(prefix=prefix, batch_size=1, tp_size=4, mode="static").row["ttft"] for prefix in (0, 3999, 4000)]
    assert times[0] > times[1] == times[2] > 0


def test_handing_over_the_kv_cache_takes_its_bytes_over_the_bandwidth():
    """4000 tokens of 80 layers, 8 heads of 128 in 16 bits: 1.31072e9 bytes, 26.21 ms at 50e9 bytes/s."""
    replica = {**REPLICA, "model_path": "meta-llama/Meta-Llama-3.1-70B", "kvcache_quant_mode": "bfloat16"}
    at_once, fast, slow = (point(**replica, kv_transfer_gb_per_s=speed).row for speed in (None, 50.0, 5.0))
    assert fast["ttft"] - at_once["ttft"] == pytest.approx(26.2144, abs=2e-3)
    assert slow["ttft"] - at_once["ttft"] == pytest.approx(262.144, abs=2e-3)
    assert fast["request_latency"] - at_once["request_latency"] == pytest.approx(26.2144, abs=2e-3)
    assert at_once["tokens/s"] == fast["tokens/s"] == slow["tokens/s"]
    assert point(**replica, kv_transfer_gb_per_s=1e9).row["ttft"] == pytest.approx(at_once["ttft"], abs=2e-3)


def test_a_slower_hand_over_improves_no_search():
    best = [found(tpot=10, kv_transfer_gb_per_s=speed).tasks["disagg"] for speed in (None, 50.0, 2.0)]
    assert best[0].score >= best[1].score >= best[2].score
    assert (best[1].feasible["ttft"] < 300).all()
    assert best[2].score == 0, "four thousand tokens over 2e9 bytes/s take longer than the limit"


@pytest.mark.parametrize("model", ["Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-30B-A3B"])
def test_steps_take_longer_with_more_to_do(model: str):
    """Prefill tokens, decode rows and context: longer for eight times as much, not shorter for twice as much.

    Measured kernels change tiles on the way and dip by a few percent.
    """
    experts = {"moe_ep_size": 1} if "A3B" in model else {}

    def step_ms(column: str, **values: Any) -> float:
        result = estimate(**{**MODEL, "model_path": model, "tp_size": 1, **experts, **values})
        return result.row[column]

    prefill = [step_ms("ttft", mode="static_ctx", batch_size=1, isl=isl, osl=2) for isl in (512, 1024, 2048, 4096)]
    rows = [step_ms("tpot", mode="static_gen", batch_size=batch, isl=1024, osl=2) for batch in (8, 16, 32, 64)]
    context = [step_ms("tpot", mode="static_gen", batch_size=32, isl=isl, osl=2) for isl in (1024, 2048, 4096, 8192)]
    for times in (prefill, rows, context):
        assert np.all(np.divide(times[1:], times[:-1]) > 1 - DIP)
        assert times[-1] > times[0]


def test_machine_output_has_no_number_that_is_not_finite(capsys: pytest.CaptureFixture[str]):
    line = "estimate --model Qwen/Qwen3-32B-FP8 --system h200_sxm --tp 4 --bs 8 --isl 4000 --osl 1 --json"
    assert run(line.split()) == 0

    def refuse(constant: str):
        raise AssertionError(f"{constant} in the output")

    assert json.loads(capsys.readouterr().out, parse_constant=refuse)["row"]["tpot"] is None
