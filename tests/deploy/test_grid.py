# SPDX-License-Identifier: Apache-2.0
"""Every target, engine, kind of model, way of serving, number of nodes and rule set: the files pass every check."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import pytest

from aicjax._results import InputError
from aicjax.deploy.build import build, graph_sizes, rounded_up
from aicjax.deploy.checks import problems
from aicjax.deploy.record import Deployment, Limit, as_dict, from_dict
from aicjax.deploy.render import render
from aicjax.deploy.settings import load_rules
from aicjax.deploy.targets import TARGETS
from tests.deploy.rows import INPUTS, result_row, wide_row

ENGINES, NODES, RULES = ("vllm", "sglang", "trtllm"), (1, 2, 4), ("production", "benchmark")
NODE_GPUS = 8


class Refusal(NamedTuple):
    """Cells of the grid that no files are written for; None stands for every value."""

    target: str
    engine: str | None
    experts: bool | None
    disaggregated: bool | None
    wide: bool | None
    reason: str


# A cell that is refused and not in this table fails the test, and so does an entry that refuses nothing.
REFUSALS = (
    Refusal("llm-d-helm", "trtllm", None, None, None, "llm-d has no other engine"),
    Refusal("llm-d-kustomize", "trtllm", None, None, None, "llm-d has no other engine"),
    Refusal("llm-d-helm", "sglang", None, None, True, "those of a node, for llm-d-helm"),
    Refusal("llm-d-helm", "vllm", False, None, True, "those of a node, for llm-d-helm"),
    Refusal("llm-d-kustomize", None, None, None, True, "those of a node, for llm-d-kustomize"),
    Refusal("kubernetes", "vllm", None, True, None, "has no router"),
    Refusal("kubernetes", "trtllm", None, None, True, "start its MPI world"),
    Refusal("bare-metal", "trtllm", None, None, True, "start its MPI world"),
)


def _row(engine: str, experts: bool, disaggregated: bool, nodes: int, wide: bool) -> tuple[dict[str, Any], int]:
    """A row, and the GPUs of as many nodes: workers of four GPUs, or one worker of each kind over all nodes."""
    if wide:
        row = wide_row(engine, nodes * NODE_GPUS, experts=experts, disaggregated=disaggregated)
        return row, row["num_total_gpus"]
    row = result_row(engine, experts=experts, disaggregated=disaggregated)
    if disaggregated and nodes == 1:
        row |= {"(p)workers": 1, "(d)workers": 1, "num_total_gpus": NODE_GPUS}
    return row, nodes * NODE_GPUS


def _built(engine: str, experts: bool, disaggregated: bool, nodes: int, wide: bool, rules: str) -> Deployment:
    row, gpus = _row(engine, experts, disaggregated, nodes, wide)
    return build(row, {**INPUTS, "total_gpus": gpus}, rules=rules)


def _refusals(target: str, engine: str, experts: bool, disaggregated: bool, wide: bool) -> list[Refusal]:
    cell = (target, engine, experts, disaggregated, wide)
    return [
        entry
        for entry in REFUSALS
        if all(stated is None or stated == value for stated, value in zip(entry[:5], cell, strict=True))
    ]


@pytest.mark.parametrize("disaggregated", [False, True])
@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("target", TARGETS)
def test_files_of_the_grid_pass_every_check_and_are_the_same_twice(
    target: str, engine: str, experts: bool, disaggregated: bool
):
    for nodes, wide, rules in itertools.product(NODES, (False, True), RULES):
        if wide and nodes == 1:
            continue
        deployment = _built(engine, experts, disaggregated, nodes, wide, rules)
        assert from_dict(as_dict(deployment)) == deployment
        assert deployment.gpus == nodes * NODE_GPUS * (2 if wide and disaggregated else 1)
        if expected := _refusals(target, engine, experts, disaggregated, wide):
            with pytest.raises(InputError) as refused:
                render(deployment, target)
            assert any(entry.reason in str(refused.value) for entry in expected)
            continue
        files = render(deployment, target)
        assert problems(files) == [], (nodes, wide, rules)
        assert files == render(_built(engine, experts, disaggregated, nodes, wide, rules), target)


@pytest.mark.parametrize("entry", REFUSALS)
def test_refusals_of_the_table_are_of_this_target_alone(entry: Refusal):
    """An entry that another one makes idle, or whose target takes the cell, would hide a change."""
    cells = itertools.product(ENGINES, (False, True), (False, True), (False, True))
    alone = [cell for cell in cells if _refusals(entry.target, *cell) == [entry]]
    assert entry.target in TARGETS
    assert alone


def test_limits_deployed_are_the_simulated_ones():
    for engine, disaggregated in itertools.product(ENGINES, (False, True)):
        role = _built(engine, False, disaggregated, 2, False, "production").roles[-1]
        assert role.max_running.simulated == role.max_running.deployed == (59 if disaggregated else 21)


def test_token_limits_are_block_multiples_and_say_so():
    deployment = build(result_row("trtllm", experts=False, disaggregated=False), INPUTS)
    limit = deployment.roles[0].max_step_tokens
    assert (limit.simulated, limit.deployed) == (4021, 4032)
    assert "rounded up" in limit.reason
    assert rounded_up(4000 + 1500 + 1000, 32) == 6528


@pytest.mark.parametrize("disaggregated", [False, True])
def test_prompt_that_is_not_split_has_room_before_its_prefix_is_cached(disaggregated: bool):
    """TensorRT-LLM refuses a prompt longer than a step unless told to split it: no prefix would ever be cached."""
    row = {**result_row("trtllm", experts=False, disaggregated=disaggregated), "num_tokens": 1021}
    inputs = {**INPUTS, "prefix": 3000}
    first = build(row, inputs, rules="benchmark").roles[0]
    assert first.max_step_tokens.deployed == 4064
    assert "before its prefix is cached" in first.max_step_tokens.reason
    assert build(row, inputs, rules="production").roles[0].max_step_tokens.deployed == 1024
    short = dataclasses.replace(first, max_step_tokens=Limit(1024, 1024))
    deployment = build(row, inputs, rules="benchmark")
    found = problems(render(dataclasses.replace(deployment, roles=(short, *deployment.roles[1:])), "dynamo"))
    assert any("a prompt is longer than a step" in problem for problem in found)


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


@pytest.mark.parametrize("disaggregated", [False, True])
def test_formats_that_the_checkpoint_has_anyway_may_be_stated(disaggregated: bool):
    row = result_row("vllm", experts=True, disaggregated=disaggregated)
    inputs = {**INPUTS, "gemm_quant_mode": "fp8_block", "decode_moe_quant_mode": "fp8_block"}
    assert build(row, inputs) == build(row, INPUTS)
    with pytest.raises(InputError, match="fp8_block, as the checkpoint has"):
        build(row, {**inputs, "moe_quant_mode" if not disaggregated else "decode_moe_quant_mode": "bfloat16"})


def test_unknown_target_is_refused():
    with pytest.raises(InputError, match="bare-metal, "):
        render(build(result_row("trtllm", experts=False, disaggregated=False), INPUTS), "nomad")
