# SPDX-License-Identifier: Apache-2.0
"""The table of both grids: a search of the sample gains, and one whose answer is altered for the worse is noticed."""

import json
from pathlib import Path

import pytest

from benchmarks import grids

REFERENCES = Path(__file__).parents[1] / "references"


@pytest.fixture
def one_search(tmp_path: Path) -> Path:
    """A directory with one search of the sample, aggregated alone."""
    specifications = json.loads((REFERENCES / "e2e_specs.json").read_text())
    chosen = [entry for entry in specifications if entry["search_id"].startswith("p01")]
    (tmp_path / "e2e_specs.json").write_text(json.dumps([{**chosen[0], "serving_mode": "agg"}]))
    return tmp_path


@pytest.mark.parametrize("form", [[], ["--markdown"]])
def test_both_grids_stand_in_one_line(one_search, form, capsys):
    assert grids.main(["--from", str(one_search), "--repeats", "1", *form]) == 0
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if "p01" in line]
    for part in ("426.90", "460.32", "+7.8", "batch 19 instead of 16"):
        assert part in line
    assert "1 of 1 better" in out


def test_worse_answer_is_an_error(one_search, monkeypatch, capsys):
    monkeypatch.setattr(grids, "FULL", "reference")
    monkeypatch.setattr(grids, "COARSE", "full")
    assert grids.main(["--from", str(one_search), "--repeats", "1"]) == 1
    assert "-7.3" in capsys.readouterr().out


def test_sample_has_what_a_table_needs():
    assert {entry["kind"] for entry in json.loads((REFERENCES / "e2e_specs.json").read_text())} == {
        "default",
        "recommend",
    }
