# SPDX-License-Identifier: Apache-2.0
"""The batch job of Slurm: what it asks for, and what it starts where commands of the cluster only note their words."""

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from aicjax.deploy.build import build
from aicjax.deploy.checks import problems
from aicjax.deploy.record import Site
from aicjax.deploy.render import render
from aicjax.deploy.targets.slurm import enroot
from tests.deploy.rows import INPUTS, wide_row

JOB = "job.sbatch"
# Commands of a cluster: srun notes its words and stays; the model is served once all steps have been noted.
COMMANDS = {
    "srun": 'echo "$@" >>"$NOTES"; case "$*" in *bench.sh*) ;; *) exec /bin/sleep 20 ;; esac',
    "scontrol": "printf 'first\\nsecond\\nthird\\nfourth\\n'",
    "getent": "case $2 in first) echo '10.0.0.1 STREAM' ;; *) echo '10.0.0.9 STREAM' ;; esac",
    "curl": '[[ $(wc -l <"$NOTES") -lt $STEPS ]] || echo "{\\"id\\":\\"$MODEL\\"}"',
    "sleep": "",
}


def _job(engine: str, *, experts: bool = False, gpus: int = 16, **site: str) -> dict[str, str]:
    row = wide_row(engine, gpus, experts=experts, disaggregated=True)
    return render(build(row, {**INPUTS, "total_gpus": 2 * gpus}, site=Site(**site)), "slurm")


