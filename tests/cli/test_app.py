# SPDX-License-Identifier: Apache-2.0
"""The program as a whole: help, exit codes, and one line for every mistake."""

import subprocess
import sys

import pytest

import aicjax
from aicjax.cli import refusals
from aicjax.cli.app import EXIT_INTERNAL, EXIT_INTERRUPTED, run
from aicjax.cli.search import command as search_command

COMMANDS = ("search", "recommend", "estimate", "exp", "query", "support", "calibrate", "db", "generate", "compat")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    assert run([command, "--help"]) == 0
    assert f"aicjax {command}" in capsys.readouterr().out


def test_help_imports_no_array_library():
    check = (
        "import sys; from aicjax.cli.app import run; code = run(['--help']); "
        "sys.exit(code or any(name in sys.modules for name in ('jax', 'numpy', 'pydantic', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0


def test_version(capsys: pytest.CaptureFixture[str]):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"aicjax {aicjax.__version__}\n"


def test_module_runs_as_a_program():
    ran = subprocess.run([sys.executable, "-m", "aicjax", "serch"], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == "aicjax: No such command 'serch'. Did you mean 'search'?\n"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("search --totl-gpus 4", ["--totl-gpus", "--total-gpus"]),
        ("cli default --model-path m --system s --total-gpus 4 --isl few", ["isl", "'few'"]),
        ("search --model m --system s --total-gpus 0", ["total_gpus", "at least 1", "'0'"]),
        ("search --model m --system s --total-gpus 4 --backend trtlm", ["backend", "'trtlm'", "trtllm"]),
        ("search --model m --system s --total-gpus 4 --prefix 5000", ["prefix", "4000", "5000"]),
        ("search --model m --system s --total-gpus 4 --nextn 2", ["nextn_accepted"]),
        ("search --model m --system s --total-gpus 4 --gemm-quant-mode fp9", ["gemm_quant_mode", "'fp9'", "fp8"]),
        ("search --system h200_sxm --total-gpus 4", ["model"]),
        ("search --from nowhere.json", ["from", "nowhere.json"]),
        ("recommend --model m --system s", ["target_request_rate"]),
        ("recommend --model m --system s --target-request-rate 1 --target-concurrency 2", ["target_concurrency"]),
        ("estimate --model m --system s --detail memry", ["detail", "memry", "memory"]),
        ("estimate --model m --system s --estimate-mode disagg", ["prefill_batch_size"]),
        ("support --model m", ["system"]),
        ("query gemm --system h200_sxm -n 1 -k 1", ["--tokens"]),
        ("query gemm --system h200_sxm -m 1,x -n 1 -k 1", ["tokens", "1,x"]),
        ("query gemm --system h200_sxm -m 0 -n 1 -k 1", ["tokens", "at least 1"]),
        ("query gemm --system h200 -m 1 -n 1 -k 1", ["system", "h200", "h200_sxm"]),
        ("query gemm --system h200_sxm -m 1 -n 1 -k 1 --quant-mode fp9", ["quant-mode", "fp9", "fp8"]),
        ("cli exp --yaml-path nowhere.yaml", ["yaml_path", "nowhere.yaml"]),
        ("exp", ["yaml_path"]),
        ("search --model m --deployment-target=dynamo-j2", ["deployment_target", "bare-metal", "did you mean dynamo?"]),
    ],
)
def test_mistake_is_one_line_and_exit_2(line: str, parts: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("aicjax: ")
    assert captured.err.count("\n") == 1
    for part in parts:
        assert part in captured.err


def test_flags_that_change_nothing_are_accepted(capsys: pytest.CaptureFixture[str]):
    line = "--log-level DEBUG --isl 1 --engine-step-backend=rust --forward-model op_level --enable-wideep"
    assert refusals.without_effect(line.split()) == ["--isl", "1"]
    assert capsys.readouterr().err.startswith("aicjax: --enable-wideep changes nothing")
    assert refusals.without_effect(["--forward-model", "fpm"]) == ["--forward-model", "fpm"]


@pytest.mark.parametrize("flag", sorted(refusals.FLAGS))
def test_refused_flags_are_no_flags_of_ours(flag: str, capsys: pytest.CaptureFixture[str]):
    assert run(["search", flag, "1"]) == 2
    assert flag in capsys.readouterr().err
    for command in COMMANDS[:4]:
        run([command, "--help"])
        assert f"{flag} " not in capsys.readouterr().out


def _raise(error: BaseException):
    def raising(*_: object, **__: object) -> None:
        raise error

    return raising


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("aicjax.cli.options.given", _raise(KeyboardInterrupt()))
    assert run(["search"]) == EXIT_INTERRUPTED


def test_defect_is_one_line_unless_debugging(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("aicjax.cli.options.given", _raise(RuntimeError("two\nlines")))
    assert run(["search"]) == EXIT_INTERNAL
    assert capsys.readouterr().err == "aicjax: internal error, RuntimeError: two lines (--debug shows where)\n"
    with pytest.raises(RuntimeError):
        run(["search", "--debug"])


def test_help_repeats_the_defaults_of_the_request():
    from typing import get_args, get_type_hints

    from aicjax.explore.request import SearchRequest

    hints = get_type_hints(search_command, include_extras=True)
    for name, hint in hints.items():
        shown = getattr(get_args(hint)[-1], "show_default", False) if get_args(hint) else False
        field = SearchRequest.model_fields.get(name)
        if field is None or not shown or field.default is None:
            continue
        assert str(shown) == f"{field.default:g}" if isinstance(field.default, float) else str(field.default), name
