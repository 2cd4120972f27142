# SPDX-License-Identifier: Apache-2.0
"""`aicjax deploy`: from a saved run to checked files, and refusals that write nothing."""

import csv
import json
from pathlib import Path

import pytest

from aicjax.cli.app import run
from tests.deploy.rows import INPUTS, result_row


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a run with one experiment of one row."""
    row = result_row("vllm", experts=False, disaggregated=False)
    (tmp_path / "agg").mkdir()
    with (tmp_path / "agg" / "best_config_topn.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "chosen": "agg", "inputs": INPUTS}))
    return tmp_path


@pytest.mark.parametrize(("target", "file"), [("bare-metal", "run_node1.sh"), ("dynamo", "deploy.yaml")])
def test_row_becomes_files_that_pass(saved: Path, target: str, file: str, capsys: pytest.CaptureFixture[str]):
    assert run(["deploy", "--from", str(saved), "--row", "1", "--target", target, "--namespace", "my-ns"]) == 0
    folder = saved / "agg" / "top1" / target
    assert capsys.readouterr().out.strip() == str(folder)
    assert (folder / file).is_file()
    assert run(["deploy", "check", str(saved)]) == 0
    (folder / "bench.sh").write_text("if", encoding="utf-8")
    assert run(["deploy", "check", str(saved)]) == 2


@pytest.mark.parametrize(
    "flags",
    [
        "--target llm-d-helm",
        "--target dynamo --namespace my_ns",
        "--target dynamo --row 2",
        "--target dynamo --experiment disagg",
        "--target dynamo --rules fast",
        "",
    ],
)
def test_refusal_is_one_line_and_writes_nothing(saved: Path, flags: str, capsys: pytest.CaptureFixture[str]):
    assert run(["deploy", "--from", str(saved), *flags.split()]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (saved / "agg" / "top1").exists()


def test_target_of_a_search_needs_a_folder(capsys: pytest.CaptureFixture[str]):
    assert run("search --model m --system h200_sxm --total-gpus 8 --deployment-target dynamo".split()) == 2
    assert "--save-dir" in capsys.readouterr().err
