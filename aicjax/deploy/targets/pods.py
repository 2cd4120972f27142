# SPDX-License-Identifier: Apache-2.0
"""Pods that run an engine's own server: what their container is told, and what manifests say of it."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aicjax.deploy.options import ENGINE_FILE, Command, Member, Ports, command, variables
from aicjax.deploy.read_back import Started, options_of
from aicjax.deploy.record import Deployment, Role
from aicjax.deploy.settings import Engine

ENGINE_FOLDER = "/etc/aicjax"
POD_ADDRESS = "status.podIP"
LEADER, INDEX = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"  # set in the pods of a LeaderWorkerSet
_SHELL = ["bash", "-c"]
_SHARE = re.compile(r'exec (.+) "\$@" (--[\w-]+) \$\(\(LWS_WORKER_INDEX \* \d+\)\)')
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Pod:
    """A pod of one kind of worker.

    Attributes:
        role: What it is.
        command: What it runs.
        image: Container image.
        port: Where it answers.
        answers: Whether it does; of the pods of a worker over several nodes only the first.
        environment: Variables and their values; `POD_ADDRESS` stands for the address of the pod.
        gpus: GPUs of one.
        nodes: Nodes of the worker that it belongs to.
        share: Words of a shell that add what only the pod can compute; empty where nothing is.
    """

    role: Role
    command: Command
    image: str
    port: int
    answers: bool
    environment: Mapping[str, str]
    gpus: int
    nodes: int = 1
    share: str = ""

    @property
    def words(self) -> list[str]:
        """Words before the options."""
        return [*_SHELL, self.share, _SHELL[0]] if self.share else self.command.module.split()


def pods_of(
    deployment: Deployment, role: Role, engine: Engine, port: int, nodes: int, meeting_port: int
) -> tuple[Pod, ...]:
    """The pod of a worker; over several nodes the first pod and the others, which are all alike.

    Where its nodes share out whole ranks, each with an endpoint, all pods are alike.

    Args:
        deployment, role: Which worker.
        engine: Its server.
        port: Where it answers.
        nodes: Nodes of the worker.
        meeting_port: Where its pods meet.
    """
    if nodes == 1:
        return (pod_of(deployment, role, engine, port),)
    if shares_ranks(role, engine):
        return (_with_ranks(pod_of(deployment, role, engine, port, Member(nodes, 0, LEADER, meeting_port)), engine),)
    members = (Member(nodes, node, LEADER, meeting_port) for node in (0, 1))
    first, second = (pod_of(deployment, role, engine, port, member) for member in members)
    words = list(second.command.arguments)
    words[words.index(engine.arguments["node"]) + 1] = INDEX
    others = dataclasses.replace(second.command, arguments=tuple(words))
    return first, dataclasses.replace(second, command=others, answers=False)


def shares_ranks(role: Role, engine: Engine) -> bool:
    """Whether a worker over several nodes has ranks of data parallel attention of its own on each."""
    return engine.rank_gpus(role.layout) < role.layout.gpus


def _with_ranks(pod: Pod, engine: Engine) -> Pod:
    """The pod with the number of its first rank left to a shell, which knows which pod of the group it is."""
    words, option = list(pod.command.arguments), engine.arguments["first_rank"]
    at = words.index(option)
    del words[at : at + 2]
    ranks = words[words.index(engine.arguments["local_ranks"]) + 1]
    share = f'exec {pod.command.module} "$@" {option} $((LWS_WORKER_INDEX * {ranks}))'
    return dataclasses.replace(pod, command=dataclasses.replace(pod.command, arguments=tuple(words)), share=share)


def pod_of(deployment: Deployment, role: Role, engine: Engine, port: int, member: Member | None = None) -> Pod:
    """The pod of a worker on one node, or of its part of a worker over several.

    Args:
        deployment, role: Which worker.
        engine: Its server.
        port: Where it answers.
        member: Which part.
    """
    ports = Ports(system=port, engine=port, transfer=engine.server.transfer_port)
    file = f"{ENGINE_FOLDER}/{ENGINE_FILE.format(role=role.name)}"
    started = command(deployment, role, engine, ports, file, member)
    transfer = _transfer_environment(engine) if deployment.disaggregated else {}
    environment = {**transfer, **variables(deployment, engine)}
    image = deployment.site.image or engine.image
    nodes = member.nodes if member else 1
    return Pod(role, started, image, port, True, environment, role.layout.gpus // nodes, nodes)


def _transfer_environment(engine: Engine) -> dict[str, str]:
    """Where a worker tells the place of its KV caches."""
    known = {"transfer_port": str(engine.server.transfer_port), "transfer_host": POD_ADDRESS}
    return {name: known[what] for what, name in engine.environment.items()}


def started_in(
    where: str, role: str, count: int, container: Mapping[str, Any], files: Mapping[str, str], gpus: int
) -> Started:
    """Workers as a manifest states their container.

    Args:
        where: File, and the place in it.
        role, count, gpus: What they are, how many, and the GPUs of each.
        container: Their container.
        files: Files of the engine by name.
    """
    environment = {entry["name"]: _value(entry) for entry in container.get("env", ())}
    module, arguments = " ".join(container["command"]), container["args"]
    if (share := _SHARE.fullmatch(container["command"][-2] if len(container["command"]) > 1 else "")) is not None:
        module, arguments = share[1], [*arguments, share[2], "0"]  # as the first pod of a group reads it
    return Started(
        where=where,
        count=count,
        gpus=tuple(range(gpus)),
        options=options_of(["1" if word == INDEX else word for word in arguments], files),
        environment=environment,
        module=module,
        image=container["image"],
        role=role,
    )


def gpus_in(container: Mapping[str, Any]) -> int:
    """GPUs that a container asks for."""
    return int(container["resources"]["limits"][_GPU])


def _value(entry: Mapping[str, Any]) -> str:
    return str(entry["value"]) if "value" in entry else str(entry["valueFrom"].get("fieldRef", {}).get("fieldPath", ""))


def port_problems(engine: Engine, worker: Started, port: int) -> Iterator[str]:
    """A server that does not answer where others look for it, or whose KV caches cannot be found.

    Args:
        engine: The server.
        worker: As read back.
        port: Where others look for it.
    """
    option = engine.arguments["port"]
    if str(worker.options.get(option)) != str(port):
        yield f"{worker.where}: {option} is {worker.options.get(option)}, not {port}"
    name = engine.arguments.get("transfer_port", "")
    if name and name in worker.options and str(worker.options[name]) != str(engine.server.transfer_port):
        yield f"{worker.where}: {name} is {worker.options[name]}, not {engine.server.transfer_port}"
    apart = worker.role in ("prefill", "decode")
    for name, value in _transfer_environment(engine).items() if apart else ():
        if worker.environment.get(name) != value:
            yield f"{worker.where}: {name} is {worker.environment.get(name, 'not set')}, not {value}"