@pytest.mark.parametrize(
    ("engine", "experts", "gpus"), list(itertools.product(("vllm", "sglang", "trtllm"), (False, True), (4, 8, 16, 32)))
)
def test_job_passes_every_check(engine: str, experts: bool, gpus: int):
    files = _job(engine, experts=experts, gpus=gpus)
    assert problems(files) == []
    assert f"#SBATCH --nodes={max(1, 2 * gpus // 8)}\n" in files[JOB]
    assert "#SBATCH --gpus-per-node=8\n" in files[JOB]


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """The environment of a job on four nodes, whose commands note what they are told."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, text in COMMANDS.items():
        (commands / name).write_text(f"#!/bin/bash\n{text}\n")
        (commands / name).chmod(0o755)
    variables = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n", "BENCH": "1"}
    path = f"{commands}:{os.environ['PATH']}"
    return {**variables, "PATH": path, "NOTES": str(tmp_path / "notes"), "MODEL": "Qwen/Qwen3-32B"}


def _started(files: dict[str, str], cluster: dict[str, str]) -> list[str]:
    folder = Path(cluster["SLURM_SUBMIT_DIR"])
    for name, text in files.items():
        (folder / name).write_text(text)
    services = 2 if "ETCD_ENDPOINTS" in cluster else 0
    steps = files[JOB].count('"${step[@]}"') - 1 - services  # the last step is the benchmark
    Path(cluster["NOTES"]).touch()
    ran = subprocess.run(
        ["bash", folder / JOB],
        env={**cluster, "STEPS": str(steps)},
        capture_output=True,
        text=True,
        check=False,
        timeout=15,
        cwd="/",
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "served at http://10.0.0.1:8000\n"
    return Path(cluster["NOTES"]).read_text().splitlines()


def test_job_starts_every_part_on_its_node_and_then_measures(cluster: dict[str, str]):
    notes = _started(_job("vllm"), cluster)
    workers = sorted(note for note in notes if "dynamo.vllm" in note)
    assert [note.split("--nodelist=")[1].split()[0] for note in workers] == ["first", "fourth", "second", "third"]
    assert all("--container-image=nvcr.io#nvidia/ai-dynamo/vllm-runtime:1.3.0" in note for note in workers)
    head, other = workers[0], workers[2]
    assert "--nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29500" in head and "--headless" not in head
    assert "--node-rank 1 --master-addr 10.0.0.1 --master-port 29500 --headless" in other
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST=10.0.0.9" in other
    assert [sum(name in note for note in notes) for name in ("etcd --", "nats-server", "dynamo.frontend")] == [1, 1, 1]
    assert notes[-1].endswith("bash bench.sh") and "aiperf:0.12.0" in notes[-1]


def test_job_uses_services_that_run_and_no_container_when_told(cluster: dict[str, str]):
    told = {"ETCD_ENDPOINTS": "http://e:2379", "NATS_SERVER": "nats://n:4222", "IMAGE": "", "CLIENT_IMAGE": ""}
    notes = _started(_job("sglang"), {**cluster, **told})
    assert not any("etcd --" in note or "nats-server" in note or "--container-image" in note for note in notes)
    assert sum("--dist-init-addr 10.0.0.1:29500 --nnodes 2 --node-rank" in note for note in notes) == 2


def test_worker_of_tensorrt_llm_is_one_mpi_world_over_its_nodes(cluster: dict[str, str]):
    notes = _started(_job("trtllm"), cluster)
    workers = sorted(note for note in notes if "dynamo.trtllm" in note)
    assert len(workers) == 2
    assert "--mpi=pmix --nodes=2 --ntasks-per-node=8 --nodelist=first,second" in workers[0]
    assert all("trtllm-llmapi-launch python3 -m dynamo.trtllm" in note for note in workers)


@pytest.mark.parametrize(
    ("engine", "right", "wrong", "problem"),
    [
        ("vllm", "--nodes=4\n", "--nodes=3\n", "--nodes is 3, not 4"),
        ("vllm", "--gpus-per-node=8", "--gpus-per-node=4", "--gpus-per-node is 4, not 8"),
        ("vllm", "--http-port 8000", "--http-port 8001", "no frontend"),
        ("vllm", "vllm-runtime:1.3.0", "vllm-runtime:main", "no pinned tag"),
        ("vllm", "aiperf:0.12.0", "aiperf:nightly", "no pinned tag"),
        ("vllm", "--node-rank 1", "--node-rank 0", "not on 2 nodes"),
        ("vllm", '--nodelist="${NODE[1]}"', '--nodelist="${NODE[0]}"', "GPU is used twice"),
        ("vllm", '--master-addr "${ADDRESS[0]}"', '--master-addr "${ADDRESS[1]}"', "the first is on node 0"),
        ("vllm", " --headless", "", "--headless is False, not True"),
        ("sglang", "--nnodes 2", "--nnodes 1", "8 GPUs, not 16"),
        ("trtllm", "--ntasks-per-node=8 --nodelist", "--ntasks-per-node=1 --nodelist", "no MPI world"),
        ("trtllm", "trtllm-llmapi-launch python3", "python3", "no MPI world"),
        ("trtllm", '"${NODE[0]},${NODE[1]}"', '"${NODE[0]}"', "8 GPUs, not 16"),
        ("vllm", "served at", "$(served at", "unexpected EOF"),
    ],
)
def test_mistake_in_a_job_is_found(engine: str, right: str, wrong: str, problem: str):
    files = _job(engine)
    assert right in files[JOB].replace(" \\\n    ", " ")
    files[JOB] = files[JOB].replace(" \\\n    ", " ").replace(right, wrong)
    assert problem in "; ".join(problems(files))


def test_model_of_a_folder_is_mounted():
    row = {**wide_row("vllm", 8), "model": "/models/qwen"}
    job = render(build(row, {**INPUTS, "total_gpus": 8}), "slurm")[JOB]
    assert 'MOUNTS="${MOUNTS:-$PWD:$PWD,/models/qwen:/models/qwen${HF_HOME' in job


def test_image_of_the_user_is_named_as_the_plugin_does():
    assert 'IMAGE="${IMAGE-registry:5000#team/engine:2.0}"' in _job("vllm", image="registry:5000/team/engine:2.0")[JOB]
    assert enroot("/images/engine.sqsh") == "/images/engine.sqsh"
    assert enroot("vllm/vllm-openai:v0.24.0") == "vllm/vllm-openai:v0.24.0"
    assert problems(_job("vllm", image="/images/engine.sqsh")) == []
