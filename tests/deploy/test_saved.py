# SPDX-License-Identifier: Apache-2.0
"""Rows of saved searches: files that were edited or broken are refused in a line, and nothing is written."""

import csv
import json
from pathlib import Path

import pytest

from aicjax._results import InputError
from aicjax.cli.app import run
from aicjax.report.saved import read_row
from tests.deploy.rows import SEARCHED, result_row


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with the row of an aggregated and of a disaggregated deployment."""
    folder = tmp_path / "run"
    for experiment in ("agg", "disagg"):
        row = result_row("vllm", experts=False, disaggregated=experiment == "disagg")
        path = folder / experiment / "best_config_topn.csv"
        path.parent.mkdir(parents=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, row)
            table.writeheader()
            table.writerow(row)
    manifest = {"format": 1, "inputs": SEARCHED, "chosen": "disagg"}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def _edit(folder: Path, column: str, cell: str | None) -> None:
    path = folder / "agg" / "best_config_topn.csv"
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    row = {name: value for name, value in row.items() if name != column} | ({} if cell is None else {column: cell})
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, row)
        table.writeheader()
        table.writerow(row)


def test_best_row_is_that_of_the_manifest(saved: Path):
    experiment, row, inputs = read_row(saved, None, 1)
    assert (experiment, row["(p)workers"], row["ranges"]) == ("disagg", "3", None)
    assert (inputs["isl"], inputs["constants"]) == (4000, "silicon")


@pytest.mark.parametrize(
    ("column", "cell", "problem"),
    [
        ("bs", None, "it has no column bs"),
        ("backend", None, "it has no column backend"),
        ("tp", "nan", "tp is 'nan', not a whole number"),
        ("tp", "2.0", "tp is '2.0', not a whole number"),
        ("bs", "0", "bs is '0', not a whole number from 1"),
        ("bs", "9" * 30, "not a whole number from 1 to"),
        ("ttft", "inf", "ttft is 'inf', not a number above 0"),
        ("ttft", "", "ttft is '', not a number above 0"),
        ("tokens/s", "-1", "tokens/s is '-1', not a number above 0"),
        ("num_tokens", "1.5", "num_tokens is '1.5', not a whole number"),
        ("memory", "abc", "memory is 'abc', not a number from 0"),
        ("model", "Qwen/Qwen3-8B", "model is 'Qwen/Qwen3-8B', that of the manifest 'Qwen/Qwen3-32B'"),
        ("isl", "3000", "isl is '3000', that of the manifest 4000"),
        ("tp", "2", "num_total_gpus is 4, its workers have 2"),
        ("moe_ep", "2", "experts over 2 GPUs of the 4 of a stage"),
    ],
)
def test_edited_cell_is_refused_by_name(saved: Path, column: str, cell: str | None, problem: str):
    _edit(saved, column, cell)
    with pytest.raises(InputError, match="from") as refused:
        read_row(saved, "agg", 1)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("agg/best_config_topn.csv", b"\xff\xfe"),
        ("agg/best_config_topn.csv", b"model\n1\n"),
        ("agg/best_config_topn.csv", b""),
        ("agg/ranges.json", b"\xff"),
        ("agg/ranges.json", b"[]"),
        ("agg/ranges.json", b"[1]"),
        ("agg/ranges.json", b'[{"ttft_ms": [1], "tpot_ms": null, "tokens_per_s_per_gpu": [NaN], "limits_met": null}]'),
        ("agg/ranges.json", b'[{"ttft_ms": [2, 1], "tpot_ms": null, "tokens_per_s_per_gpu": [1], "limits_met": null}]'),
        ("manifest.json", b"\xff"),
        ("manifest.json", b"[" * 100_000),
        ("manifest.json", b'{"format": 1, "inputs": []}'),
        ("manifest.json", b'{"format": 2, "inputs": {}}'),
        ("manifest.json", b'{"format": 1, "inputs": {}}'),
        ("manifest.json", json.dumps({"format": 1, "inputs": {**SEARCHED, "ttft": "x"}}).encode()),
        ("manifest.json", json.dumps({"format": 1, "inputs": {**SEARCHED, "total_gpus": None}}).encode()),
    ],
)
def test_broken_file_is_one_line_and_nothing_is_written(
    saved: Path, file: str, content: bytes, capsys: pytest.CaptureFixture[str]
):
    (saved / file).write_bytes(content)
    assert run(["deploy", "--from", str(saved), "--experiment", "agg", "--target", "dynamo"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(saved.rglob("deployment.json"))


@pytest.mark.parametrize("experiment", ["", "../run/agg", "agg/../agg", "afd"])
def test_experiment_is_a_name_of_the_folder(saved: Path, experiment: str):
    with pytest.raises(InputError, match="experiment"):
        read_row(saved, experiment, 1)


def test_all_targets_or_none_are_written(saved: Path, capsys: pytest.CaptureFixture[str]):
    """A container as a file is for Slurm alone, so that the second target fails its check."""
    flags = ["deploy", "--from", str(saved), "--target", "slurm,dynamo", "--image", "/containers/vllm.sqsh"]
    assert run(flags) == 2
    assert "image '/containers/vllm.sqsh'" in capsys.readouterr().err
    assert not list(saved.rglob("deployment.json"))
    assert run([*flags[:4], "slurm", *flags[5:]]) == 0
