# SPDX-License-Identifier: Apache-2.0
"""What scripts of nodes start: every worker, or part of one, with its GPUs, ports, variables and command."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aicjax.deploy.options import ENGINE_FILE, Command, command, member_of, variables
from aicjax.deploy.placement import Placed, address, place
from aicjax.deploy.read_back import Started
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Engine, Runtime, load_engine
from aicjax.deploy.templates import yaml_text


@dataclass(frozen=True)
class Launch:
    """One start of a worker, or of the part of it that a node has.

    Attributes:
        placed: Where, and on which GPUs.
        environment: Variables that it needs.
        command: What is run.
    """

    placed: Placed
    environment: Mapping[str, str]
    command: Command


def launches(deployment: Deployment, engine: Engine, runtime: Runtime) -> tuple[list[Launch], dict[str, str]]:
    """All starts, and the engine's files by name.

    Raises:
        InputError: A worker cannot be split over nodes.
    """
    starts, files = [], {}
    for placed in place(deployment, engine, runtime):
        file = ENGINE_FILE.format(role=placed.role.name)
        started = command(deployment, placed.role, engine, placed.ports, file, placed.member)
        starts.append(Launch(placed, _environment(deployment, engine, placed), started))
        if started.engine_file:
            files[file] = yaml_text(started.engine_file)
    return starts, files


def _environment(deployment: Deployment, engine: Engine, placed: Placed) -> dict[str, str]:
    known = {"transfer_port": str(placed.ports.transfer), "transfer_host": address(placed.node)}
    transfer = {name: known[what] for what, name in engine.environment.items()} if deployment.disaggregated else {}
    gpus = ",".join(map(str, placed.gpus))
    own = {"CUDA_VISIBLE_DEVICES": gpus, "DYN_SYSTEM_PORT": str(placed.ports.system)}
    return {**own, **transfer, **variables(deployment, engine)}


def node_problems(deployment: Deployment, started: list[Started]) -> Iterator[str]:
    """GPUs and ports of a node that do not exist or are used twice; workers whose parts do not meet."""
    engine = load_engine(deployment.engine)
    port_options = [engine.arguments[name] for name in ("port", "transfer_port") if name in engine.arguments]
    variables = ["DYN_SYSTEM_PORT", *(name for what, name in engine.environment.items() if what.endswith("_port"))]
    for node in sorted({node for worker in started for node in worker.on}):
        workers = [worker for worker in started if node in worker.on]
        gpus = [gpu for worker in workers for gpu in worker.gpus]
        if len(set(gpus)) != len(gpus) or max(gpus) >= deployment.gpus_per_node:
            yield f"node {node}: a GPU is used twice or does not exist"
        ports = [str(worker.options[name]) for worker in workers for name in port_options if name in worker.options]
        ports += [worker.environment[name] for worker in workers for name in variables if name in worker.environment]
        if len(set(ports)) != len(ports):
            yield f"node {node}: a port is used twice"
    yield from _of_parts(deployment, engine, started)


def _of_parts(deployment: Deployment, engine: Engine, started: list[Started]) -> Iterator[str]:
    """Every wide worker has all its parts, each on a node of its own, which meet on the node of the first."""
    parts: dict[tuple[str, str, int], dict[int, list[int]]] = {}
    for worker in started:
        name = str(worker.options.get(engine.arguments["role"], "agg"))
        role = next((role for role in deployment.roles if role.name == name), None)
        if role and (member := member_of(worker.options, role, engine)):
            parts.setdefault((name, member.head, member.nodes), {}).setdefault(member.node, []).extend(worker.on)
    for (name, head, nodes), found in parts.items():
        on = [node for part in sorted(found) for node in found[part]]
        if sorted(found) != list(range(nodes)) or len(set(on)) != nodes or len(on) != nodes:
            yield f"{name} worker with its head at {head}: its {nodes} parts are not on {nodes} nodes"
        elif head != address(on[0]):
            yield f"{name} worker: its parts meet at {head}, the first is on node {on[0]}"
