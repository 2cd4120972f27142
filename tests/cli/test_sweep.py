# SPDX-License-Identifier: Apache-2.0
"""Sweeps from the command line, on the packaged measurements."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aicjax.cli.app import run

SPEC = """
models: Qwen/Qwen3-32B-FP8
systems: [h200_sxm, h100_sxm]
backends: [trtllm, vllm]
batch: {last: 16}
ctx_tokens: {last: 8192, step: 1024}
isl: 4000
osl: [1, 500]
parallel: {tp: [2, 4]}
limits: [{ttft: 900, tpot: 12}, {}]
top_k: 3
"""


@pytest.fixture(name="spec")
def _spec(tmp_path: Path) -> str:
    path = tmp_path / "sweep.yaml"
    path.write_text(SPEC)
    return str(path)


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["sweep", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_text_says_what_was_swept_and_what_is_best(spec: str, capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run(capsys, spec)
    assert code == 0
    assert "Qwen/Qwen3-32B-FP8 on h200_sxm, h100_sxm with trtllm, vllm, SILICON" in out
    assert "workloads 4000/1, 4000/500" in out
    assert "batch 1 to 16; ctx_tokens 1024 to 8192 by 1024" in out
    assert "points/s" in out
    assert "limits TTFT 900 ms, TPOT 12 ms: " in out
    assert "no room for decoding" in out
    assert "best by tokens/s/gpu" in out
    assert "best of each group by tokens/s/gpu" in out
    assert "nan" not in out


def test_object_is_the_same_every_time_and_the_file(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, first, err = _run(capsys, spec, "--json", "--out", str(tmp_path / "out"))
    assert code == 0
    assert err.endswith(f"saved in {tmp_path / 'out'}\n")
    _, second, _ = _run(capsys, spec, "--json")
    assert first == second == (tmp_path / "out" / "result.json").read_text()
    content = json.loads(first)
    overall = content["answers"][0]
    assert (overall["group"], overall["limits"]) == ("overall", {"ttft": 900.0, "tpot": 12.0})
    assert sum(overall["counts"].values()) == content["points"] == content["done_points"] == 2048
    rates = [row["tokens/s/gpu"] for row in overall["best"]["tokens/s/gpu"]]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) == 3
    assert content["spec"]["batch"] == {"first": 1, "last": 16, "step": 1}
    with (tmp_path / "out" / "best.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["tokens/s/gpu"]) for row in rows[:3]] == rates
    assert {row["tpot"] == "" for row in rows if row["osl"] == "1"} == {True}


def test_rows_has_every_point(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run(capsys, spec, "--json", "--rows", "--out", str(tmp_path / "out"))
    assert code == 0
    overall = json.loads(out)["answers"][0]
    files = sorted((tmp_path / "out" / "rows").glob("*.parquet"))
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    assert len(rows) == sum(overall["counts"].values()) - overall["counts"]["outside"]
    best = overall["best"]["tokens/s/gpu"][0]
    (row,) = (row for row in rows if row["point"] == best["point"])
    shared = ["model", "system", "backend", "isl", "osl", "tp", "bs", "ctx_tokens", "num_total_gpus"]
    assert {name: row[name] for name in shared} == {name: best[name] for name in shared}
    assert row["ttft"] == pytest.approx(best["ttft"], abs=1e-3)


def test_disaggregated_sweep_is_shown_in_the_same_form(spec: str, capsys: pytest.CaptureFixture[str]):
    changes = ["serving_mode=disagg", "osl=500", "prefill_batch={last: 2}", "decode_batch={last: 8}", "backends=trtllm"]
    code, out, _ = _run(capsys, spec, *(part for change in changes for part in ("--set", change)))
    assert code == 0
    assert "prefill_batch 1 to 2; decode_batch 1 to 8" in out
    assert " prefill + " in out
    assert "best of each group by tokens/s/gpu" in out


def test_quiet_is_one_line(spec: str, capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run(capsys, spec, "--quiet", "--set", "osl=500")
    assert code == 0
    assert out.count("\n") == 1
    assert out.startswith("tokens/s/gpu ")
    assert "within limits TTFT 900 ms, TPOT 12 ms: Qwen/Qwen3-32B-FP8 on h200_sxm with" in out


def test_flags_win_over_the_file(spec: str, capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run(
        capsys,
        spec,
        "--json",
        "--top-k",
        "2",
        "--set",
        "limits=[{tpot: 50}, {}]",
        "--set",
        "batch={first: 2, last: 16}",
        "--devices",
        "1",
    )
    content = json.loads(out)
    assert code == 0
    assert content["spec"]["limits"] == [{"ttft": None, "tpot": 50.0}, {"ttft": None, "tpot": None}]
    assert content["spec"]["batch"] == {"first": 2, "last": 16, "step": 1}
    assert {len(answer["best"]["tokens/s/gpu"]) for answer in content["answers"]} == {2}


def test_nothing_within_the_limits_exits_3_with_the_reasons(spec: str, capsys: pytest.CaptureFixture[str]):
    code, out, err = _run(capsys, spec, "--set", "limits=[{ttft: 1}, {ttft: 2}]")
    assert code == 3
    assert "limits TTFT 1 ms: 0 of 2,048 points feasible" in out
    last = err.splitlines()[-1]
    assert last.startswith("aicjax: None of 2,048 points meets its limits: ")
    assert "misses TTFT" in last


def test_refused_combination_is_named(spec: str, capsys: pytest.CaptureFixture[str]):
    code, out, _ = _run(capsys, spec, "--set", "systems=[h200_sxm, h201]")
    assert code == 0
    assert "refused: Qwen/Qwen3-32B-FP8 on h201 with trtllm: " in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.yaml"], "none.yaml"),
        ([], "SPEC.yaml"),
        (["SPEC", "--set", "batch"], "`set`"),
        (["SPEC", "--set", "btch=3"], "the nearest is `batch`"),
        (["SPEC", "--set", "batch={1: 2}"], "keys are all names"),
        (["SPEC", "--top-k", "0"], "`top_k`"),
        (["SPEC", "--top-k", "x"], "--top-k"),
        (["SPEC", "--devices", "0"], "`devices`"),
        (["SPEC", "--num-hosts", "2"], "host"),
        (["SPEC", "--rows"], "together with `out`"),
        (["SPEC", "--set", "systems=h201"], "h201"),
    ],
)
def test_bad_input_is_one_line_and_exits_2(
    arguments: list[str], words: str, spec: str, capsys: pytest.CaptureFixture[str]
):
    code, out, err = _run(capsys, *(spec if argument == "SPEC" else argument for argument in arguments))
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert err.startswith("aicjax: ")


def test_file_in_place_of_a_directory_is_refused(spec: str, capsys: pytest.CaptureFixture[str]):
    code, _, err = _run(capsys, spec, "--out", spec)
    assert code == 2
    assert "`out`" in err
    assert err.count("\n") == 1


def test_report_has_the_fronts_and_the_best_points(spec: str, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    pytest.importorskip("plotly")
    path = tmp_path / "report.html"
    code, _, error = _run(capsys, spec, "--quiet", "--report", str(path))
    assert code == 0
    assert f"report in {path}" in error
    text = path.read_text(encoding="utf-8")
    assert '"mode":"lines+markers"' in text
    assert "best by tokens/s/gpu" in text
    assert "What became of the points" in text
