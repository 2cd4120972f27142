# SPDX-License-Identifier: Apache-2.0
"""A batch job of Slurm that starts the frontend and every worker as a step of its own."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aicjax.deploy.images import IMAGE_FILE, is_pinned
from aicjax.deploy.launches import Launch, launches, node_problems
from aicjax.deploy.read_back import Started, from_script
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Engine, Runtime, load_engine, load_runtime
from aicjax.deploy.targets.target import Target
from aicjax.deploy.templates import fill

JOB_FILE = "job.sbatch"
_SERVICES = (  # with the variable that says where each is, and what its port stands behind
    ("etcd", "ETCD_ENDPOINTS", "--listen-client-urls http://0\\.0\\.0\\.0:"),
    ("nats", "NATS_SERVER", "--jetstream --port "),
)
_IMAGE = re.compile(r'IMAGE="\$\{\w+-(.*?)\}"')


@dataclass(frozen=True)
class Step:
    """A step of the job.

    Attributes:
        start: What is started.
        nodes: Nodes of the step, by number.
        tasks: Tasks on each: one, or one for each GPU of an MPI world.
        launcher: Words before the command.
        log: Name of its log, without the ending.
    """

    start: Launch
    nodes: tuple[int, ...]
    tasks: int
    launcher: str
    log: str


def _render(deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    starts, files = launches(deployment, engine, runtime)
    steps = list(_steps(starts, engine))
    job = fill(
        "job.sbatch.j2",
        deployment=deployment,
        runtime=runtime,
        steps=steps,
        nodes=1 + max(start.placed.node for start in starts),
        gpus=max(1 + start.placed.gpus[-1] for start in starts),
        tasks=max(step.tasks for step in steps),
        image=enroot(deployment.site.image or engine.image),
        client_image=enroot(runtime.benchmark_client["image"]),
    )
    return {JOB_FILE: job, **files}


def _steps(starts: list[Launch], engine: Engine) -> Iterator[Step]:
    """One step for each start; an MPI world over several nodes is one step that its first part stands for."""
    numbers: dict[str, int] = {}
    for start in starts:
        placed, member = start.placed, start.placed.member
        part = member.node if member else 0
        if engine.mpi_launcher and part:
            continue
        name = placed.role.name
        numbers[name] = numbers.get(name, -1) + (part == 0)
        log = f"{name}{numbers[name]}" + (f"_part{part}" if member and not engine.mpi_launcher else "")
        if engine.mpi_launcher:
            nodes = range(placed.node, placed.node + (member.nodes if member else 1))
            yield Step(start, tuple(nodes), len(placed.gpus), f"{engine.mpi_launcher} ", log)
        else:
            yield Step(start, (placed.node,), 1, "", log)


def enroot(image: str) -> str:
    """An image as the container plugin of Slurm (Pyxis) names it: the registry ends with `#`.

    Example:
        >>> enroot("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.0")
        'nvcr.io#nvidia/ai-dynamo/vllm-runtime:1.3.0'
    """
    registry, slash, rest = image.partition("/")
    return f"{registry}#{rest}" if slash and re.fullmatch(r"[\w-]+[.:][\w.:-]+", registry) else image


def _read(files: Mapping[str, str]) -> list[Started]:
    return from_script(JOB_FILE, files[JOB_FILE], files)


def _problems(deployment: Deployment, files: Mapping[str, str], started: list[Started]) -> Iterator[str]:
    """A frontend on its port; enough nodes and GPUs asked for; MPI worlds with a task for each GPU; pinned images."""
    text, engine = files[JOB_FILE], load_engine(deployment.engine)
    if f"--http-port {load_runtime().ports['frontend']} " not in text:
        yield f"{JOB_FILE}: no frontend on its port"
    asked = {name: int(number) for name, number in re.findall(r"^#SBATCH --([\w-]+)=(\d+)$", text, re.MULTILINE)}
    needed = {
        "nodes": 1 + max(node for worker in started for node in worker.on),
        "gpus-per-node": 1 + max(gpu for worker in started for gpu in worker.gpus),
    }
    yield from (
        f"{JOB_FILE}: --{name} is {asked.get(name)}, not {number}"
        for name, number in needed.items()
        if asked.get(name) != number
    )
    for service, variable, option in _SERVICES:
        port = load_runtime().ports[service]
        if not (re.search(rf"{variable}=\"[^\"]*:{port}\"", text) and re.search(rf"{option}{port}(?!\d)", text)):
            yield f"{JOB_FILE}: {service} is not on port {port} for all"
    wanted = [
        enroot(image) for image in (deployment.site.image or engine.image, load_runtime().benchmark_client["image"])
    ]
    if (images := _IMAGE.findall(text)) != wanted:
        yield f"{JOB_FILE}: images {', '.join(images)}, not {', '.join(wanted)}"
    for image in images:
        if not (is_pinned(image.replace("#", "/", 1)) or image.endswith(IMAGE_FILE)):
            yield f"{JOB_FILE}: image {image!r} has no pinned tag"
    if engine.mpi_launcher:
        world = rf"--ntasks-per-node=(\d+) .*CUDA_VISIBLE_DEVICES=([\d,]+) .*{engine.mpi_launcher} "
        worlds = re.findall(world, text.replace("\\\n", " "))
        if len(worlds) != len(started) or any(int(tasks) != len(gpus.split(",")) for tasks, gpus in worlds):
            yield f"{JOB_FILE}: a worker is no MPI world with one task for each GPU"
    yield from node_problems(deployment, started)


TARGET = Target(_render, _read, _problems)
