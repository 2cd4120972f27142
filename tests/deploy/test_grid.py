# SPDX-License-Identifier: Apache-2.0
"""Every target, engine, kind of model, way of serving and rule set: the files pass every check."""

import itertools

import pytest

from aicjax._results import InputError
from aicjax.deploy.build import build, graph_sizes, rounded_up
from aicjax.deploy.checks import problems
from aicjax.deploy.record import as_dict, from_dict
from aicjax.deploy.render import render
from aicjax.deploy.settings import load_rules
from aicjax.deploy.targets import TARGETS
from tests.deploy.rows import INPUTS, result_row

GRID = list(
    itertools.product(TARGETS, ("vllm", "sglang", "trtllm"), (False, True), (False, True), ("production", "benchmark"))
)


@pytest.mark.parametrize(("target", "engine", "experts", "disaggregated", "rules"), GRID)
def test_files_pass_every_check_and_are_the_same_twice(
    target: str, engine: str, experts: bool, disaggregated: bool, rules: str
):
    row = result_row(engine, experts=experts, disaggregated=disaggregated)
    deployment = build(row, INPUTS, rules=rules)
    files = render(deployment, target)
    assert problems(files) == []
    assert files == render(build(row, INPUTS, rules=rules), target)
    assert from_dict(as_dict(deployment)) == deployment
    assert deployment.gpus == 16
    decode = deployment.roles[-1]
    assert decode.max_running.simulated == decode.max_running.deployed == (59 if disaggregated else 21)
    nodes = [name for name in files if name.startswith("run_node")]
    assert len(nodes) == (2 if target == "bare-metal" else 0)


def test_token_limits_are_block_multiples_and_say_so():
    deployment = build(result_row("trtllm", experts=False, disaggregated=False), INPUTS)
    limit = deployment.roles[0].max_step_tokens
    assert (limit.simulated, limit.deployed) == (4021, 4032)
    assert "rounded up" in limit.reason
    assert rounded_up(4000 + 1500 + 1000, 32) == 6528


def test_vllm_limits_are_the_simulated_ones_exactly():
    limit = build(result_row("vllm", experts=False, disaggregated=False), INPUTS).roles[0].max_step_tokens
    assert (limit.simulated, limit.deployed, limit.reason) == (4021, 4021, "")


@pytest.mark.parametrize("rules", ["production", "benchmark"])
@pytest.mark.parametrize("batch", [1, 2, 7, 8, 59, 512])
def test_graph_sizes_ascend_to_the_batch(batch: int, rules: str):
    sizes = graph_sizes(batch, load_rules(rules))
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] == batch


@pytest.mark.parametrize(
    ("change", "inputs"),
    [
        ({}, {"nextn": 2}),
        ({"(e)workers": 1}, {}),
        ({"cp": 2}, {}),
        ({"kvcache": "int8"}, {}),
        ({}, {"gemm_quant_mode": "fp8"}),
        ({}, {"total_gpus": 2}),
        ({"moe_tp": 2, "moe_ep": 2}, {}),
    ],
)
def test_what_the_files_cannot_say_is_refused(change: dict, inputs: dict):
    row = {**result_row("vllm", experts=False, disaggregated=False), **change}
    with pytest.raises(InputError):
        build(row, {**INPUTS, **inputs})


def test_unknown_target_is_refused():
    with pytest.raises(InputError, match="bare-metal, dynamo"):
        render(build(result_row("trtllm", experts=False, disaggregated=False), INPUTS), "llm-d-helm")
