# SPDX-License-Identifier: Apache-2.0
"""Command lines of AIConfigurator: a fate for every flag, stored picks, and result files under its names."""

import csv
import json
import shlex
import stat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer
import yaml

from aicjax._results import InputError
from aicjax.cli import app, compat, recommend, search
from aicjax.deploy.settings import load_engine, load_runtime
from aicjax.explore import SearchRequest
from aicjax.explore import experiment_keys as keys
from aicjax.explore.columns import AGG, CLUSTER
from aicjax.explore.experiments import read_experiments
from benchmarks.parity_cases import requests as parity

REFERENCES = Path(__file__).parents[1] / "references"
NAMES: dict[str, Any] = json.loads((REFERENCES / "compat_names.json").read_text())
NOT_A_KEY = "predictor"  # an object of the Python interface
ROUNDED = 1.001e-3  # absolute: one unit of the last reported decimal
PARITY = 1e-4  # relative: float32 against float64
SMALL = "cli default --model-path Qwen/Qwen3-32B --system h100_sxm --total-gpus 8"


def run_here(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = app.run(["compat", "--", *shlex.split(line)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def options_of(command: str) -> dict[str, Any]:
    """Flags of a command here by name."""
    program: Any = typer.main.get_command(app.app)
    parameters = program.commands[command].params
    return {name: option for option in parameters for name in (*option.opts, *option.secondary_opts)}


@pytest.mark.parametrize("command", NAMES["commands"])
def test_every_flag_has_a_fate(command: str):
    fates = compat.commands()[command].fates
    stored: dict[str, str] = NAMES["commands"][command]
    assert set(stored) == set(fates)
    assert {name: fate.takes for name, fate in fates.items()} == stored


@pytest.mark.parametrize("command", NAMES["commands"])
def test_what_goes_on_is_a_flag_here(command: str):
    stated = compat.commands()[command]
    known = options_of(stated.runs)
    added = [*stated.adds[::2], *(words[0] for words in stated.adds_with.values())]
    passed = [fate.name or name for name, fate in stated.fates.items() if not (fate.no_effect or fate.accepts)]
    refused = [fate.name or name for name, fate in stated.fates.items() if fate.instead and not fate.values]
    missing = {*passed, *added} - {*known, *refused, "--help", "--debug"}
    assert not missing
    for name, fate in stated.fates.items():
        if (option := known.get(fate.name or name)) is not None:
            assert bool(getattr(option, "is_flag", False)) == (fate.takes == "none"), name


def test_table_is_of_the_version_whose_names_are_stored():
    assert compat.table()["version"] == NAMES["version"]


def test_releases_that_are_accepted_are_those_that_files_are_for():
    fates = compat.commands()["default"].fates
    assert fates["--dynamo-version"].accepts == (load_runtime().version,)
    engines = {load_engine(name).version for name in ("vllm", "sglang", "trtllm")}
    assert set(fates["--config-template-version"].accepts) == engines
    with pytest.raises(InputError, match=load_runtime().version):
        fates["--dynamo-version"].applied("--dynamo-version", ["0.0.1"])


def test_every_key_of_an_experiment_is_known():
    assert set(NAMES["experiment_keys"]) - set(keys.KNOWN) == {NOT_A_KEY}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("aiconfigurator cli default --model m --system s", "search --compat reference --model m --system s"),
        ("/usr/bin/aiconfigurator cli exp --yaml-path=f", "exp --compat reference --yaml-path f"),
        ("support --model m --system s", "support --model m --system s"),
        ("cli default --total 8 --encoder-tp 1 2 4", "search --compat reference --total-gpus 8 --encoder-tp 1,2,4"),
        ("cli default --isl 1 --isl 2", "search --compat reference --isl 2"),
        ("cli estimate --detail memory,energy", "estimate --compat reference --detail memory,summary"),
        ("cli estimate --tp 2 --d-tp 4", "estimate --compat reference --tp 2 --d-tp 4"),
        ("cli default --forward-model op_level --systems-paths default", "search --compat reference"),
        (
            "cli recommend --save-dir d --deployment-target llm-d-helm",
            "recommend --compat reference --save-dir d --deployment-target llm-d-helm,bare-metal "
            "--save-layout reference",
        ),
        (
            "cli generate --model m --deployment-target llm-d-kustomize",
            "generate --compat reference --save-layout reference --target dynamo,bare-metal --model m "
            "--target llm-d-kustomize,bare-metal",
        ),
        ("aiconfigurator version", "--version"),
        ("aiconfigurator cli --help", "compat --help"),
    ],
)
def test_command_lines_are_translated(line: str, expected: str):
    assert compat.translated(line.split()) == expected.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("webapp", ["webapp", "one that is in AIConfigurator 0.12.0", "aicjax fleet serve"]),
        ("cli defualt --model m", ["defualt", "default"]),
        ("cli default --modl m", ["--modl", "--model"]),
        ("cli default --isl", ["--isl", "a value"]),
        ("cli default --strict-sla=yes", ["--strict-sla", "without a value"]),
        ("cli default stray", ["stray"]),
        ("cli default --en", ["--enable-epd", "--enable-wideep"]),
        ("cli default --deployment-target fpm --save-dir d", ["--deployment-target", "fpm", "llm-d-helm"]),
        ("cli default --forward-model fpm", ["--forward-model", "op_level"]),
        ("cli default --systems-paths /data", ["--systems-paths", "AICJAX_DATA"]),
        ("cli default --dynamo-version 1.0.0", ["--dynamo-version", "files are for"]),
        ("cli default --transport ib", ["--transport"]),
        ("cli default --generator-set a=b", ["--generator-set", "aicjax deploy"]),
        ("cli default --generator-help", ["--generator-help", "aicjax deploy"]),
        ("", ["default", "support"]),
    ],
)
def test_what_is_refused_is_one_line_and_exit_2(line: str, words: list[str], capsys: pytest.CaptureFixture[str]):
    code, out, err = run_here(line, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert all(word in err for word in words)


def test_every_refusal_says_what_to_use():
    for command in compat.commands().values():
        for name, fate in command.fates.items():
            if fate.accepts or (fate.values and not fate.others):
                assert fate.instead, name
                with pytest.raises(InputError):
                    fate.applied(name, ["something else"])


def test_page_names_every_flag_that_does_not_go_on():
    page = (Path(__file__).parents[2] / "docs" / "compat.md").read_text()
    for command in compat.commands().values():
        for name, fate in command.fates.items():
            goes_on = not (fate.no_effect or fate.accepts or fate.instead or fate.values)
            of_files = "writes no files" in fate.no_effect
            assert goes_on or of_files or f"`{name}" in page, name


def test_flags_that_change_nothing_are_named_once(capsys: pytest.CaptureFixture[str]):
    compat.translated("default --enable-wideep --log-level INFO --log-level DEBUG --deployment-target fpm".split())
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in said] == ["--enable-wideep", "--log-level", "--deployment-target"]


