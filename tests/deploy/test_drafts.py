# SPDX-License-Identifier: Apache-2.0
"""Speculation with the layers of the checkpoint: what each engine is told, and what has room for the drafts."""

from typing import Any

import pytest

from aicjax._results import InputError
from aicjax.deploy.build import build
from aicjax.deploy.checks import problems
from aicjax.deploy.record import Deployment, Drafts, as_dict, from_dict
from aicjax.deploy.render import render
from tests.deploy.rows import INPUTS, result_row

MODEL = "deepseek-ai/DeepSeek-R1"


def _deployment(engine: str, nextn: Any = 2, *, model: str = MODEL, disaggregated: bool = True) -> Deployment:
    row = {**result_row(engine, experts=True, disaggregated=disaggregated), "model": model}
    return build(row, {**INPUTS, "nextn": nextn, "nextn_accepted": 1.4})


@pytest.mark.parametrize(
    ("engine", "file", "told"),
    [
        ("vllm", "run_node1.sh", """--speculative-config '{"method":"mtp","num_speculative_tokens":2}'"""),
        ("vllm", "run_node1.sh", "--cudagraph-capture-sizes 3 6 12 24 48 96 177"),
        ("sglang", "run_node1.sh", "--speculative-algorithm EAGLE"),
        ("sglang", "run_node1.sh", "--speculative-num-steps 2"),
        ("sglang", "run_node1.sh", "--speculative-eagle-topk 1"),
        ("sglang", "run_node1.sh", "--speculative-num-draft-tokens 3"),
        ("sglang", "run_node1.sh", "--cuda-graph-bs-decode 1 2 4 8 16 32 59"),
        ("trtllm", "decode_engine.yaml", "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 2}"),
        ("trtllm", "decode_engine.yaml", "batch_sizes: [1, 2, 4, 8, 16, 32, 59]"),
        ("trtllm", "decode_engine.yaml", "max_num_tokens: 192"),
    ],
)
def test_engine_is_told_of_drafts(engine: str, file: str, told: str):
    deployment = _deployment(engine)
    files = render(deployment, "bare-metal")
    assert told in files[file]
    assert problems(files) == []
    assert from_dict(as_dict(deployment)) == deployment
    assert deployment.drafts == Drafts(2, 1.4)


@pytest.mark.parametrize(("engine", "tokens"), [("vllm", 4021 + 2 * 21), ("trtllm", 4064), ("sglang", 4032)])
def test_mixed_step_has_room_for_the_drafts_that_count(engine: str, tokens: int):
    assert _deployment(engine, disaggregated=False).roles[0].max_step_tokens.deployed == tokens


def test_decode_limit_below_the_drafts_is_found():
    record = as_dict(_deployment("trtllm"))
    record["roles"][1]["max_step_tokens"] = {"simulated": 64, "deployed": 64, "reason": ""}
    assert "fewer tokens in a step" in "; ".join(problems(render(from_dict(record), "dynamo")))


def test_files_without_the_drafts_of_the_record_are_found():
    files = render(_deployment("sglang"), "dynamo")
    files["deploy.yaml"] = files["deploy.yaml"].replace('          - "--speculative-num-steps"\n          - "2"\n', "")
    assert "--speculative-num-steps is False, not 2" in "; ".join(problems(files))


def test_depth_of_the_checkpoint_is_taken_when_asked():
    assert _deployment("vllm", "auto").drafts == Drafts(1, 1.4)
    assert _deployment("vllm", 0).drafts is None


def test_checkpoint_without_drafting_layers_is_refused():
    with pytest.raises(InputError, match="nextn"):
        _deployment("vllm", model="Qwen/Qwen3-235B-A22B-FP8")
