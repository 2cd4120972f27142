# SPDX-License-Identifier: Apache-2.0
"""`aicjax calibrate --anchor` from the command line; predictions are made up."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from aicjax.calibrate import predict as predictions
from aicjax.calibrate.levels import Components
from aicjax.calibrate.measurements import Measurements
from aicjax.calibrate.spread import NORMAL, Spread, as_plain
from aicjax.cli import app
from aicjax.constants import levels

TABLE = """model,system,backend,tp,isl,osl,concurrency,ttft_ms,tpot_ms
maker/model,h200_sxm,trtllm,4,4000,500,16,150,12
maker/model,h200_sxm,trtllm,2,4000,500,16,150,12
"""


@pytest.fixture(autouse=True)
def _predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every server is predicted to take 100 and 10 ms; a concurrency of 99 has no prediction."""

    def predict(rows: Measurements, constants: str) -> predictions.Prediction:
        known = rows.concurrency != 99
        ttft_ms, tpot_ms = np.where(known, 100.0, np.nan), np.where(known, 10.0, np.nan)
        attempt, reason = np.where(known, "SILICON", ""), np.where(known, "", "no such table")
        return predictions.Prediction(ttft_ms, tpot_ms, tpot_ms, tpot_ms, attempt, reason)

    monkeypatch.setattr(predictions, "predict", predict)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    part, tails = np.eye(2)[None] * 0.04, np.tile(NORMAL, (2, 1))
    spread = Spread(Components(part, part, part), tails, tails, 0 * part, ("trtllm/agg",))
    path = tmp_path / "base.yaml"
    path.write_text(yaml.safe_dump({"base": "reference", "fit": {"spread": as_plain(spread)}}))
    return path


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text(TABLE)
    return path


def _run(*arguments: object) -> int:
    return app.run(["calibrate", *map(str, arguments)])


def test_levels_are_printed_and_written(base: Path, measured: Path, tmp_path: Path, capsys):
    out = tmp_path / "mine.yaml"
    assert _run("--anchor", measured, "--constants", base, "--out", out) == 0
    text = capsys.readouterr().out
    assert "maker/model on h200_sxm, trtllm, 2 measured: TTFT x 1.2" in text
    assert "before" in text and "by the other measurements" in text
    level = levels(str(out))["maker/model", "h200_sxm", "trtllm"]
    assert 1.0 < level.ttft_level < 1.5 and 1.0 < level.tpot_level < 1.2


def test_json_holds_the_same(base: Path, measured: Path, capsys):
    assert _run("--anchor", measured, "--constants", base, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["levels"][0]["measurements"] == 2
    assert found["after"]["ttft"]["mape"] < found["before"]["ttft"]["mape"]


def test_constants_without_a_spread_are_refused_in_one_line(measured: Path, capsys):
    assert _run("--anchor", measured, "--constants", "reference") == 2
    error = capsys.readouterr().err
    assert "fitted to measured servers" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda text: text.replace("ttft_ms", "first_ms"), 2, "column ttft_ms is missing"),
        (lambda text: text.splitlines()[0] + "\n", 2, "no rows"),
        (lambda text: text.replace(",16,", ",99,"), 2, "no such table"),
    ],
)
def test_a_table_that_says_nothing_is_refused(base: Path, measured: Path, capsys, change, code: int, said: str):
    measured.write_text(change(measured.read_text()))
    assert _run("--anchor", measured, "--constants", base) == code
    assert said in capsys.readouterr().err


def test_an_output_that_is_no_constants_file_is_refused(base: Path, measured: Path, tmp_path: Path, capsys):
    assert _run("--anchor", measured, "--constants", base, "--out", tmp_path / "mine.txt") == 2
    assert ".yaml" in capsys.readouterr().err
