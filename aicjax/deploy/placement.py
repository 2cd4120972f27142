# SPDX-License-Identifier: Apache-2.0
"""Which GPUs of which nodes a worker has, and its ports there."""

from dataclasses import dataclass

from aicjax._results import InputError
from aicjax.deploy.options import Member, Ports
from aicjax.deploy.record import Deployment, Role
from aicjax.deploy.settings import Engine, Runtime


@dataclass(frozen=True)
class Placed:
    """A worker on a node, or the part of a wide worker that one of its nodes has.

    Attributes:
        role: What it is.
        node: Number of the node, from 0.
        gpus: Its GPUs there.
        ports: Its ports there.
        member: Which part of a worker over several nodes; None for a worker on one node.
    """

    role: Role
    node: int
    gpus: tuple[int, ...]
    ports: Ports
    member: Member | None = None


def place(deployment: Deployment, engine: Engine, runtime: Runtime) -> tuple[Placed, ...]:
    """Workers on nodes, the largest first: a wide one on nodes of its own, any other on the first node with room.

    Raises:
        InputError: A worker cannot be split over nodes.
    """
    workers = [role for role in deployment.roles for _ in range(role.workers)]
    node_gpus = deployment.gpus_per_node
    free: list[int] = []
    on_node: list[int] = []
    placed: list[Placed] = []
    for role in sorted(workers, key=lambda role: -role.layout.gpus):
        nodes, first = nodes_of(deployment, role, engine), len(free)
        need = role.layout.gpus // nodes
        if nodes == 1:
            first = next((node for node, room in enumerate(free) if room >= need), first)
        if first == len(free):
            free += [node_gpus] * nodes
            on_node += [0] * nodes
        for node in range(first, first + nodes):
            gpus = tuple(range(node_gpus - free[node], node_gpus - free[node] + need))
            member = Member(nodes, node - first, address(first), runtime.ports["rendezvous"]) if nodes > 1 else None
            placed.append(Placed(role, node, gpus, ports_of(on_node[node], runtime), member))
            free[node] -= need
            on_node[node] += 1
    return tuple(placed)


def nodes_of(deployment: Deployment, role: Role, engine: Engine) -> int:
    """Nodes of one worker: one, or as many whole ones as it needs.

    Raises:
        InputError: It does not fill whole nodes, or the engine cannot share it out over them.
    """
    gpus, node_gpus, rank = role.layout.gpus, deployment.gpus_per_node, engine.rank_gpus(role.layout)
    if gpus <= node_gpus:
        return 1
    what = f"GPUs of a {role.name} worker"
    if gpus % node_gpus:
        raise InputError(what, gpus, f"at most {node_gpus}, those of a node, or a multiple of it")
    if rank < gpus and (rank > node_gpus or node_gpus % rank):
        whole = "as many data parallel ranks on every node, or one rank over all of them"
        raise InputError(what, f"{gpus} in ranks of {rank}", f"{whole}: {engine.engine} takes no other split")
    return gpus // node_gpus


def require_one_node(deployment: Deployment, engine: Engine, target: str, others: str) -> None:
    """Refuses workers over several nodes where a target cannot start them.

    Args:
        deployment, engine: What is deployed.
        target: The target.
        others: Targets that can, for the message.

    Raises:
        InputError: A worker has more GPUs than a node.
    """
    for role in deployment.roles:
        if nodes_of(deployment, role, engine) > 1:
            allowed = f"at most {deployment.gpus_per_node}, those of a node, for {target}; else {others}"
            raise InputError(f"GPUs of a {role.name} worker", role.layout.gpus, allowed)


def address(node: int) -> str:
    """The address of a node in a script, where `ADDRESS` lists those of all nodes."""
    return f"${{ADDRESS[{node}]}}"


def ports_of(worker: int, runtime: Runtime) -> Ports:
    """Ports of a host's worker by its place there."""
    ports = runtime.ports
    return Ports(*(ports[name] + worker * ports["stride"] for name in ("system", "engine", "transfer")))
