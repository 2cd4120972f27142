# SPDX-License-Identifier: Apache-2.0
"""Values for the Helm chart of llm-d."""

from collections.abc import Iterator, Mapping
from typing import Any

from aicjax.deploy.bench import JOB_FILE, bench_job
from aicjax.deploy.read_back import Started
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Engine, Runtime, load_clusters, load_server
from aicjax.deploy.targets.llm_d import (
    DECODE,
    PREFILL,
    llm_d,
    model_label,
    pods,
    require_llm_d,
    router_url,
    worker_problems,
)
from aicjax.deploy.targets.pods import POD_ADDRESS, Pod, gpus_in, started_in
from aicjax.deploy.targets.target import Target
from aicjax.deploy.templates import documents, fill

VALUES_FILE = "llm-d-values.yaml"
NAME_LENGTH = 55  # the chart cuts longer names
_HUB_FOLDER = "hub"  # of a model cache, below the folder that HF_HOME names


def _render(deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    require_llm_d(deployment, engine, "llm-d-helm", groups=True)
    parts = pods(deployment, engine)
    text = fill(
        "llm-d-values.yaml.j2",
        deployment=deployment,
        llm_d=llm_d(),
        pods=parts,
        multinode=any(pod.nodes > 1 for pod in parts.values()),
        guide=llm_d().guide_of(deployment.disaggregated),
        label=model_label(deployment.model),
        uri=_uri(deployment),
        secret=deployment.site.secret or llm_d().secret,
        address=POD_ADDRESS,
        health=engine.server.health,
        rules=load_clusters().probes,
        transfer_port=engine.server.transfer_port,
        shared_memory=runtime.shared_memory,
    )
    return {VALUES_FILE: text, JOB_FILE: bench_job(deployment, runtime, router_url(deployment), llm_d().secret)}


def _uri(deployment: Deployment) -> str:
    claim = deployment.site.model_cache
    return f"pvc+hf://{claim}/{_HUB_FOLDER}/{deployment.model}" if claim else f"hf://{deployment.model}"


def _read(files: Mapping[str, str]) -> list[Started]:
    values = documents(files[VALUES_FILE])[0]
    apart = values[PREFILL]["create"]
    started = []
    for name in (PREFILL, DECODE):
        part = values[name]
        if part["create"]:
            container = part["containers"][0]
            role = name if apart else "agg"
            gpus = part["parallelism"]["tensor"] * part["parallelism"]["dataLocal"]
            where = f"{VALUES_FILE}, {name}"
            started.append(started_in(where, role, part["replicas"], container, {}, gpus))
    return started


def _problems(deployment: Deployment, files: Mapping[str, str], started: list[Started]) -> Iterator[str]:
    """Ports of proxy and servers, GPUs stated twice, labels that are no strings, nulls."""
    values = documents(files[VALUES_FILE])[0]
    yield from worker_problems(deployment, started)
    if f'"{router_url(deployment)}"' not in files[JOB_FILE]:
        yield f"{JOB_FILE}: not the address of the router"
    if values["modelArtifacts"]["uri"] != _uri(deployment):
        yield f"{VALUES_FILE}: modelArtifacts.uri is {values['modelArtifacts']['uri']}, not {_uri(deployment)}"
    if deployment.disaggregated and values["routing"]["proxy"].get("image") != llm_d().chart_proxy:
        yield f"{VALUES_FILE}: the proxy is not {llm_d().chart_proxy}"
    yield from (f"{VALUES_FILE}: {place} is null" for place in _nulls(values))
    if len(deployment.name) > NAME_LENGTH:
        yield f"name {deployment.name!r} is longer than the {NAME_LENGTH} characters that the chart keeps"
    labels = values["modelArtifacts"]["labels"]
    yield from (f"{VALUES_FILE}: label {name} is no string" for name in labels if not isinstance(labels[name], str))
    proxy = values["routing"]["proxy"]
    stated = (values["routing"]["servicePort"], proxy.get("targetPort"), proxy["enabled"])
    wanted = (llm_d().service_port, llm_d().target_port if deployment.disaggregated else None, deployment.disaggregated)
    if stated != wanted:
        yield f"{VALUES_FILE}: the proxy and the servers do not agree on their ports"
    if deployment.disaggregated and proxy["connector"] != llm_d().connectors[deployment.engine]:
        yield f"{VALUES_FILE}: the proxy does not speak the protocol of {deployment.engine}"
    engine = load_server(deployment.engine)
    parts = pods(deployment, engine)
    if values["multinode"] != any(pod.nodes > 1 for pod in parts.values()):
        yield f"{VALUES_FILE}: multinode is {str(values['multinode']).lower()}"
    for name in (PREFILL, DECODE):
        if values[name]["create"]:
            yield from (f"{VALUES_FILE}, {name}: {problem}" for problem in _of_part(values[name], parts[name], engine))


def _of_part(part: Mapping[str, Any], pod: Pod, engine: Engine) -> Iterator[str]:
    """The part of the values for one kind of pods."""
    container, sizes = part["containers"][0], part["parallelism"]
    if gpus_in(container) != sizes["tensor"] * sizes["dataLocal"]:
        yield "tensor times dataLocal are not the GPUs of a pod"
    if (sizes["workers"], sizes["data"]) != (pod.nodes, pod.role.layout.dp):
        yield "other workers or ranks than a replica has"
    if container["command"] != pod.words:
        yield "not the command of its server"
    probed = {probe["httpGet"]["port"] for probe in container["extraConfig"].values()}
    open_ports = {entry["containerPort"] for entry in container["ports"]} - {engine.server.transfer_port}
    if probed != {pod.port} or open_ports != {pod.port}:
        yield f"not all ports are {pod.port}"


def _nulls(values: Any, place: str = "") -> Iterator[str]:
    if values is None:
        yield place
    children = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for name, value in children:
        yield from _nulls(value, f"{place}.{name}" if place else str(name))


TARGET = Target(_render, _read, _problems, load_server, lambda: llm_d().secret)
