# SPDX-License-Identifier: Apache-2.0
"""Searches, recommendations, estimates and support from the command line, on the packaged measurements."""

import json
from pathlib import Path

import pytest

from aicjax.cli.app import run

MODEL = "--model Qwen/Qwen3-32B-FP8 --system h200_sxm --backend trtllm"
LOAD = "--isl 4000 --osl 500 --prefix 500"
STORED = "--compat reference"  # for answers that are those of AIConfigurator
DEMO = f"search {MODEL} --total-gpus 32 {LOAD} --ttft 300 --tpot 10 {STORED} --grid full"


def _run(line: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    code = run([*line.split(), *more])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_demo_finds_the_known_answer(capsys: pytest.CaptureFixture[str]):
    code, out, err = _run(DEMO, capsys)
    assert (code, err) == (0, "")
    assert "Best: disagg, 572.66 tokens/s/gpu, 1.24x the best agg (460.32)" in out
    assert "1 replica of 5 x tp4 b1 prefill + 3 x tp4 b64 decode, 32 GPUs" in out
    gain = "disagg +0.0 % over the coarse grid (572.66); agg +7.8 % (426.90), from batch 19 instead of 16"
    assert f"  full grid: {gain}\n" in out
    assert "X chosen" in out


def test_coarse_grid_finds_what_aiconfigurator_does(capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run(DEMO, capsys, "--grid", "reference")
    assert code == 0
    assert "Best: disagg, 572.66 tokens/s/gpu, 1.34x the best agg (426.90)" in out
    assert " grid: " not in out


def test_gain_over_the_coarse_grid_is_in_the_json(capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run(DEMO, capsys, "--json")
    assert code == 0
    content = json.loads(out)
    gain = content["experiments"]["agg"]["grid_gain"]
    assert (gain["grid"], gain["base"], gain["change"]) == ("full", "reference", "batch 19 instead of 16")
    assert gain["percent"] == pytest.approx(100 * (460.322 / 426.904 - 1))
    assert gain["base_row"]["bs"] == 16
    assert content["grid_gain"]["percent"] == 0
    assert content["inputs"]["grid"] == "full"


def test_command_line_of_aiconfigurator_works_after_the_program_name(capsys: pytest.CaptureFixture[str]):
    line = (
        "cli default --model-path Qwen/Qwen3-32B-FP8 --system h200_sxm --backend trtllm --perf-db-version current "
        f"--total-gpus 32 {LOAD} --ttft 300 --tpot 10 --top-n 2 --serving-mode agg --database-mode SILICON --quiet "
        f"{STORED} --grid full"
    )
    code, out, _ = _run(line, capsys)
    assert code == 0
    assert out == "agg: 460.32 tokens/s/gpu; 8 x (tp4 b19) on 32 GPUs, TTFT 278.91 ms, TPOT 9.76 ms\n"


def test_saved_run_is_repeated_by_its_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, first, err = _run(DEMO, capsys, "--json", "--save-dir", str(tmp_path))
    assert code == 0
    (folder,) = tmp_path.iterdir()
    assert str(folder) in err
    code, again, err = _run("search --json --from", capsys, str(folder))
    assert (code, err) == (0, "")
    first, again = json.loads(first), json.loads(again)
    assert first["experiments"] == again["experiments"]
    assert again["inputs"] == {**first["inputs"], "backend_version": "1.3.0rc20"}
    code, other, _ = _run("search --json --tpot 30 --from", capsys, str(folder))
    assert json.loads(other)["inputs"]["tpot"] == 30


def test_changed_data_are_announced(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    _run(DEMO, capsys, "--quiet", "--serving-mode", "agg", "--save-dir", str(tmp_path))
    (manifest,) = tmp_path.rglob("manifest.json")
    content = json.loads(manifest.read_text())
    content["hashes"]["database"] = "other"
    manifest.write_text(json.dumps(content))
    code, _, err = _run("search --quiet --from", capsys, str(manifest))
    assert code == 0
    assert err == "aicjax: changed since the manifest was written: database\n"


@pytest.mark.parametrize(
    ("limits", "binding"),
    [("--ttft 30 --tpot 10", "isolated prefill time"), ("--ttft 300 --tpot 1", "TPOT, limit 1 ms")],
)
@pytest.mark.parametrize("form", ["--quiet", "--json"])
def test_nothing_feasible_is_exit_3(limits: str, binding: str, form: str, capsys: pytest.CaptureFixture[str]):
    code, out, err = _run(f"search {MODEL} --total-gpus 32 {LOAD} {limits} {form}", capsys)
    assert code == 3
    assert binding in err
    assert "Nearest: " in err
    assert "%" in err
    assert err.count("\n") == 1
    if form == "--json":
        assert json.loads(out)["experiments"]["agg"]["meets_target"] is False
    else:
        assert out == ""


def test_missing_peak_is_exit_4(capsys: pytest.CaptureFixture[str]):
    code, out, err = _run("search --model Qwen/Qwen3-32B-FP8 --system a100_sxm --total-gpus 8 --quiet", capsys)
    assert (code, out) == (4, "")
    assert "fp8" in err


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("search --model Qwen/Qwen3-32 --system h200_sxm --total-gpus 8", "Qwen/Qwen3-32B"),
        ("search --model Qwen/Qwen3-32B --system h200_sx --total-gpus 8", "h200_sxm"),
        ("search --model Qwen/Qwen3-32B --system h200_sxm", "total_gpus"),
        ("search --model Qwen/Qwen3-32B --system h200_sxm --total-gpus 8 --constants mine", "constants"),
        ("search --model Qwen/Qwen3-32B --system h200_sxm --total-gpus 8 --grid mine", "grid"),
        ("search --model Qwen/Qwen3-32B --system h200_sxm --total-gpus 8 --backend-version 0.1", "version"),
        (
            "search --model Qwen/Qwen3-32B --system h200_sxm --total-gpus 8 --attention-backend fast",
            "attention_backend",
        ),
        (f"estimate {MODEL} --tp 3", "64 query heads"),
    ],
)
def test_bad_names_are_one_line_and_exit_2(line: str, part: str, capsys: pytest.CaptureFixture[str]):
    code, out, err = _run(line, capsys)
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1


def test_load_beside_a_budget_is_announced(capsys: pytest.CaptureFixture[str]):
    code, _, err = _run(f"{DEMO} --quiet --serving-mode agg --target-request-rate 1", capsys)
    assert code == 0
    assert "load target is not used" in err


def test_recommend_counts_the_gpus_of_a_load(capsys: pytest.CaptureFixture[str]):
    line = f"recommend {MODEL} {LOAD} --ttft 1000 --tpot 20 --target-request-rate 40 --json"
    code, out, _ = _run(line, capsys)
    assert code == 0
    content = json.loads(out)
    row = content["experiments"][content["chosen"]]["rows"][0]
    assert row["requests_per_s"] >= 40
    assert row["gpus"] == row["columns"]["total_gpus_needed"]
    assert row["replicas"] == row["columns"]["replicas_needed"]


def test_estimate_of_a_point_of_the_search(capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run(f"estimate {MODEL} {LOAD} --tp 4 --bs 16 --detail all {STORED}", capsys)
    assert code == 0
    for part in ("263.503 ms", "426.904 tokens/s", "mixed step", "context_attention", "interpolated", "memory agg"):
        assert part in out


def test_estimate_as_json_adds_up(capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run(f"estimate {MODEL} {LOAD} --tp 4 --bs 16 --json", capsys)
    assert code == 0
    content = json.loads(out)
    row, (memory,) = content["row"], content["memory"]
    assert row["request_latency"] == pytest.approx(row["ttft"] + 499 * row["tpot"], rel=1e-6)
    parts = ("weights", "activations", "kvcache", "nccl", "others")
    assert memory["total"] == pytest.approx(sum(memory[part] for part in parts))
    assert content["provenance"] == "transferred"


def test_estimate_that_does_not_fit_is_exit_3(capsys: pytest.CaptureFixture[str]):
    code, out, err = _run("estimate --model Qwen/Qwen3-32B --system l40s --tp 1 --bs 1", capsys)
    assert (code, out) == (3, "")
    assert "smallest power-of-two TP that fits" in err


def test_estimate_of_a_replica(capsys: pytest.CaptureFixture[str]):
    line = (
        f"estimate {MODEL} {LOAD} {STORED} --estimate-mode disagg --tp 4 --p-bs 1 --p-workers 5 --d-bs 64 --d-workers 3"
    )
    code, out, _ = _run(line, capsys)
    assert code == 0
    assert "572.657 tokens/s" in out


def test_support_names_what_is_missing(capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run("support --model qwen/qwen3-32b-fp8 --system b60 --backend all --json", capsys)
    verdicts = json.loads(out)
    assert code == 3
    assert {
        verdict["backend"]: verdict["agg"] for verdict in verdicts if verdict["backend"] != "vllm"
    } == dict.fromkeys(("trtllm", "sglang"), "no measured tables")


def test_support_of_a_measured_pair(capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run("support --model Qwen/Qwen3-32B-FP8 --system h200_sxm --json", capsys)
    assert code == 0
    (verdict,) = json.loads(out)
    expected = {"system": "h200_sxm", "backend": "trtllm", "version": "1.3.0rc20", "agg": None, "disagg": None}
    assert verdict | expected == verdict
    assert 0 < verdict["decode_ms"] < verdict["prefill_ms"]
