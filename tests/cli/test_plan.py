# SPDX-License-Identifier: Apache-2.0
"""`aicjax plan` from the command line to its answer."""

import json

import pytest

from aicjax.cli.app import run

PLAN = "plan --model Qwen/Qwen3-8B --system h200_sxm --rate 30 --isl 1000 --osl 200 --ttft 1000 --tpot 20"
FEW = "--requests 300 --seeds 2 --candidates 1 --max-gpus-per-replica 1"


@pytest.mark.slow
def test_a_plan_has_replicas_that_the_simulation_confirms_and_a_cost_only_with_a_price(
    capsys: pytest.CaptureFixture[str],
):
    assert run(f"{PLAN} {FEW} --json".split()) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["verdict"] == "met"
    assert row["cost"] is None
    assert row["replicas"] == row["needed"] + 1
    assert row["gpus"] == row["replicas"]
    assert row["utilization"] == pytest.approx(30 / (row["needed"] * row["capacity_per_s"]))
    assert row["ttft_simulated_ms"]["value"] <= 1000
    assert row["tpot_simulated_ms"]["value"] <= 20
    assert row["confidence"] > 0.5

    assert run(f"{PLAN} {FEW} --price 4".split()) == 0
    out = capsys.readouterr().out
    assert f"{row['gpus']} GPUs, ${4 * row['gpus']:.2f}/h" in out
