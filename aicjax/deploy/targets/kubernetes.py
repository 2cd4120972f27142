# SPDX-License-Identifier: Apache-2.0
"""Plain Kubernetes: engines' own servers behind a Service; prefill and decode apart behind a router."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aicjax._results import InputError
from aicjax.deploy.bench import JOB_FILE, bench_job
from aicjax.deploy.options import ENGINE_FILE
from aicjax.deploy.placement import require_one_node
from aicjax.deploy.read_back import Started
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Engine, Runtime, load_clusters, load_runtime, load_server
from aicjax.deploy.targets.pods import ENGINE_FOLDER, POD_ADDRESS, Pod, gpus_in, pod_of, port_problems, started_in
from aicjax.deploy.targets.target import Target
from aicjax.deploy.templates import documents, fill, yaml_text

MANIFEST_FILE = "kubernetes.yaml"
ROUTER_FILE = "router.yaml"
_COMPONENT = "app.kubernetes.io/component"
_ROUTER = "router"


@dataclass(frozen=True)
class PodSet:
    """Pods of one kind.

    Attributes:
        kind: `Deployment`, or `StatefulSet` where the router must find each by a name of its own.
        name, service: Names of the set, and of the service in front of it.
        pod: One of them.
    """

    kind: str
    name: str
    service: str
    pod: Pod

    def hosts(self) -> list[str]:
        """Names of the pods of a StatefulSet."""
        return [f"{self.name}-{number}.{self.service}" for number in range(self.pod.role.workers)]


@dataclass(frozen=True)
class Router:
    """What splits requests between prefill and decode.

    Attributes:
        name: Of its Deployment.
        image: Container image, that of the engine.
        command, arguments: What it runs.
        file: Content of its file; empty where it has none.
    """

    name: str
    image: str
    command: list[str]
    arguments: list[str]
    file: dict[str, Any]


def _render(deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    require_one_node(deployment, engine, "kubernetes", "bare-metal, slurm or dynamo")
    clusters, port = load_clusters(), runtime.ports["frontend"]
    sets = [_set(deployment, pod_of(deployment, role, engine, port)) for role in deployment.roles]
    router = _router(deployment, engine, sets, port) if deployment.disaggregated else None
    engine_files = {
        ENGINE_FILE.format(role=part.pod.role.name): yaml_text(part.pod.command.engine_file)
        for part in sets
        if part.pod.command.engine_file
    }
    if router and router.file:
        engine_files[ROUTER_FILE] = yaml_text(router.file)
    text = fill(
        "kubernetes.yaml.j2",
        deployment=deployment,
        sets=sets,
        router=router,
        port=port,
        health=engine.server.health,
        rules=clusters.probes,
        address=POD_ADDRESS,
        secret=deployment.site.secret or runtime.secret,
        cache=runtime.model_cache_path if deployment.site.model_cache else "",
        shared_memory=runtime.shared_memory,
        engine_files=engine_files,
        engine_folder=ENGINE_FOLDER,
    )
    return {MANIFEST_FILE: text, JOB_FILE: bench_job(deployment, runtime, _url(deployment, port))}


def _url(deployment: Deployment, port: int) -> str:
    return f"http://{deployment.name}:{port}"


def _set(deployment: Deployment, pod: Pod) -> PodSet:
    if not deployment.disaggregated:
        return PodSet("Deployment", deployment.name, deployment.name, pod)
    name = f"{deployment.name}-{pod.role.name}"
    return PodSet("StatefulSet", name, name, pod)


def _router(deployment: Deployment, engine: Engine, sets: list[PodSet], port: int) -> Router:
    server = engine.server
    if not server.router:
        others = "dynamo, llm-d-helm or llm-d-kustomize for prefill and decode apart"
        raise InputError("deployment_target", "kubernetes", f"{others}: the image of {engine.engine} has no router")
    prefill, decode = ([f"{host}:{port}" for host in part.hosts()] for part in sets)
    name, image = f"{deployment.name}-{_ROUTER}", sets[0].pod.image
    if engine.file:  # its router reads a file as the engine does
        file = {
            "hostname": "0.0.0.0",
            "port": port,
            "backend": engine.fixed["backend"],
            "context_servers": {"num_instances": len(prefill), "urls": prefill},
            "generation_servers": {"num_instances": len(decode), "urls": decode},
        }
        return Router(name, image, server.router, [f"{ENGINE_FOLDER}/{ROUTER_FILE}"], file)
    words = [["--prefill", f"http://{url}", str(server.transfer_port)] for url in prefill]
    words += [["--decode", f"http://{url}"] for url in decode]
    arguments = [*itertools.chain(*words), "--host", "0.0.0.0", "--port", str(port)]
    return Router(name, image, server.router, arguments, {})


def _read(files: Mapping[str, str]) -> list[Started]:
    objects = documents(files[MANIFEST_FILE])
    engine_files = next((document["data"] for document in objects if document["kind"] == "ConfigMap"), {})
    started = []
    for document in objects:
        component = document["metadata"].get("name")
        if document["kind"] not in ("Deployment", "StatefulSet"):
            continue
        role = document["spec"]["selector"]["matchLabels"][_COMPONENT]
        if role != _ROUTER:
            container = document["spec"]["template"]["spec"]["containers"][0]
            where, count = f"{MANIFEST_FILE}, {component}", document["spec"]["replicas"]
            started.append(started_in(where, role, count, container, engine_files, gpus_in(container)))
    return started


def _problems(deployment: Deployment, files: Mapping[str, str], started: list[Started]) -> Iterator[str]:
    """Names, ports of pods and services, and the router's list of workers."""
    engine, port = load_server(deployment.engine), load_runtime().ports["frontend"]
    for worker in started:
        yield from port_problems(engine, worker, port)
    objects = documents(files[MANIFEST_FILE])
    longest = load_clusters().longest_set_name
    for document in objects:
        kind, name = document["kind"], document["metadata"]["name"]
        if kind == "StatefulSet" and len(name) > longest:
            yield f"{MANIFEST_FILE}: {name} is longer than the {longest} characters of a StatefulSet"
        yield from (f"{MANIFEST_FILE}, {name}: {problem}" for problem in _of_ports(document, port))
    if deployment.disaggregated:
        yield from _of_router(deployment, engine, objects, port)


