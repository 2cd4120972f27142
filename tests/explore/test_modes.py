# SPDX-License-Identifier: Apache-2.0
"""Database modes in requests: what answers a search, a recommendation and a single point."""

from typing import Any

import pytest

from aicjax._results import InputError, MissingData, Provenance
from aicjax.cli import recommend as recommend_command
from aicjax.cli.app import run as run_command
from aicjax.explore import SearchRequest, estimate, recommend, run

MODEL: dict[str, Any] = {
    "model_path": "nvidia/Qwen3-235B-A22B-NVFP4",
    "system": "h100_sxm",
}  # a format that Hopper did not measure
POINT: dict[str, Any] = {
    **MODEL,
    "backend": "trtllm",
    "tp_size": 8,
    "moe_ep_size": 8,
    "batch_size": 4,
    "isl": 200,
    "osl": 20,
}
LOAD: dict[str, Any] = {"target_request_rate": 1.0}


@pytest.mark.parametrize(
    ("given", "policy"), [(None, None), ("balanced", "balanced"), (["xshape", "xop"], "xshape,xop")]
)
def test_a_policy_is_a_word_or_several(given, policy):
    assert SearchRequest(**MODEL, transfer_policy=given).transfer_policy == policy


@pytest.mark.parametrize("given", ["xshape,xmodel", ["xmodel"], []])
def test_an_unknown_kind_of_transfer_is_refused(given):
    with pytest.raises(InputError, match=r"transfer_policy.*aggressive"):
        SearchRequest(**MODEL, transfer_policy=given)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[SearchRequest]:
    """Requests that would have been searched."""
    requests: list[SearchRequest] = []

    def stop(request, *_):
        requests.append(request)
        raise MissingData("stopped")

    monkeypatch.setattr(run, "_run", stop)
    monkeypatch.setattr(recommend_command, "present", stop)
    return requests


@pytest.mark.parametrize(("stated", "mode"), [({}, "HYBRID"), ({"database_mode": "SILICON"}, "SILICON")])
def test_recommendations_estimate_unless_told_not_to(asked, stated, mode):
    with pytest.raises(MissingData):
        recommend(**MODEL, **LOAD, **stated)
    flags = [f"--database-mode={stated['database_mode']}"] if stated else []
    words = ["--model", MODEL["model_path"], "--system", MODEL["system"], "--target-request-rate", "1", *flags]
    assert run_command(["recommend", *words]) == MissingData.exit_code
    assert [request.database_mode for request in asked] == [mode, mode]


def test_a_search_for_a_load_takes_measurements(asked):
    with pytest.raises(MissingData):
        run.search(**MODEL, **LOAD)
    assert asked[0].database_mode == "SILICON"


@pytest.mark.slow
def test_a_point_that_was_not_measured_is_estimated_on_demand():
    with pytest.raises(MissingData, match=r"context_qkv_gemm.*in database mode SILICON; HYBRID estimates"):
        estimate(**POINT)
    assert estimate(**POINT, database_mode="HYBRID").provenance == Provenance.XPROFILE
