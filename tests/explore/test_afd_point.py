# SPDX-License-Identifier: Apache-2.0
"""Estimates of deployments with attention and feed-forward layers apart: stored answers, identities, verdicts."""

from pathlib import Path
from typing import Any

import pytest

from aicjax._results import InputError, NoFeasible, UnsupportedModel
from aicjax.explore import EstimateRequest, estimate
from aicjax.explore.columns import AFD
from benchmarks.parity import compare_file

REFERENCES = Path(__file__).parents[1] / "references"
BASE: dict[str, Any] = {
    "model_path": "Qwen/Qwen3-32B-FP8",
    "system": "h200_sxm",
    "mode": "afd",
    "isl": 4000,
    "osl": 500,
    "n_a_nodes": 1,
    "n_f_nodes": 1,
    "a_batch_size": 32,
    "tp_size": 8,
    "batch_size": 4,
    "constants": "reference",
}


def point(**values: Any):
    return estimate(EstimateRequest(**{**BASE, **values}))


def test_stored_deployments_agree():
    report = compare_file(REFERENCES / "afd.parquet", {})
    assert report is not None
    assert len(report.rows) == 12
    assert report.passes, report.worst(3)


def test_deployment_holds_with_its_prefill_worker():
    alone, whole = point(afd_combined_with_pd=False), point()
    assert tuple(alone.row) == AFD
    assert whole.row["num_total_gpus"] == alone.row["num_total_gpus"] + 8
    assert whole.row["tpot"] == alone.row["tpot"]
    assert whole.row["seq/s"] <= alone.row["seq/s"]
    assert whole.row["request_latency"] == pytest.approx(whole.row["ttft"] + 499 * whole.row["tpot"])
    assert list(whole.resolved) == ["attention", "ffn", "prefill"]
    assert [use.role for use in whole.memory] == ["attention", "ffn", "prefill"]
    assert whole.memory[1].kvcache == 0
    steps = {step.step: step.total_ms for step in alone.steps}
    assert steps["decode, attention"] / 64 == pytest.approx(alone.row["t_a_layer"], rel=0.1)
    assert steps["decode, transfer"] == pytest.approx(alone.row["t_a2f_layer"])


def test_drafts_cost_rows_and_yield_tokens():
    plain, drafted = point(afd_combined_with_pd=False), point(afd_combined_with_pd=False, nextn=2, nextn_accepted=1.0)
    assert plain.row["tpot"] / 2 < drafted.row["tpot"] < plain.row["tpot"]
    assert drafted.row["decode_t_step"] == pytest.approx(2 * drafted.row["tpot"])


@pytest.mark.parametrize(
    ("values", "argument"),
    [
        ({"n_a_nodes": None}, "n_a_nodes"),
        ({"afd_phase": "both"}, "afd_combined_with_pd"),
        ({"osl": 1}, "osl"),
        ({"pipeline_model": "hopeful"}, "pipeline_model"),
        ({"image_height": 10, "image_width": 10}, "image_height"),
    ],
)
def test_incomplete_deployment_is_refused(values: dict[str, Any], argument: str):
    with pytest.raises(InputError) as refusal:
        point(**values)
    assert refusal.value.argument == argument


def test_pool_that_does_not_fit_is_a_verdict():
    with pytest.raises(NoFeasible, match=r"attention workers, tp1.* needs .* GiB of 141"):
        point(a_batch_size=2048)


def test_model_that_cannot_be_split_is_refused():
    with pytest.raises(UnsupportedModel, match="belongs neither to attention"):
        point(model_path="Qwen/Qwen3.5-27B")
