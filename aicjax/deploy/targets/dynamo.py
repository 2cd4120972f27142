# SPDX-License-Identifier: Apache-2.0
"""A DynamoGraphDeployment, version `v1beta1`, for the operator of NVIDIA Dynamo."""

import re
from collections.abc import Iterator, Mapping

from aicjax.deploy.options import ENGINE_FILE, command
from aicjax.deploy.placement import check_fits_node, ports_of
from aicjax.deploy.read_back import Started, from_manifest
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Engine, Runtime
from aicjax.deploy.targets.target import Target
from aicjax.deploy.templates import fill, yaml_text

DYNAMO_FILE = "deploy.yaml"
_ENGINE_FOLDER = "/etc/aicjax"
_PINNED = re.compile(r"[^:]+:\d+\.\d+\.\d+[\w.-]*")
_COMPONENTS = {
    "agg": ("Worker", "worker"),
    "prefill": ("PrefillWorker", "prefill"),
    "decode": ("DecodeWorker", "decode"),
}


def _render(deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    check_fits_node(deployment)
    components, engine_files = [], {}
    for role in deployment.roles:
        file = ENGINE_FILE.format(role=role.name)
        started = command(deployment, role, engine, ports_of(0, runtime), f"{_ENGINE_FOLDER}/{file}")
        name, kind = _COMPONENTS[role.name]
        gpus = role.layout.gpus
        components.append({"name": name, "type": kind, "replicas": role.workers, "gpus": gpus, "command": started})
        if started.engine_file:
            engine_files[file] = yaml_text(started.engine_file)
    text = fill(
        "dynamo.yaml.j2",
        deployment=deployment,
        engine=engine,
        runtime=runtime,
        components=components,
        engine_files=engine_files,
        engine_folder=_ENGINE_FOLDER,
    )
    return {DYNAMO_FILE: text}


def _read(files: Mapping[str, str]) -> list[Started]:
    return from_manifest(DYNAMO_FILE, files[DYNAMO_FILE])


def _problems(deployment: Deployment, files: Mapping[str, str], started: list[Started]) -> Iterator[str]:
    """Images with a pinned tag."""
    yield from (
        f"{worker.where}: image {worker.image!r} has no pinned tag"
        for worker in started
        if not _PINNED.fullmatch(worker.image)
    )


TARGET = Target(_render, _read, _problems)
