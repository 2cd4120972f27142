# SPDX-License-Identifier: Apache-2.0
"""`aicjax measure` from the command line; predictions are made up."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from aicjax.calibrate import compare as comparing
from aicjax.calibrate.levels import Components
from aicjax.calibrate.measurements import Measurements
from aicjax.calibrate.predict import Prediction
from aicjax.calibrate.spread import NORMAL, Spread, as_plain
from aicjax.cli import app

FILES = Path(__file__).parents[1] / "references" / "benchmarks"
SERVER = ("--system", "h200_sxm", "--backend", "vllm", "--tp", "4")


@pytest.fixture(autouse=True)
def _predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every server is predicted to take 300 and 6 ms; a concurrency of 8 has no prediction."""

    def predict(rows: Measurements, constants: str) -> Prediction:
        known = rows.concurrency != 8
        ttft_ms, tpot_ms = np.where(known, 300.0, np.nan), np.where(known, 6.0, np.nan)
        attempt, reason = np.where(known, "SILICON", ""), np.where(known, "", "no such table")
        return Prediction(ttft_ms, tpot_ms, tpot_ms, tpot_ms, attempt, reason)

    monkeypatch.setattr(comparing, "predict", predict)


@pytest.fixture
def constants(tmp_path: Path) -> Path:
    """Constants with a spread of 0.2 for each level, and none with a level of one's own."""
    part, tails = np.eye(2)[None] * 0.04, np.tile(NORMAL, (2, 1))
    spread = Spread(Components(part, part, part), tails, tails, 0 * part, ("vllm/agg",))
    path = tmp_path / "base.yaml"
    path.write_text(yaml.safe_dump({"base": "reference", "fit": {"spread": as_plain(spread)}}))
    return path


def _import(out: Path, *files: str, options: tuple[str, ...] = SERVER) -> int:
    return app.run(["measure", "import", *(str(FILES / file) for file in files), *options, "--out", str(out)])


def test_runs_are_listed_and_written(tmp_path: Path, capsys):
    out = tmp_path / "measured.csv"
    assert _import(out, "vllm_bench_serve.json", "sglang_bench_serving.jsonl") == 0
    text = capsys.readouterr().out
    assert "318 requests, 2 more FAILED" in text and "failures not stated" in text
    assert f"3 measurements -> {out}" in text and out.exists()


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        (("vllm_bench_serve.json",), ("--backend", "vllm"), "system"),
        (("vllm_bench_serve.json",), ("--system", "h200_sxm"), "backend"),
        (("vllm_bench_serve.json",), ("--system", "h200_sxm", "--backend", "vlm"), "did you mean vllm"),
        (("vllm_bench_serve.json",), (*SERVER, "--tp", "0"), "tp_size"),
        (("vllm_bench_serve.json",), (*SERVER, "--prefill-tp-size", "2"), "disagg"),
        (("vllm_bench_serve.json",), (*SERVER, "--estimate-mode", "static"), "agg, disagg"),
        (("profile_export_aiperf.csv",), (*SERVER, "--model", "a/b"), "concurrency"),
        (("none.json",), SERVER, "an existing file"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path, capsys, files, options, said: str):
    out = tmp_path / "measured.csv"
    assert _import(out, *files, options=options) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not out.exists()


def test_a_role_has_the_shared_layout_that_it_does_not_state(tmp_path: Path):
    out = tmp_path / "measured.csv"
    options = (*SERVER, "--estimate-mode", "disagg", "--d-tp", "2", "--prefill-num-workers", "3")
    assert _import(out, "vllm_bench_serve.json", options=options) == 0
    header, row = (line.replace('"', "").split(",") for line in out.read_text().splitlines())
    found = dict(zip(header, row, strict=True))
    assert (found["prefill_tp"], found["decode_tp"], found["prefill_workers"]) == ("4", "2", "3")


def test_predictions_stand_beside_measurements(tmp_path: Path, constants: Path, capsys):
    out = tmp_path / "measured.csv"
    _import(out, "sglang_bench_serving.jsonl")
    capsys.readouterr()
    assert app.run(["measure", "compare", str(out), "--constants", str(constants)]) == 0
    text = capsys.readouterr().out
    assert "+100.0" in text and "-50.0" in text
    assert "12.00!" in text and "outside its range" in text  # 6 ms are 0.69 off in logarithm, the range reaches 0.44
    assert "no prediction for row 1: no such table" in text


def test_levels_of_ones_own_count_in_a_comparison(tmp_path: Path, constants: Path, capsys):
    out, mine = tmp_path / "measured.csv", tmp_path / "mine.yaml"
    _import(out, "vllm_bench_serve.json")
    level = {"ttft_level": 0.5, "tpot_level": 2.0, "log_covariance": [[0.0, 0.0], [0.0, 0.0]]}
    server = {"model": "Qwen/Qwen3-32B-FP8", "system": "h200_sxm", "backend": "vllm"}
    mine.write_text(yaml.safe_dump({"base": str(constants), "levels": [{**server, **level}]}))
    capsys.readouterr()
    rows = {}
    for name in (constants, mine):
        assert app.run(["measure", "compare", str(out), "--constants", str(name), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        rows[name], scores = found["rows"][0], found["scores"]
    assert rows[constants]["ttft"]["error_percent"] == pytest.approx(100.0)
    assert rows[mine]["ttft"]["error_percent"] == pytest.approx(0.0)
    assert rows[mine]["tpot"]["predicted"] == pytest.approx(12.0)
    assert rows[mine]["throughput"]["error_percent"] == pytest.approx(0.0)
    assert scores["interval_coverage"] == {"ttft": 1.0, "tpot": 1.0}
    wide, narrow = (np.log(np.divide(*reversed(rows[name]["tpot"]["range"]))) for name in (constants, mine))
    assert narrow / wide == pytest.approx(np.sqrt(0.08 / 0.12), rel=1e-6)


def test_constants_without_a_spread_give_errors_and_no_ranges(tmp_path: Path, capsys):
    out = tmp_path / "measured.parquet"
    _import(out, "vllm_bench_serve.json")
    capsys.readouterr()
    assert app.run(["measure", "compare", str(out), "--constants", "reference"]) == 0
    text = capsys.readouterr().out
    assert "+100.0" in text and "range" not in text
