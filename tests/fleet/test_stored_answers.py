# SPDX-License-Identifier: Apache-2.0
"""A thin sample of the fleet reference's stored answers, through the comparison that its whole files go through."""

import json
from pathlib import Path

import pytest

from benchmarks.fleet_cases import Row, read_answers, schema_of
from benchmarks.fleet_parity import compare_file, main

SAMPLES = sorted((Path(__file__).parents[1] / "references" / "fleet").glob("fleet_*.json"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_stored_answers_are_reproduced(path: Path):
    report = compare_file(path)
    assert report is not None
    assert report.rows
    assert not report.wrong(), report.worst(5)


def test_float32_answers_agree_within_its_precision():
    path = next(path for path in SAMPLES if path.stem == "fleet_latency")
    report = compare_file(path, float32=True)
    assert report is not None
    assert not report.wrong(), report.worst(5)


def test_a_changed_answer_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    answers = read_answers(next(path for path in SAMPLES if path.stem == "fleet_builder"))
    answers["profiles"] = answers["profiles"][:1]
    answers["profiles"][0]["W"] *= 1 + 1e-9
    path = tmp_path / "changed.json"  # known by its keys
    path.write_text(json.dumps(answers))
    assert main([str(path), "--show", "1"]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_files_of_another_kind_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(SystemExit, match="2"):
        main([str(path)])
    assert "must be of a schema" in capsys.readouterr().err
    assert schema_of(path, {}) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "kind", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], "exact", 0.0),
        (3, 4, "exact", float("inf")),
        (None, {"n": 1}, "exact", float("inf")),
        ([1.1], [1.0], "relative", 0.1),
        ([float("inf")], ["inf"], "relative", 0.0),
        ([1.0], ["inf"], "relative", float("inf")),
        ([float("nan")], [1.0], "relative", float("inf")),
        ([0.5], [0.0], "absolute", 0.5),
        ([0.5], [0.0], "relative", float("inf")),
        ([1.0, 1.0], [1.0], "relative", float("inf")),
    ],
)
def test_errors_of_rows(ours: object, theirs: object, kind: str, error: float):
    assert Row("row", ours, theirs, kind).error() == pytest.approx(error)  # pyright: ignore[reportArgumentType]
