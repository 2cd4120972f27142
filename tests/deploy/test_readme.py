# SPDX-License-Identifier: Apache-2.0
"""The page beside the files: what it says, that its commands exist, and that it names the files that are there."""

import re
from pathlib import Path
from typing import Any

import pytest

from aicjax.cli.app import run
from aicjax.deploy.build import build
from aicjax.deploy.checks import problems
from aicjax.deploy.readme import README_FILE
from aicjax.deploy.record import Deployment, Site, as_dict, from_dict
from aicjax.deploy.render import render
from aicjax.deploy.targets import TARGETS
from tests.deploy.rows import INPUTS, result_row

RANGES = {"ttft_ms": [400, 472, 700], "tpot_ms": [41, 49.8, 60], "tokens_per_s_per_gpu": [250, 300, 350]}


def _deployment(
    engine: str = "vllm", changes: dict[str, Any] | None = None, *, disaggregated: bool = True, total_gpus: int = 16
) -> Deployment:
    row = result_row(engine, experts=True, disaggregated=disaggregated) | (changes or {})
    return build(row, {**INPUTS, "total_gpus": total_gpus}, site=Site(namespace="team"))


def test_page_states_limit_prediction_range_chance_and_use():
    used = {"(p)memory": 88.1, "(d)memory": 99.1, "seq/s": 8.4, "(p)seq/s/worker": 3.1, "(d)seq/s/worker": 9.4}
    deployment = _deployment(changes={"ranges": {**RANGES, "limits_met": 0.53}, **used})
    page = render(deployment, "dynamo")[README_FILE]
    assert "| TPOT | 49.8 ms | 41 to 60 ms | 50 ms |" in page
    assert "| tokens/s | 1222.3 | 4000 to 5600 |" in page
    assert "all limits are met is 53 %" in page
    assert "| decode | 1 | tp1 dp4 ep4 | 99.1 GiB | 30 % | 89 % |" in page
    assert "decode, tokens of a step: 6137 deployed, 59 simulated: room for a prompt" in page
    assert from_dict(as_dict(deployment)) == deployment


def test_page_without_ranges_says_nothing_of_them():
    page = render(_deployment(), "dynamo")[README_FILE]
    assert "| TTFT | 472 ms |  | 2000 ms |" in page
    assert "chance" not in page


@pytest.mark.parametrize("target", TARGETS)
def test_commands_that_start_it_name_the_namespace_and_no_placeholder(target: str):
    page = render(_deployment(), target)[README_FILE] if target != "kubernetes" else _kubernetes()
    commands = re.findall(r"^    ((?:kubectl|helm|bash|sbatch) .*)$", page, flags=re.MULTILINE)
    assert commands
    assert "{" not in page
    assert all(" -n team" in command for command in commands if command.startswith(("kubectl", "helm")))


def _kubernetes() -> str:
    return render(_deployment("sglang"), "kubernetes")[README_FILE]


@pytest.mark.parametrize("disaggregated", [False, True])
def test_commands_that_measure_take_their_flags(
    disaggregated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Run where there is no result: each command asks for its file, none for another flag."""
    monkeypatch.chdir(tmp_path)
    page = render(_deployment(disaggregated=disaggregated, total_gpus=32), "dynamo")[README_FILE]
    assert ("start 3 prefill and 1 decode" if disaggregated else "start 1 agg") in page
    lines = re.findall(r"^    aicjax (.*)$", page, flags=re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["measure", "measure", "calibrate"]
    for line, file in zip(lines, ("profile_export_aiperf.json", "measured.csv", "measured.csv"), strict=True):
        assert run(line.split()) == 2
        assert file in capsys.readouterr().err


def test_pipeline_parallel_results_are_not_promised():
    row = {"pp": 2, "dp": 2, "moe_ep": 2}
    page = render(_deployment(changes=row, disaggregated=False), "dynamo")[README_FILE]
    assert "not read back" in page
    assert "measure import" not in page


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("kubectl apply -n team -f deploy.yaml", "kubectl apply -f manifest.yaml", "names manifest.yaml"),
        ("- `bench.sh`", "- `bench_run.sh`", "does not list bench.sh"),
        ("- `k8s_bench.yaml`: the same script as a Job in the cluster\n", "", "does not list k8s_bench.yaml"),
    ],
)
def test_page_that_names_other_files_is_found(right: str, wrong: str, problem: str):
    files = render(_deployment(), "dynamo")
    assert right in files[README_FILE]
    assert problems(files) == []
    files[README_FILE] = files[README_FILE].replace(right, wrong)
    assert problem in "; ".join(problems(files))
    del files[README_FILE]
    assert "README.md is missing" in problems(files)
