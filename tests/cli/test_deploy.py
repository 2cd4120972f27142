# SPDX-License-Identifier: Apache-2.0
"""`aicjax deploy`: from a saved run to checked files, and refusals that write nothing."""

import csv
import json
from pathlib import Path

import pytest

from aicjax.cli.app import run
from aicjax.deploy.targets import TARGETS
from tests.deploy.rows import SEARCHED, result_row


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a run with one experiment of one row."""
    row = result_row("vllm", experts=False, disaggregated=False)
    (tmp_path / "agg").mkdir()
    with (tmp_path / "agg" / "best_config_topn.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "chosen": "agg", "inputs": SEARCHED}))
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


def test_several_targets_are_written_and_reported_as_json(saved: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["deploy", "--from", str(saved), "--target", "dynamo, llm-d-helm"]) == 0
    folders = [str(saved / "agg" / "top1" / target) for target in ("dynamo", "llm-d-helm")]
    assert capsys.readouterr().out.split() == folders
    (Path(folders[1]) / "llm-d-values.yaml").write_text("a: null", encoding="utf-8")
    assert run(["deploy", "check", str(saved), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert [each["folder"] for each in report["deployments"]] == folders
    assert [each["passed"] for each in report["deployments"]] == [True, False]
    assert report["passed"] is False
    assert any("placeholder null" in problem for problem in report["deployments"][1]["problems"])


def test_ranges_of_a_saved_row_are_in_the_record(saved: Path):
    quantiles = {"ttft_ms": [400, 472, 700], "tpot_ms": [41, 49.8, 60], "tokens_per_s_per_gpu": [250, 300, 350]}
    known = [{**quantiles, "request_latency_ms": [1, 2, 3], "limits_met": 0.53, "best_is_better": None}]
    (saved / "agg" / "ranges.json").write_text(json.dumps(known), encoding="utf-8")
    assert run(["deploy", "--from", str(saved), "--target", "kubernetes"]) == 0
    record = json.loads((saved / "agg" / "top1" / "kubernetes" / "deployment.json").read_text(encoding="utf-8"))
    assert record["prediction"]["ranges"] == {
        "ttft_ms": [400, 700],
        "tpot_ms": [41, 60],
        "tokens_per_s": [4000, 5600],
        "limits_met": 0.53,
    }


def test_search_writes_the_targets_that_carry_its_rows_and_names_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    line = (
        "search --model Qwen/Qwen3-32B-FP8 --system h200_sxm --backend trtllm --total-gpus 8 --isl 4000 --osl 500 "
        "--ttft 900 --tpot 30 --serving-mode agg --top-n 1 --quiet --deployment-target llm-d-helm,kubernetes,slurm"
    )
    assert run([*line.split(), "--save-dir", str(tmp_path)]) == 2
    assert "not deployed: agg, row 1: Argument `backend` must be vllm or sglang" in capsys.readouterr().err
    (run_folder,) = tmp_path.iterdir()
    assert sorted(path.name for path in (run_folder / "agg" / "top1").iterdir()) == ["kubernetes", "slurm"]
    record = json.loads((run_folder / "agg" / "top1" / "slurm" / "deployment.json").read_text(encoding="utf-8"))
    low, high = record["prediction"]["ranges"]["ttft_ms"]
    assert low < record["prediction"]["ttft_ms"] < high
    assert 0 < record["prediction"]["ranges"]["limits_met"] < 1
    assert 0 < record["roles"][0]["use"]["memory_headroom"] < 1
    steps = json.loads((run_folder / "agg" / "operators.json").read_text(encoding="utf-8"))[0]
    assert [step["step"] for step in steps] == ["mixed step", "decode step"]
    assert "interpolated" in {operator["provenance"] for step in steps for operator in step["operators"]}
    assert run(["deploy", "check", str(tmp_path)]) == 0


@pytest.mark.parametrize("flag", ["search --help", "deploy --help"])
def test_help_names_every_target(flag: str, capsys: pytest.CaptureFixture[str]):
    run(flag.split())
    shown = capsys.readouterr().out
    assert "--deployment-target" in shown
    if flag.startswith("search"):
        assert [target for target in TARGETS if target not in " ".join(shown.split())] == []


@pytest.mark.parametrize(
    "flags",
    [
        "--target nomad",
        "--target dynamo,nomad",
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
