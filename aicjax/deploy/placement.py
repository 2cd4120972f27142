# SPDX-License-Identifier: Apache-2.0
"""Which GPUs of which node a worker has on bare metal, and its ports there."""

from dataclasses import dataclass

from aicjax._results import InputError
from aicjax.deploy.options import Ports
from aicjax.deploy.record import Deployment, Role
from aicjax.deploy.settings import Runtime


@dataclass(frozen=True)
class Placed:
    """A worker on a node.

    Attributes:
        role: What it is.
        node: Number of the node, from 0.
        gpus: Its GPUs there.
        ports: Its ports there.
    """

    role: Role
    node: int
    gpus: tuple[int, ...]
    ports: Ports


def place(deployment: Deployment, runtime: Runtime) -> tuple[Placed, ...]:
    """Workers on nodes, the largest first, each on the first node with room.

    Raises:
        InputError: A worker does not fit into a node.
    """
    check_fits_node(deployment)
    workers = [role for role in deployment.roles for _ in range(role.workers)]
    free: list[int] = []
    places: list[tuple[Role, int, int]] = []
    for role in sorted(workers, key=lambda role: -role.layout.gpus):
        need = role.layout.gpus
        node = next((node for node, room in enumerate(free) if room >= need), len(free))
        if node == len(free):
            free.append(deployment.gpus_per_node)
        places.append((role, node, deployment.gpus_per_node - free[node]))
        free[node] -= need
    on_node = [0] * len(free)
    placed = []
    for role, node, first in places:
        gpus = tuple(range(first, first + role.layout.gpus))
        placed.append(Placed(role, node, gpus, ports_of(on_node[node], runtime)))
        on_node[node] += 1
    return tuple(placed)


def ports_of(worker: int, runtime: Runtime) -> Ports:
    """Ports of a host's worker by its place there."""
    ports = runtime.ports
    return Ports(*(ports[name] + worker * ports["stride"] for name in ("system", "engine", "transfer")))


def check_fits_node(deployment: Deployment) -> None:
    """Refuses workers over several nodes.

    Raises:
        InputError: A worker has more GPUs than a node.
    """
    for role in deployment.roles:
        if role.layout.gpus > deployment.gpus_per_node:
            allowed = f"at most the {deployment.gpus_per_node} of a node: workers over several nodes are not deployed"
            raise InputError(f"GPUs of a {role.name} worker", role.layout.gpus, allowed)