@pytest.mark.parametrize("name", parity.read_specifications(REFERENCES))
def test_stored_searches_are_the_command_lines_that_they_were(name: str, monkeypatch: pytest.MonkeyPatch):
    asked: list[SearchRequest] = []
    for command in (search, recommend):
        monkeypatch.setattr(command, "present", lambda request, output: asked.append(request))
    stated = dict(parity.read_specifications(REFERENCES)[name])
    command, inputs = stated["kind"], {key: stated[key] for key in stated if key in SearchRequest.model_fields}
    words = [f"--{key.replace('_', '-')}={value}" for key, value in inputs.items()]
    assert app.run(["compat", "--", "aiconfigurator", "cli", command, *words]) == 0
    unstated = {} if command == "default" or "database_mode" in inputs else {"database_mode": "HYBRID"}
    assert asked == [parity.read_requests(REFERENCES)[name](**unstated)]


def test_stored_picks_and_result_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = run_here(f"aiconfigurator {SMALL} --serving-mode agg --save-dir {tmp_path}", capsys)
    assert code == 0
    assert "runs aicjax search --compat reference" in err
    (folder,) = (tmp_path / "Qwen").glob("Qwen3-32B_h100_sxm_trtllm_isl4000_osl1000_ttft2000_tpot30_*")
    with (folder / "agg" / "best_config_topn.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == (*AGG, CLUSTER)
    stored = pq.read_table(REFERENCES / "search_top.parquet").to_pylist()
    expected = [row for row in stored if (row["search"], row["mode"]) == ("p05", "agg")]
    for row, reference in zip(rows, sorted(expected, key=lambda row: row["rank"]), strict=True):
        assert (row["parallel"], int(row["bs"])) == (reference["layout"], reference["batch"])
        for column in ("ttft", "tpot", "tokens/s/gpu", "memory", CLUSTER):
            assert float(row[column]) == pytest.approx(reference[column], rel=PARITY, abs=ROUNDED), column
    top = folder / "agg" / "top1"
    scripts = {path.name for path in top.iterdir() if path.is_file()}
    assert {"k8s_deploy.yaml", "k8s_bench.yaml", "bench_run.sh", "run_0.sh", "agg_config.yaml"} < scripts
    assert "agg_config.yaml" in (top / "run_0.sh").read_text()
    assert "agg_engine.yaml" not in (top / "run_0.sh").read_text()
    assert (top / "run_0.sh").stat().st_mode & stat.S_IXUSR
    sources = json.loads((top / "per_ops_source.json").read_text())
    assert set(sources) == {"mix_step", "genonly_step"}
    assert set(sources["mix_step"].values()) <= {"silicon", "empirical"}
    experiment = yaml.safe_load((folder / "agg" / "exp_config.yaml").read_text())
    assert set(experiment) <= set(NAMES["experiment_keys"])
    again = read_experiments(folder / "agg" / "exp_config.yaml", compat="reference").requests["exp_config"]
    assert (again.ttft, again.tpot, again.backend_version) == (2000.0, 30.0, rows[0]["version"])


def test_cluster_of_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    line = f"{SMALL} --serving-mode agg --top-n 1 --namespace team --model-cache weights --save-dir {tmp_path}"
    assert run_here(line, capsys)[0] == 0
    (manifest,) = tmp_path.rglob("k8s_deploy.yaml")
    text = manifest.read_text()
    assert 'namespace: "team"' in text
    assert 'claimName: "weights"' in text
