# SPDX-License-Identifier: Apache-2.0
"""DynamoGraphDeployments of both versions, read back and checked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aicjax.deploy.bench import JOB_FILE
from aicjax.deploy.read_back import Started, from_container
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Runtime, load_engine, load_runtime
from aicjax.deploy.templates import documents

GRAPH_FILE = "deploy.yaml"
FRONTEND = "Frontend"
# Names of components are short: those of graph, component and part of a worker have at most 45 characters together
# (https://github.com/ai-dynamo/dynamo/pull/5449).
COMPONENTS = {"agg": "worker", "prefill": "prefill", "decode": "decode"}
_POD_NAME_LENGTH = 45
_PART_SUFFIX = "-ldr"


@dataclass(frozen=True)
class Component:
    """A component of a graph, as either version states it.

    Attributes:
        name, kind: What it is called, and what it is.
        count: Replicas.
        nodes: Nodes of each.
        pod: Spec of its pods.
        container: Their container, resources as in Kubernetes.
    """

    name: str
    kind: str
    count: int
    nodes: int
    pod: Mapping[str, Any]
    container: Mapping[str, Any]

    @property
    def where(self) -> str:
        """File, and the place in it."""
        return f"{GRAPH_FILE}, {self.name}"


def service_url(deployment: Deployment, runtime: Runtime) -> str:
    """Where the frontend of a graph answers in the cluster."""
    return f"http://{deployment.name}-{FRONTEND.lower()}:{runtime.ports['frontend']}"


def _components(graph: Mapping[str, Any]) -> Iterator[Component]:
    """Components of the version that lists them."""
    for stated in graph["components"]:
        pod = stated["podTemplate"]["spec"]
        yield Component(stated["name"], stated["type"], stated["replicas"], _nodes(stated), pod, pod["containers"][0])


def _services(graph: Mapping[str, Any]) -> Iterator[Component]:
    """Components of the version that has them by name."""
    for name, stated in graph["services"].items():
        kind, pod = stated.get("subComponentType", stated["componentType"]), stated["extraPodSpec"]
        gpus = {"limits": {"nvidia.com/gpu": stated["resources"]["limits"]["gpu"]}} if "resources" in stated else {}
        container = {**pod["mainContainer"], "resources": gpus}
        yield Component(name, kind, stated["replicas"], _nodes(stated), pod, container)


def _nodes(stated: Mapping[str, Any]) -> int:
    return stated.get("multinode", {}).get("nodeCount", 1)


_READERS = {"nvidia.com/v1beta1": _components, "nvidia.com/v1alpha1": _services}


def components(text: str) -> list[Component]:
    """Components of the graph in a file, the frontend first.

    Raises:
        KeyError, ValueError: There is none.
    """
    graph = next(document for document in documents(text) if document["kind"] == "DynamoGraphDeployment")
    return list(_READERS[graph["apiVersion"]](graph["spec"]))


def read(files: Mapping[str, str]) -> list[Started]:
    """The workers of a graph."""
    text = files[GRAPH_FILE]
    engine_files = next((found["data"] for found in documents(text) if found["kind"] == "ConfigMap"), {})
    workers = [component for component in components(text) if component.kind != "frontend"]
    return [from_container(part.where, part.count, part.container, engine_files, part.nodes) for part in workers]


def problems(deployment: Deployment, files: Mapping[str, str], started: list[Started]) -> Iterator[str]:
    """Kinds, probes, names and NVLink domains of the components; the address that the Job measures."""
    text, runtime = files[GRAPH_FILE], load_runtime()
    maps = {found["metadata"]["name"] for found in documents(text) if found["kind"] == "ConfigMap"}
    domains = {found["metadata"]["name"] for found in documents(text) if found["kind"] == "ComputeDomain"}
    for part in components(text):
        frontend = part.name == FRONTEND
        image = deployment.site.image or load_engine(deployment.engine).image
        if frontend and part.container["image"] != image:
            yield f"{part.where}: image {part.container['image']}, not {image}"
        if part.kind != part.name.lower():
            yield f"{part.where}: its kind is {part.kind}"
        for name, probe in runtime.probes["frontend" if frontend else "worker"].items():
            if not _as_patient(part.container.get(name) or {}, probe):
                asked = f"{probe['path']} on port {probe['port']}"
                yield f"{part.where}: its {name} does not ask {asked}, or gives up too early"
        claimed = {claim["resourceClaimTemplateName"] for claim in part.pod.get("resourceClaims", ())}
        if claimed - domains or (part.nodes > 1 and deployment.gpus_per_rack and not claimed):
            yield f"{part.where}: no NVLink domain joins its nodes"
        mounted = {volume["configMap"]["name"] for volume in part.pod.get("volumes", ()) if "configMap" in volume}
        if not frontend and maps - mounted:
            yield f"{part.where}: it does not mount {', '.join(sorted(maps - mounted))}"
        named = [deployment.name, part.name, *([part.name + _PART_SUFFIX] if part.nodes > 1 else [])]
        if (beyond := len("".join(named)) - _POD_NAME_LENGTH) > 0:
            room = len(deployment.name) - beyond
            yield f"name {deployment.name!r} is longer than {room} characters, too long for the pods of {part.name}"
    if f'"{service_url(deployment, runtime)}"' not in files[JOB_FILE]:
        yield f"{JOB_FILE}: not the address of the frontend"


def _as_patient(stated: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a probe of Kubernetes asks the same place and waits for an answer at least as long."""
    asked = stated.get("httpGet") == {"path": wanted["path"], "port": wanted["port"]}
    lasts = stated.get("periodSeconds", 0) * stated.get("failureThreshold", 0) >= wanted["period"] * wanted["failures"]
    return asked and lasts and stated.get("timeoutSeconds", 1) >= wanted["timeout"]
