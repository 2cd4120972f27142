# SPDX-License-Identifier: Apache-2.0
"""`--explain` from the command line: below the answer as a table, whole as JSON."""

import json

import pytest

from aicjax.cli.app import run

MODEL = "--model Qwen/Qwen3-32B-FP8 --system h200_sxm --isl 4000 --osl 500 --constants reference"
POINT = f"estimate {MODEL} --tp 4 --batch-size 16 --explain"


def _run(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(line.split()) == 0
    return capsys.readouterr().out


def test_point(capsys: pytest.CaptureFixture[str]):
    table = _run(POINT, capsys).partition("for 1 % more of")[2].splitlines()
    rows = [line.rsplit(maxsplit=6) for line in table[1:-1]]
    found = json.loads(_run(f"{POINT} --json", capsys))["sensitivities"]
    assert [row[0].split()[-1] for row in rows] == [each["name"] for each in found if max(_sizes(each)) >= 0.01]
    assert [float(row[1]) for row in rows] == pytest.approx(
        [each["throughput"] for each in found[: len(rows)]], abs=0.006
    )
    assert table[-1] == f"{len(found) - len(rows)} others move each by less than 0.01 %"


def _sizes(each: dict) -> list[float]:
    return [abs(each[figure] or 0.0) for figure in ("throughput", "ttft", "tpot")]


def test_best_row_of_a_search(capsys: pytest.CaptureFixture[str]):
    line = f"search {MODEL} --total-gpus 8 --ttft 1000 --tpot 20 --serving-mode disagg --top-n 2 --explain"
    out = _run(line, capsys)
    assert out.index("Best: disagg") < out.index("  for 1 % more of") < out.index("X chosen")
    rows = json.loads(_run(f"{line} --json", capsys))["experiments"]["disagg"]["rows"]
    assert len(rows) == 2
    shown = [each for each in rows[0]["sensitivities"] if each["kind"] == "hardware" and abs(each["throughput"]) > 0.1]
    assert shown and all(f"h200_sxm {each['name']}" in out for each in shown)


def test_points_that_are_not_modelled_say_so(capsys: pytest.CaptureFixture[str]):
    line = f"{POINT} --estimate-mode afd --n-a-nodes 1 --n-f-nodes 1 --a-batch-size 32 --tp 8 --batch-size 4"
    assert "sensitivities: not for attention and feed-forward apart" in _run(line, capsys)
    assert json.loads(_run(f"{line} --json", capsys))["sensitivities"] is None
