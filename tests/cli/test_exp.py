# SPDX-License-Identifier: Apache-2.0
"""Experiment files from the command line: tables, JSON, files, and what goes wrong."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from aicjax.cli.app import run

SMALL = {"model_path": "Qwen/Qwen3-8B", "system_name": "h200_sxm", "osl": 100, "agg_tp_candidates": [1]}
AGG = {"serving_mode": "agg", "total_gpus": 1, **SMALL}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    content = {"relaxed": AGG, "tight": {**AGG, "tpot": 8}, "later": {**AGG, "total_gpus": None}}
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_best_of_each_is_shown_beside_the_others(file: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["cli", "exp", "--yaml-path", str(file), "--top-n", "1"]) == 0
    out, err = capsys.readouterr()
    assert err == "aicjax: experiment later is skipped: total_gpus is not stated\n"
    table = out[out.index("best of each") :]
    assert table.index("relaxed") < table.index("tight")
    assert "100%" in table


def test_saved_folders_hold_tables_and_manifests(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["exp", "--yaml-path", str(file), "--json", "--save-dir", str(tmp_path / "out")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["chosen"] == "relaxed"
    assert list(printed["experiments"]) == ["relaxed", "tight"]
    (folder,) = (tmp_path / "out").iterdir()
    assert folder.name.startswith("plan_")
    with (folder / "tight" / "best_config_topn.csv").open() as table:
        first = next(csv.DictReader(table))
    assert float(first["tpot"]) <= 8
    assert run(["search", "--json", "--from", str(folder / "tight")]) == 0
    again = json.loads(capsys.readouterr().out)["experiments"]["agg"]
    assert again["rows"] == printed["experiments"]["tight"]["experiments"]["tight"]["rows"]


def test_misspelt_key_is_one_line_and_exit_2(file: Path, capsys: pytest.CaptureFixture[str]):
    file.write_text(yaml.safe_dump({"one": {**AGG, "tpott": 16}}))
    assert run(["exp", "--yaml-path", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "plan.yaml: one.tpott" in err
    assert "the nearest is `tpot`" in err


def test_nothing_within_limits_is_exit_3(file: Path, capsys: pytest.CaptureFixture[str]):
    file.write_text(yaml.safe_dump({"one": {**AGG, "tpot": 0.5}}))
    assert run(["exp", "--yaml-path", str(file), "--quiet"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "one: " in err
