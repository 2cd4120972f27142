# SPDX-License-Identifier: Apache-2.0
"""What the Helm chart and the guides of llm-d have in common: engines, names of workers, and where pods answer."""

import re
from collections.abc import Iterator
from pathlib import PurePath

from aicjax._results import InputError
from aicjax.deploy.placement import nodes_of, require_one_node
from aicjax.deploy.read_back import Started
from aicjax.deploy.record import LABEL_LENGTH, Deployment, Role
from aicjax.deploy.settings import Engine, LlmD, load_clusters, load_runtime, load_server
from aicjax.deploy.targets.pods import Pod, pods_of, port_problems, shares_ranks

DECODE, PREFILL = "decode", "prefill"


def llm_d() -> LlmD:
    """Chart, guides and ports."""
    return load_clusters().llm_d


def require_llm_d(deployment: Deployment, engine: Engine, target: str, *, groups: bool = False) -> None:
    """Refuses what llm-d does not start.

    Args:
        deployment, engine: What is deployed.
        target: What for.
        groups: Whether it starts groups of pods that are all alike, each with an endpoint.

    Raises:
        InputError: An engine without guides there, a worker over several nodes, or a model in a directory.
    """
    known = llm_d().engines
    if engine.engine not in known:
        raise InputError("backend", engine.engine, f"{' or '.join(known)} for {target}: llm-d has no other engine")
    wide = [role for role in deployment.roles if nodes_of(deployment, role, engine) > 1]
    if not (groups and all(shares_ranks(role, engine) for role in wide)):
        require_one_node(deployment, engine, target, "bare-metal, slurm or dynamo")
    if deployment.model.startswith(("/", ".", "~")):
        raise InputError("model", deployment.model, f"a Hugging Face name for {target}, which downloads it")


def pods(deployment: Deployment, engine: Engine) -> dict[str, Pod]:
    """Pods by the name that llm-d has for them: workers that do everything are its decode workers."""
    found = {}
    for role in deployment.roles:
        port, nodes = port_of(deployment, section(role)), nodes_of(deployment, role, engine)
        (found[section(role)],) = pods_of(deployment, role, engine, port, nodes, load_runtime().ports["rendezvous"])
    return found


def section(role: Role) -> str:
    """What llm-d calls a kind of worker."""
    return PREFILL if role.name == PREFILL else DECODE


def port_of(deployment: Deployment, name: str) -> int:
    """Where an engine answers: on the port of the pod, or behind the proxy that answers there in a decode pod."""
    behind_proxy = deployment.disaggregated and name == DECODE
    return llm_d().target_port if behind_proxy else llm_d().service_port


def model_label(model: str) -> str:
    """A model's name as the value of a label."""
    return re.sub(r"[^\w.-]", "-", PurePath(model).name)[:LABEL_LENGTH].strip("-._")


def router_url(deployment: Deployment) -> str:
    """Where the router of the guide answers inside the cluster."""
    return f"http://{llm_d().router_of(deployment.disaggregated)}"


def worker_problems(deployment: Deployment, started: list[Started]) -> Iterator[str]:
    """Ports of the workers that both kinds of files start."""
    engine = load_server(deployment.engine)
    for worker in started:
        name = PREFILL if worker.role == PREFILL else DECODE
        yield from port_problems(engine, worker, port_of(deployment, name))
