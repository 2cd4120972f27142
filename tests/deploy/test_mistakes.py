# SPDX-License-Identifier: Apache-2.0
"""Mistakes seen in generated files elsewhere: each is found, and then nothing is written."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from aicjax.deploy.build import build
from aicjax.deploy.checks import FailedCheck, problems
from aicjax.deploy.record import Limit, Site
from aicjax.deploy.render import render
from aicjax.deploy.settings import load_engine
from aicjax.deploy.write import check_directory, write
from tests.deploy.rows import INPUTS, result_row


def _files(target: str, engine: str = "vllm") -> dict[str, str]:
    return render(build(result_row(engine, experts=False, disaggregated=True), INPUTS), target)


@pytest.mark.parametrize(
    ("target", "engine", "file", "right", "wrong", "problem"),
    [
        ("dynamo", "vllm", "deploy.yaml", '"qwen3-32b-vllm-disagg"', "None", "placeholder"),
        ("dynamo", "vllm", "deploy.yaml", 'name: "hf-token-secret"', "name: null", "placeholder"),
        ("bare-metal", "vllm", "bench.sh", "localhost:8000", "None:8000", "placeholder"),
        ("bare-metal", "vllm", "bench.sh", "localhost:8000", "localhost:8001", "port of the frontend"),
        ("bare-metal", "vllm", "run_node0.sh", "--http-port 8000", "--http-port 8001", "no frontend"),
        ("bare-metal", "vllm", "run_node1.sh", "sizes 1 2", "sizes 2 1", "cudagraph-capture-sizes"),
        ("dynamo", "vllm", "deploy.yaml", '"59"', '"512"', "--max-num-seqs is 512, not 59"),
        ("dynamo", "vllm", "deploy.yaml", '"0.92"', '"0.9"', "gpu-memory-utilization"),
        ("dynamo", "vllm", "deploy.yaml", '"--kv-transfer-config"', '"--other"', "--kv-transfer-config is False"),
        ("dynamo", "vllm", "deploy.yaml", '"--disaggregation-mode"', '"--mode"', "role agg"),
        ("dynamo", "vllm", "deploy.yaml", '"--max-model-len"', '"--max-len"', "unknown option --max-len"),
        ("dynamo", "vllm", "deploy.yaml", "runtime:1.3.0", "runtime:latest", "not pinned"),
        ("dynamo", "vllm", "deploy.yaml", "runtime:1.3.0", "runtime:main", "no pinned tag"),
        ("dynamo", "vllm", "deploy.yaml", "replicas: 3", "replicas: 4", "too many"),
        ("dynamo", "vllm", "deploy.yaml", '"frontend"', "on", "needs quotes"),
        ("dynamo", "vllm", "deploy.yaml", 'gpu: "4"', 'gpu: "2"', "2 GPUs, not 4"),
        ("dynamo", "trtllm", "deploy.yaml", "max_batch_size: 59", "max_batch_size: 60", "max_batch_size is 60"),
        ("bare-metal", "trtllm", "decode_engine.yaml", "backend: DEFAULT, ", "", "cache_transceiver_config.backend"),
        ("bare-metal", "sglang", "run_node0.sh", "port 21100", "port 21000", "port is used twice"),
        ("bare-metal", "vllm", "run_node0.sh", "DEVICES=4,5,6,7", "DEVICES=0,1,2,3", "GPU is used twice"),
        ("bare-metal", "vllm", "run_node0.sh", "VLLM_NIXL_SIDE_CHANNEL_HOST", "OTHER", "is not set"),
        ("bare-metal", "vllm", "run_node0.sh", "wait -n", "if wait -n", "syntax error"),
        ("dynamo-v1alpha1", "vllm", "deploy.yaml", 'Secret: "hf-token-secret"', "Secret: null", "placeholder"),
        ("dynamo-v1alpha1", "vllm", "deploy.yaml", "--kv-transfer", "--other", "--kv-transfer-config is False"),
        ("dynamo-v1alpha1", "vllm", "deploy.yaml", "runtime:1.3.0", "runtime:nightly", "no pinned tag"),
        ("dynamo-v1alpha1", "vllm", "deploy.yaml", "replicas: 3", "replicas: 2", "too few"),
        ("dynamo", "vllm", "k8s_bench.yaml", "-frontend:8000", "-None:8000", "placeholder"),
        ("dynamo", "vllm", "k8s_bench.yaml", 'command: ["bash", ', 'command: ["pip install aiperf &&", ', "not pinned"),
        ("slurm", "vllm", "job.sbatch", "--job-name=qwen3-32b", "--job-name=None", "placeholder"),
        ("slurm", "vllm", "job.sbatch", "--max-num-seqs 59", "--max-num-seqs 512", "--max-num-seqs is 512, not 59"),
        ("slurm", "vllm", "job.sbatch", "--disaggregation-mode decode", "--disaggregation-mode prefill", "too many"),
        ("slurm", "sglang", "job.sbatch", "--host 0.0.0.0", "--host 127.0.0.1", "--host is 127.0.0.1, not 0.0.0.0"),
    ],
)
def test_mistake_in_a_file_is_found(
    target: str, engine: str, file: str, right: str, wrong: str, problem: str, tmp_path: Path
):
    files = _files(target, engine)
    assert right in files[file]
    files[file] = files[file].replace(right, wrong)
    assert problem in "; ".join(problems(files))
    with pytest.raises(FailedCheck):
        write(files, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("label", ["my_ns", "Upper", "-a", "a" * 64, "a.b", ""])
@pytest.mark.parametrize("what", ["name", "namespace", "secret", "model_cache"])
def test_names_are_labels(what: str, label: str):
    row = result_row("vllm", experts=False, disaggregated=False)
    stated: dict[str, Any] = {"name": label} if what == "name" else {"site": Site(**{what: label})}
    found = problems(render(build(row, INPUTS, **stated), "dynamo"))
    assert any(f"{what} {label!r} is not an RFC 1123" in problem for problem in found)


def test_limits_that_differ_need_a_reason():
    deployment = build(result_row("vllm", experts=False, disaggregated=False), INPUTS)
    role = dataclasses.replace(deployment.roles[0], max_running=Limit(16, 512), graph_sizes=(4, 2, 2))
    found = "; ".join(problems(render(dataclasses.replace(deployment, roles=(role,), gpu_budget=8), "dynamo")))
    assert "512 is deployed, 16 was simulated" in found
    assert "must ascend" in found
    assert "exceed the budget" in found


def test_token_limit_off_the_block_is_found():
    deployment = build(result_row("trtllm", experts=False, disaggregated=False), INPUTS)
    role = dataclasses.replace(deployment.roles[0], max_step_tokens=Limit(4021, 4021))
    assert "no multiple of 32" in "; ".join(problems(render(dataclasses.replace(deployment, roles=(role,)), "dynamo")))


def test_user_s_limit_is_kept_beside_the_prediction():
    deployment = build(result_row("vllm", experts=False, disaggregated=False), INPUTS)
    assert (deployment.workload.tpot_limit_ms, deployment.prediction.tpot_ms) == (50.0, 49.8)


def test_directory_is_checked(tmp_path: Path):
    files = _files("bare-metal")
    write(files, tmp_path / "a")
    assert list(check_directory(tmp_path).values()) == [[]]
    (tmp_path / "a" / "run_node1.sh").unlink()
    assert "too few" in "; ".join(check_directory(tmp_path)[str(tmp_path / "a")])


SCRIPT_OPTION = r" \\\n    ({name})(?: [^-\n][^\n]*?)?(?= \\\n| &\n)"
GRAPH_OPTION = r"\n *- \"({name})\"(?:\n *- \"[^-][^\n]*\")*(?=\n)"
FILE_KEY = r"\b{name}: (?:\[[^\]]*\]|[^,}}\n]+)(?:, |\n|(?=}}))"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("target", ["bare-metal", "slurm", "dynamo", "dynamo-v1alpha1"])
def test_every_option_that_is_left_out_is_missed(target: str, engine: str):
    files = render(build(result_row(engine, experts=True, disaggregated=True), INPUTS), target)
    names = load_engine(engine)
    patterns = [(SCRIPT_OPTION, option) for option in names.arguments.values()]
    patterns += [(GRAPH_OPTION, option) for option in names.arguments.values()]
    patterns += [(FILE_KEY, key.rsplit(".", 1)[-1]) for key in names.file.values()]
    tried = set()
    for pattern, option in patterns:
        found = re.compile(pattern.format(name=re.escape(option)))
        for name, text in files.items():
            if name.endswith((".json", "bench.sh", "k8s_bench.yaml")) or not found.search(text):
                continue
            tried.add(option)
            assert problems({**files, name: found.sub("", text, count=1)}), f"{name} without {option}"
    assert len(tried) > 12
