# SPDX-License-Identifier: Apache-2.0
"""A DynamoGraphDeployment for the operator of NVIDIA Dynamo, in the versions `v1beta1` and `v1alpha1`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from aicjax.deploy.bench import JOB_FILE, bench_job
from aicjax.deploy.images import is_pinned
from aicjax.deploy.options import ENGINE_FILE, Command, command, variables
from aicjax.deploy.placement import nodes_of, ports_of
from aicjax.deploy.read_back import Started, from_container
from aicjax.deploy.record import Deployment, Role
from aicjax.deploy.settings import Engine, Runtime
from aicjax.deploy.targets.target import Target
from aicjax.deploy.templates import documents, fill, yaml_text

DYNAMO_FILE = "deploy.yaml"
# Names of components are short: those of graph, component and part of a worker have at most 45 characters together
# (https://github.com/ai-dynamo/dynamo/pull/5449).
_COMPONENTS = {"agg": "worker", "prefill": "prefill", "decode": "decode"}
_FRONTEND = "Frontend"
_POD_NAME_LENGTH = 45
_PART_SUFFIX = "-ldr"
_ENGINE_FOLDER = "/etc/aicjax"


@dataclass(frozen=True)
class Component:
    """One kind of worker of a graph.

    Attributes:
        name: In the graph.
        role: What it is.
        nodes: Nodes of one worker.
        domain: NVLink domain over the nodes of its workers; empty where there is none.
        command: What a worker runs; the operator adds what joins its nodes.
    """

    name: str
    role: Role
    nodes: int
    domain: str
    command: Command

    @property
    def gpus(self) -> int:
        """GPUs of a pod."""
        return self.role.layout.gpus // self.nodes


def _render(template: str, deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    components, engine_files = [], {}
    for role in deployment.roles:
        file = ENGINE_FILE.format(role=role.name)
        started = command(deployment, role, engine, ports_of(0, runtime), f"{_ENGINE_FOLDER}/{file}")
        nodes = nodes_of(deployment, role, engine)
        domain = f"{deployment.name}-{role.name}" if nodes > 1 and deployment.gpus_per_rack else ""
        components.append(Component(_COMPONENTS[role.name], role, nodes, domain, started))
        if started.engine_file:
            engine_files[file] = yaml_text(started.engine_file)
    text = fill(
        template,
        deployment=deployment,
        engine=engine,
        runtime=runtime,
        components=components,
        engine_files=engine_files,
        engine_folder=_ENGINE_FOLDER,
        environment=variables(deployment, engine),
        image=deployment.site.image or engine.image,
        secret=deployment.site.secret or runtime.secret,
    )
    url = f"http://{deployment.name}-{_FRONTEND.lower()}:{runtime.ports['frontend']}"
    return {DYNAMO_FILE: text, JOB_FILE: bench_job(deployment, runtime, url)}


def _beta(graph: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    for component in graph["components"]:
        if component["type"] != "frontend":
            yield component["name"], component, component["podTemplate"]["spec"]["containers"][0]


def _alpha(graph: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    for name, service in graph["services"].items():
        if service["componentType"] != "frontend":
            limits = {"limits": {"nvidia.com/gpu": service["resources"]["limits"]["gpu"]}}
            yield name, service, {**service["extraPodSpec"]["mainContainer"], "resources": limits}


def _read(files: Mapping[str, str]) -> list[Started]:
    found = documents(files[DYNAMO_FILE])
    engine_files = next((document["data"] for document in found if document["kind"] == "ConfigMap"), {})
    graph = found[-1]
    workers = (_beta if graph["apiVersion"].endswith("v1beta1") else _alpha)(graph["spec"])
    return [
        from_container(
            f"{DYNAMO_FILE}, {name}",
            component["replicas"],
            container,
            engine_files,
            component.get("multinode", {}).get("nodeCount", 1),
        )
        for name, component, container in workers
    ]


def _problems(deployment: Deployment, files: Mapping[str, str], started: list[Started]) -> Iterator[str]:
    """Images with a pinned tag; names that leave room for those of pods."""
    for worker in started:
        if not is_pinned(worker.image):
            yield f"{worker.where}: image {worker.image!r} has no pinned tag"
        component = worker.where.rsplit(" ", 1)[-1]
        pod = [deployment.name, component, *([component + _PART_SUFFIX] if worker.nodes > 1 else [])]
        if (beyond := len("".join(pod)) - _POD_NAME_LENGTH) > 0:
            room = len(deployment.name) - beyond
            yield f"name {deployment.name!r} is longer than {room} characters, too long for the pods of {component}"


BETA = Target(partial(_render, "dynamo_v1beta1.yaml.j2"), _read, _problems)
ALPHA = Target(partial(_render, "dynamo_v1alpha1.yaml.j2"), _read, _problems)
