# SPDX-License-Identifier: Apache-2.0
"""Launch scripts of nodes, started by hand."""

import re
from collections.abc import Iterator, Mapping

from aicjax.deploy.launches import launches, node_problems
from aicjax.deploy.placement import require_one_node
from aicjax.deploy.read_back import Started, from_script
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Engine, Runtime, load_runtime
from aicjax.deploy.targets.target import Target
from aicjax.deploy.templates import fill

NODE_FILE = "run_node{node}.sh"
_NODE = re.compile(r"run_node(\d+)\.sh")


def _render(deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    if engine.mpi_launcher:
        require_one_node(deployment, engine, "bare-metal", "slurm or dynamo, which start its MPI world")
    starts, files = launches(deployment, engine, runtime)
    nodes = 1 + max(start.placed.node for start in starts)
    values = {"deployment": deployment, "engine": engine, "runtime": runtime, "nodes": nodes}
    for node in range(nodes):
        here = [start for start in starts if start.placed.node == node]
        files[NODE_FILE.format(node=node)] = fill("run_node.sh.j2", node=node, starts=here, **values)
    return files


def _read(files: Mapping[str, str]) -> list[Started]:
    scripts = [(name, int(match[1])) for name in files if (match := _NODE.fullmatch(name))]
    return [worker for name, node in scripts for worker in from_script(name, files[name], files, (node,))]


def _problems(deployment: Deployment, files: Mapping[str, str], started: list[Started]) -> Iterator[str]:
    """A frontend on its port; nodes in order."""
    head = NODE_FILE.format(node=0)
    if f"--http-port {load_runtime().ports['frontend']} " not in files[head]:
        yield f"{head}: no frontend on its port"
    yield from node_problems(deployment, started)


TARGET = Target(_render, _read, _problems)
