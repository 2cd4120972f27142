# SPDX-License-Identifier: Apache-2.0
"""Pods that run an engine's own server: what their container is told, and what manifests say of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aicjax.deploy.options import ENGINE_FILE, Command, Ports, command
from aicjax.deploy.read_back import Started, options_of
from aicjax.deploy.record import Deployment, Role
from aicjax.deploy.settings import Engine

ENGINE_FOLDER = "/etc/aicjax"
POD_ADDRESS = "status.podIP"
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Pod:
    """A pod of one kind of worker.

    Attributes:
        role: What it is.
        command: What it runs.
        image: Container image.
        port: Where it answers.
        environment: Variables and their values; `POD_ADDRESS` stands for the address of the pod.
        gpus: GPUs of one.
    """

    role: Role
    command: Command
    image: str
    port: int
    environment: Mapping[str, str]
    gpus: int

    @property
    def words(self) -> list[str]:
        """Words before the options."""
        return self.command.module.split()


def pod_of(deployment: Deployment, role: Role, engine: Engine, port: int) -> Pod:
    """The pod of a worker on one node.

    Args:
        deployment, role: Which worker.
        engine: Its server.
        port: Where it answers.
    """
    ports = Ports(system=port, engine=port, transfer=engine.server.transfer_port)
    started = command(deployment, role, engine, ports, f"{ENGINE_FOLDER}/{ENGINE_FILE.format(role=role.name)}")
    environment: dict[str, str] = {}
    if deployment.disaggregated:
        environment = _transfer_environment(engine)
        if len({role.layout.tp for role in deployment.roles}) > 1:
            environment |= engine.server.unequal_widths
    image = deployment.site.image or engine.image
    return Pod(role, started, image, port, environment, role.layout.gpus)


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
    return Started(
        where=where,
        count=count,
        gpus=tuple(range(gpus)),
        options=options_of(container["args"], files),
        environment=environment,
        module=" ".join(container["command"]),
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
