# SPDX-License-Identifier: Apache-2.0
"""The benchmark and the launch scripts when they run, with a client and servers that only note their words."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from aicjax.deploy.build import build
from aicjax.deploy.record import Site
from aicjax.deploy.render import render
from tests.deploy.rows import INPUTS, result_row, wide_row

MODEL = "Qwen/Qwen3-32B"


def _files(target: str, inputs: dict[str, int] | None = None, **site: str) -> dict[str, str]:
    row = result_row("vllm", experts=False, disaggregated=False)
    return render(build(row, {**INPUTS, **(inputs or {})}, site=Site(**site)), target)


def _name(files: dict[str, str]) -> str:
    return json.loads(files["deployment.json"])["name"]


class _Models(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": MODEL}]}).encode())

    def log_message(self, format: str, *args: object):
        pass


@pytest.fixture
def url() -> Iterator[str]:
    """A server that serves the model."""
    server = HTTPServer(("127.0.0.1", 0), _Models)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


# Notes its words, and ends when as many starts as are expected have been noted.
COMMAND = """#!/bin/bash
echo "$@" >>"$NOTES"
until [[ $(wc -l <"$NOTES") -ge ${STARTS:-0} ]]; do sleep 0.01; done
"""


def _run(script: Path, folder: Path, commands: tuple[str, ...], **variables: str) -> tuple[int, str, list[str]]:
    """Exit code, messages and what the commands noted."""
    for name in commands:
        (folder / name).write_text(COMMAND)
        (folder / name).chmod(0o755)
    notes = folder / "notes"
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "NOTES": str(notes), **variables}
    ran = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False, timeout=15)
    return ran.returncode, ran.stderr, sorted(notes.read_text().splitlines()) if notes.exists() else []


def test_script_replays_the_assumption(url: str, tmp_path: Path):
    script = tmp_path / "bench.sh"
    script.write_text(_files("dynamo", {"prefix": 1000})["bench.sh"])
    code, said, notes = _run(script, tmp_path, ("aiperf",), URL=url, ROUNDS="3")
    assert (code, said) == (0, "")
    loads = [note.split("--artifact-dir ")[1] for note in notes]
    closed = [f"results/concurrency_{many} --concurrency {many}" for many in (62, 124, 236, 248, 260)]
    opened = [
        f"results/rate_{rate} --request-rate {rate} --arrival-pattern poisson" for rate in ("4.9", "7.84", "8.82")
    ]
    assert sorted(loads) == sorted(closed + opened)
    for note in notes:
        assert f"--model {MODEL} --tokenizer {MODEL} --url {url}" in note
        assert "--synthetic-input-tokens-mean 3000 " in note
        assert "--prefix-prompt-length 1000 " in note
        assert "--output-tokens-mean 500 --output-tokens-stddev 0 --extra-inputs ignore_eos:true " in note
        assert "--endpoint-type completions --streaming " in note
        assert "--random-seed 100 " in note
    assert "--request-count 744 --warmup-request-count 496 " in next(
        note for note in notes if "concurrency_248" in note
    )


def test_script_waits_for_the_model_and_gives_up(tmp_path: Path):
    script = tmp_path / "bench.sh"
    script.write_text(_files("dynamo")["bench.sh"])
    code, said, notes = _run(script, tmp_path, ("aiperf",), URL="http://127.0.0.1:9", READY_TIMEOUT_S="0")
    assert (code, notes) == (1, [])
    assert said == f"{MODEL} is not served at http://127.0.0.1:9/v1/models after 0 s\n"


def test_job_runs_the_script_against_the_service_and_keeps_results_on_the_claim():
    files = _files("dynamo", namespace="serving", model_cache="models")
    scripts, job = yaml.safe_load_all(files["k8s_bench.yaml"])
    assert scripts["data"] == {"bench.sh": files["bench.sh"]}
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    values = {entry["name"]: entry["value"] for entry in container["env"]}
    assert values["URL"] == f"http://{_name(files)}-frontend:8000"
    assert values["OUT"].startswith("/model-cache/")
    assert pod["volumes"][1] == {"name": "model-cache", "persistentVolumeClaim": {"claimName": "models"}}
    assert {document["metadata"]["namespace"] for document in (scripts, job)} == {"serving"}


def test_job_without_a_claim_says_where_the_results_are():
    text = _files("dynamo")["k8s_bench.yaml"]
    assert "Results stay in the log" in text
    assert "persistentVolumeClaim" not in text


@pytest.mark.parametrize("node", [0, 1])
def test_script_of_a_node_starts_its_part(node: int, tmp_path: Path):
    files = render(build(wide_row("sglang", 16), INPUTS), "bare-metal")
    script = tmp_path / f"run_node{node}.sh"
    script.write_text(files[script.name])
    code, _, notes = _run(script, tmp_path, ("python3",), NODES="10.0.0.1 10.0.0.2", STARTS=str(2 - node))
    assert code == 0
    assert sum("dynamo.frontend --http-port 8000" in note for note in notes) == (node == 0)
    (worker,) = [note for note in notes if "dynamo.sglang" in note]
    assert worker.endswith(f"--dist-init-addr 10.0.0.1:29500 --nnodes 2 --node-rank {node}")


@pytest.mark.parametrize("addresses", ["", "10.0.0.1"])
def test_script_of_a_node_refuses_too_few_addresses(addresses: str, tmp_path: Path):
    files = render(build(wide_row("sglang", 16), INPUTS), "bare-metal")
    script = tmp_path / "run_node0.sh"
    script.write_text(files[script.name])
    code, said, notes = _run(script, tmp_path, ("python3",), NODES=addresses)
    assert code != 0
    assert "addresses" in said
    assert notes == []
