# SPDX-License-Identifier: Apache-2.0
"""Plain Kubernetes: engines' own servers behind a Service; prefill and decode apart behind a router."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aicjax._results import InputError
from aicjax.deploy.bench import JOB_FILE, bench_job
from aicjax.deploy.options import ENGINE_FILE
from aicjax.deploy.placement import nodes_of, require_one_node
from aicjax.deploy.read_back import Started
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Engine, Runtime, load_clusters, load_runtime, load_server
from aicjax.deploy.targets.pods import ENGINE_FOLDER, POD_ADDRESS, Pod, gpus_in, pods_of, port_problems, started_in
from aicjax.deploy.targets.target import Target
from aicjax.deploy.templates import documents, fill, yaml_text

MANIFEST_FILE = "kubernetes.yaml"
ROUTER_FILE = "router.yaml"
_COMPONENT = "app.kubernetes.io/component"
_ROUTER = "router"


@dataclass(frozen=True)
class PodSet:
    """Workers of one kind.

    Attributes:
        kind: `Deployment`; `StatefulSet` where the router must find each by a name of its own; `LeaderWorkerSet` for
            workers over several nodes, each a group of pods.
        name: Of the set; a service of that name finds the pods of the last two.
        pods: The pod of a worker, or the first of a group and the others; one where all of a group are alike.
        nodes: Nodes of a worker.
    """

    kind: str
    name: str
    pods: tuple[Pod, ...]
    nodes: int

    @property
    def pod(self) -> Pod:
        """The pod that answers."""
        return self.pods[0]

    def hosts(self) -> list[str]:
        """Names of the pods that answer, of a StatefulSet or a LeaderWorkerSet."""
        return [f"{self.name}-{number}.{self.name}" for number in range(self.pod.role.workers)]


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
    if engine.mpi_launcher:
        require_one_node(deployment, engine, "kubernetes", "slurm or dynamo, which start its MPI world")
    clusters, port = load_clusters(), runtime.ports["frontend"]
    sets = _sets(deployment, engine, runtime)
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


def _sets(deployment: Deployment, engine: Engine, runtime: Runtime) -> list[PodSet]:
    port, meeting_port = runtime.ports["frontend"], runtime.ports["rendezvous"]
    sets = []
    for role in deployment.roles:
        nodes = nodes_of(deployment, role, engine)
        pods = pods_of(deployment, role, engine, port, nodes, meeting_port)
        alone = "StatefulSet" if deployment.disaggregated else "Deployment"
        name = f"{deployment.name}-{role.name if deployment.disaggregated else 'workers'}"
        sets.append(PodSet("LeaderWorkerSet" if nodes > 1 else alone, name, pods, nodes))
    return sets


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
        where, replicas = f"{MANIFEST_FILE}, {document['metadata']['name']}", document.get("spec", {}).get("replicas")
        for template, pods in _templates(document):
            role, container = template["metadata"]["labels"][_COMPONENT], template["spec"]["containers"][0]
            if role != _ROUTER:
                count = replicas * pods
                started.append(started_in(where, role, count, container, engine_files, gpus_in(container)))
    return started


def _templates(document: Mapping[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """Templates of the pods of an object, with how many pods each replica has of them."""
    spec = document.get("spec", {})
    if "leaderWorkerTemplate" in spec:
        group = spec["leaderWorkerTemplate"]
        if "leaderTemplate" not in group:
            return [(group["workerTemplate"], 1)]
        return [(group["leaderTemplate"], 1), (group["workerTemplate"], group["size"] - 1)]
    return [(spec["template"], 1)] if "template" in spec else []


def _problems(deployment: Deployment, files: Mapping[str, str], started: list[Started]) -> Iterator[str]:
    """Names, ports of pods and services, and the router's list of workers."""
    engine, port = load_server(deployment.engine), load_runtime().ports["frontend"]
    for worker in started:
        yield from port_problems(engine, worker, port)
    objects = documents(files[MANIFEST_FILE])
    longest = load_clusters().longest_set_name
    for document in objects:
        kind, name = document["kind"], document["metadata"]["name"]
        if kind in ("StatefulSet", "LeaderWorkerSet") and len(name) > longest:
            yield f"{MANIFEST_FILE}: {name} is longer than the {longest} characters of a {kind}"
        yield from (f"{MANIFEST_FILE}, {name}: {problem}" for problem in _of_ports(document, port))
    if f'"{_url(deployment, port)}"' not in files[JOB_FILE]:
        yield f"{JOB_FILE}: not the address of the service"
    yield from _of_groups(deployment, engine, objects)
    if deployment.disaggregated:
        yield from _of_router(deployment, engine, objects, port)


def _of_ports(document: Mapping[str, Any], port: int) -> Iterator[str]:
    spec = document.get("spec", {})
    found = [entry[what] for entry in spec.get("ports", ()) for what in ("port", "targetPort")]
    for container in (template["spec"]["containers"][0] for template, _ in _templates(document)):
        found += [entry["containerPort"] for entry in container["ports"]]
        probes = (container[name] for name in container if name.endswith("Probe"))
        found += [probe["httpGet"]["port"] for probe in probes]
    yield from (f"port {stated}, not {port}" for stated in found if stated != port)


def _of_groups(deployment: Deployment, engine: Engine, objects: list[Any]) -> Iterator[str]:
    """A group must have a pod for every node, and every pod must tell which it is."""
    groups = {entry.name: entry for entry in _sets(deployment, engine, load_runtime()) if entry.nodes > 1}
    for document in objects:
        name, wanted = document["metadata"]["name"], groups.get(document["metadata"]["name"])
        if document["kind"] == "LeaderWorkerSet" and wanted is not None:
            group = document["spec"]["leaderWorkerTemplate"]
            if group["size"] != wanted.nodes:
                yield f"{MANIFEST_FILE}, {name}: groups of {group['size']} pods, not {wanted.nodes}"
            container, pod = group["workerTemplate"]["spec"]["containers"][0], wanted.pods[-1]
            if (container["command"], container["args"]) != (pod.words, list(pod.command.arguments)):
                yield f"{MANIFEST_FILE}, {name}: the pods of a group do not tell which they are"


def _of_router(deployment: Deployment, engine: Engine, objects: list[Any], port: int) -> Iterator[str]:
    """The router must ask every worker, by its role, and no other."""
    wanted = _router(deployment, engine, _sets(deployment, engine, load_runtime()), port)
    named = {(document["kind"], document["metadata"]["name"]): document for document in objects}
    router = named.get(("Deployment", wanted.name))
    if router is None:
        yield f"{MANIFEST_FILE}: no router between prefill and decode"
        return
    container = router["spec"]["template"]["spec"]["containers"][0]
    if container["command"] != wanted.command or container["args"] != wanted.arguments:
        yield f"{MANIFEST_FILE}, {wanted.name}: not the command that names every worker"
    if container["image"] != wanted.image:
        yield f"{MANIFEST_FILE}, {wanted.name}: image {container['image']}, not {wanted.image}"
    if wanted.file:
        text = named[("ConfigMap", deployment.config_map)]["data"].get(ROUTER_FILE, "")
        if documents(text) != [wanted.file]:
            yield f"{MANIFEST_FILE}, {ROUTER_FILE}: not the file that names every worker"


TARGET = Target(_render, _read, _problems, load_server)
