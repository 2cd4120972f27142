# SPDX-License-Identifier: Apache-2.0
"""`--report` on the command line: a page or text beside the answer, the same exit code, nothing run for a bad file."""

import re
from pathlib import Path

import pytest

from aicjax.cli.app import run

pytest.importorskip("plotly")

POINT = "estimate --model Qwen/Qwen3-8B --system h200_sxm --isl 1000 --osl 100 --batch-size 4"
SMALL = "search --model Qwen/Qwen3-8B --system h200_sxm --total-gpus 1 --serving-mode agg --isl 1000 --osl 100 --quiet"
FLEET = "fleet whatif --workload azure --rates 20,40 --replica a100 --quiet"
EXPERIMENTS = """
exps: [one, other]
one: {serving_mode: agg, model_path: Qwen/Qwen3-8B, system_name: h200_sxm, total_gpus: 1, isl: 1000, osl: 100}
other: {serving_mode: agg, model_path: Qwen/Qwen3-8B, system_name: h200_sxm, total_gpus: 2, isl: 1000, osl: 100}
"""


def _title(path: Path) -> str:
    found = re.search(r"<h1[^>]*>(.*?)</h1>", path.read_text(encoding="utf-8"))
    assert found
    return found.group(1)


@pytest.mark.parametrize(
    ("line", "title", "parts"),
    [
        (POINT, "Qwen/Qwen3-8B: ", ["Where the time goes", "What moves the answer", "aicjax estimate"]),
        (SMALL, "Deploy 1 replica of tp1, batch ", ["--deployment-target dynamo", "What being surer costs"]),
        (
            f"{SMALL} --ttft 0.1",
            "No configuration keeps the limits",
            ["against a TTFT limit of 0.1 ms", "What is nearest"],
        ),
        (FLEET, "", ["USD a year", "aicjax fleet whatif"]),
    ],
)
def test_a_page_is_written_beside_the_answer(
    line: str, title: str, parts: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    path = tmp_path / "report.html"
    code = run([*line.split(), "--report", str(path)])
    assert code == (3 if "--ttft 0.1" in line else 0)
    assert f"report in {path}" in capsys.readouterr().err
    assert _title(path).startswith(title)
    text = path.read_text(encoding="utf-8")
    assert [part for part in parts if part not in text] == []


def test_experiments_are_beside_each_other(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "exp.yaml").write_text(EXPERIMENTS, encoding="utf-8")
    path = tmp_path / "report.html"
    assert run(["exp", "--yaml-path", str(tmp_path / "exp.yaml"), "--quiet", "--report", str(path)]) == 0
    assert _title(path).split(":")[0] in ("one", "other")
    assert "The experiments beside each other" in path.read_text(encoding="utf-8")
    capsys.readouterr()


def test_text_is_what_the_terminal_shows_and_more(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "report.txt"
    assert run([*SMALL.split(), "--report", str(path)]) == 0
    shown = capsys.readouterr().out
    text = path.read_text(encoding="utf-8")
    assert shown.split(":")[0] == "agg"
    assert "Best: agg" in text
    assert "for 1 % more of" in text


@pytest.mark.parametrize("line", [POINT, SMALL, FLEET, "plan --model Qwen/Qwen3-8B --system h200_sxm --isl 9 --osl 9"])
def test_a_file_that_cannot_be_written_is_one_line_before_anything_runs(
    line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    assert run([*line.split(), "--report", str(tmp_path / "missing" / "report.html")]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    assert "`report` must be in a folder that exists" in error
