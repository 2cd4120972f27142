# SPDX-License-Identifier: Apache-2.0
"""The files of a target, as text, from the record of a deployment."""

import functools
import json
import shlex
from collections.abc import Callable
from typing import Any

import jinja2
import yaml

from aicjax._names import counted, one_of
from aicjax._results import InputError
from aicjax.deploy.options import ENGINE_FILE, Command, command
from aicjax.deploy.placement import Placed, check_fits_node, place, ports_of
from aicjax.deploy.record import Deployment, as_dict
from aicjax.deploy.settings import Engine, Runtime, load_engine, load_runtime, templates_dir

RECORD_FILE = "deployment.json"
BENCH_FILE = "bench.sh"
DYNAMO_FILE = "deploy.yaml"
NODE_FILE = "run_node{node}.sh"
_ENGINE_FOLDER = "/etc/aicjax"
_COMPONENTS = {
    "agg": ("Worker", "worker"),
    "prefill": ("PrefillWorker", "prefill"),
    "decode": ("DecodeWorker", "decode"),
}


def render(deployment: Deployment, target: str) -> dict[str, str]:
    """The files of a target by name; nothing is written.

    Raises:
        InputError: No such target, or one that cannot carry this deployment.
    """
    if target not in TARGETS:
        raise InputError("deployment_target", target, one_of(target, TARGETS))
    engine, runtime = load_engine(deployment.engine), load_runtime()
    record = {"target": target, **as_dict(deployment)}
    return {
        RECORD_FILE: json.dumps(record, indent=2) + "\n",
        BENCH_FILE: _bench(deployment, runtime),
        **TARGETS[target](deployment, engine, runtime),
    }


def _bare_metal(deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    placed = place(deployment, runtime)
    nodes = 1 + max(worker.node for worker in placed)
    files, commands = {}, []
    for worker in placed:
        file = ENGINE_FILE.format(role=worker.role.name)
        started = command(deployment, worker.role, engine, worker.ports, file)
        commands.append((worker, started))
        if started.engine_file:
            files[file] = _yaml(started.engine_file)
    for node in range(nodes):
        workers = [_launch(deployment, engine, *pair) for pair in commands if pair[0].node == node]
        values = {"node": node, "nodes": nodes, "workers": workers, "runtime": runtime}
        files[NODE_FILE.format(node=node)] = _fill("run_node.sh.j2", deployment=deployment, **values)
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


def _dynamo(deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    check_fits_node(deployment)
    components, engine_files = [], {}
    for role in deployment.roles:
        file = ENGINE_FILE.format(role=role.name)
        started = command(deployment, role, engine, ports_of(0, runtime), f"{_ENGINE_FOLDER}/{file}")
        name, kind = _COMPONENTS[role.name]
        gpus = role.layout.gpus
        components.append({"name": name, "type": kind, "replicas": role.workers, "gpus": gpus, "command": started})
        if started.engine_file:
            engine_files[file] = _yaml(started.engine_file)
    text = _fill(
        "dynamo.yaml.j2",
        deployment=deployment,
        engine=engine,
        runtime=runtime,
        components=components,
        engine_files=engine_files,
        engine_folder=_ENGINE_FOLDER,
    )
    return {DYNAMO_FILE: text}


def _bench(deployment: Deployment, runtime: Runtime) -> str:
    plan, prediction, workload = runtime.benchmark, deployment.prediction, deployment.workload
    concurrencies = {max(1, round(factor * prediction.concurrency)) for factor in plan["concurrency_factors"]}
    return _fill(
        "bench.sh.j2",
        deployment=deployment,
        client=runtime.benchmark_client,
        plan=plan,
        port=runtime.ports["frontend"],
        new_tokens=max(1, workload.isl - workload.prefix),
        concurrencies=sorted(concurrencies),
        rates=[f"{factor * prediction.requests_per_s:.4g}" for factor in plan["rate_factors"]],
    )


def _fill(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["shell"] = shlex.quote
    environment.filters["tojson"] = json.dumps
    environment.filters["counted"] = counted
    return environment


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None)


TARGETS: dict[str, Callable[[Deployment, Engine, Runtime], dict[str, str]]] = {
    "bare-metal": _bare_metal,
    "dynamo": _dynamo,
}