def _of_ports(document: Mapping[str, Any], port: int) -> Iterator[str]:
    spec = document.get("spec", {})
    found = [entry[what] for entry in spec.get("ports", ()) for what in ("port", "targetPort")]
    for container in spec.get("template", {}).get("spec", {}).get("containers", ()):
        found += [entry["containerPort"] for entry in container["ports"]]
        probes = (container[name] for name in container if name.endswith("Probe"))
        found += [probe["httpGet"]["port"] for probe in probes]
    yield from (f"port {stated}, not {port}" for stated in found if stated != port)


def _of_router(deployment: Deployment, engine: Engine, objects: list[Any], port: int) -> Iterator[str]:
    """The router must ask every worker, by its role, and no other."""
    sets = [_set(deployment, pod_of(deployment, role, engine, port)) for role in deployment.roles]
    wanted = _router(deployment, engine, sets, port)
    named = {(document["kind"], document["metadata"]["name"]): document for document in objects}
    router = named.get(("Deployment", wanted.name))
    if router is None:
        yield f"{MANIFEST_FILE}: no router between prefill and decode"
        return
    container = router["spec"]["template"]["spec"]["containers"][0]
    if container["command"] != wanted.command or container["args"] != wanted.arguments:
        yield f"{MANIFEST_FILE}, {wanted.name}: not the command that names every worker"
    if wanted.file:
        text = named[("ConfigMap", deployment.config_map)]["data"].get(ROUTER_FILE, "")
        if documents(text) != [wanted.file]:
            yield f"{MANIFEST_FILE}, {ROUTER_FILE}: not the file that names every worker"


TARGET = Target(_render, _read, _problems, load_server)
