# SPDX-License-Identifier: Apache-2.0
"""Names that no cluster takes are refused by their flag, before a search and before a file is read."""

from pathlib import Path

import pytest

from aicjax.cli.app import run

MODEL = ["--model-path", "Qwen/Qwen3-32B", "--system", "h200_sxm", "--total-gpus", "8"]
REQUEST = """apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeploymentRequest
metadata: {name: chat, namespace: my_ns}
spec: {model: Qwen/Qwen3-32B, hardware: {gpuSku: h200_sxm, totalGpus: 8}}
"""


@pytest.mark.parametrize(
    "command",
    [
        ["deploy", "--from", "nothing", "--target", "dynamo"],
        ["generate", *MODEL, "--target", "dynamo"],
        ["search", *MODEL, "--deployment-target", "dynamo", "--save-dir", "out"],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("namespace", "my_ns"),
        ("namespace", ""),
        ("secret", "a" * 64),
        ("model-cache", "Claim"),
        ("image", "team/vllm:latest"),
        ("image", "a b:1"),
        ("image", "vllm"),
    ],
)
def test_flag_is_named_in_one_line(
    command: list[str],
    flag: str,
    value: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    assert run([*command, f"--{flag}", value]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"Argument `{flag.replace('-', '_')}`" in line
    assert f"got {value!r}" in line
    assert not list(tmp_path.iterdir())


def test_name_of_a_request_is_refused_before_its_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "request.yaml").write_text(REQUEST, encoding="utf-8")
    assert run(["deploy", "--request", str(tmp_path / "request.yaml")]) == 2
    captured = capsys.readouterr()
    assert "Argument `namespace` must be an RFC 1123 label" in captured.err
    assert not captured.out
