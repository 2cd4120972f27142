# SPDX-License-Identifier: Apache-2.0
"""Launch scripts of nodes, started by hand."""

from collections.abc import Iterator, Mapping
from typing import Any

from aicjax.deploy.options import ENGINE_FILE, Command, command
from aicjax.deploy.placement import Placed, place
from aicjax.deploy.read_back import Started, from_script
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Engine, Runtime, load_engine, load_runtime
from aicjax.deploy.targets.target import Target
from aicjax.deploy.templates import fill, yaml_text

NODE_FILE = "run_node{node}.sh"


def _render(deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    placed = place(deployment, runtime)
    nodes = 1 + max(worker.node for worker in placed)
    files, commands = {}, []
    for worker in placed:
        file = ENGINE_FILE.format(role=worker.role.name)
        started = command(deployment, worker.role, engine, worker.ports, file)
        commands.append((worker, started))
        if started.engine_file:
            files[file] = yaml_text(started.engine_file)
    for node in range(nodes):
        workers = [_launch(deployment, engine, *pair) for pair in commands if pair[0].node == node]
        values = {"node": node, "nodes": nodes, "workers": workers, "runtime": runtime}
        files[NODE_FILE.format(node=node)] = fill("run_node.sh.j2", deployment=deployment, **values)
    return files


def _launch(deployment: Deployment, engine: Engine, worker: Placed, started: Command) -> dict[str, Any]:
    known = {"transfer_port": str(worker.ports.transfer), "transfer_host": '"${NODE_ADDRESS}"'}
    environment = {name: known[what] for what, name in engine.environment.items()} if deployment.disaggregated else {}
    return {
        "role": worker.role.name,
        "gpus": worker.gpus,
        "ports": worker.ports,
        "environment": environment,
        "command": started,
    }


def _read(files: Mapping[str, str]) -> list[Started]:
    scripts = [name for name in files if name.startswith(NODE_FILE.split("{")[0])]
    return [worker for name in scripts for worker in from_script(name, files[name], files)]


def _problems(deployment: Deployment, files: Mapping[str, str], started: list[Started]) -> Iterator[str]:
    """A frontend on its port; GPUs and ports of a node that exist and are used once."""
    head = NODE_FILE.format(node=0)
    if f"--http-port {load_runtime().ports['frontend']} " not in files[head]:
        yield f"{head}: no frontend on its port"
    engine = load_engine(deployment.engine)
    port_options = [engine.arguments[name] for name in ("port", "transfer_port") if name in engine.arguments]
    variables = ["DYN_SYSTEM_PORT", *(name for what, name in engine.environment.items() if what.endswith("_port"))]
    for node in sorted({worker.where for worker in started}):
        workers = [worker for worker in started if worker.where == node]
        gpus = [gpu for worker in workers for gpu in worker.gpus]
        if len(set(gpus)) != len(gpus) or max(gpus) >= deployment.gpus_per_node:
            yield f"{node}: a GPU is used twice or does not exist"
        ports = [str(worker.options[name]) for worker in workers for name in port_options if name in worker.options]
        ports += [worker.environment[name] for worker in workers for name in variables if name in worker.environment]
        if len(set(ports)) != len(ports):
            yield f"{node}: a port is used twice"


TARGET = Target(_render, _read, _problems)
