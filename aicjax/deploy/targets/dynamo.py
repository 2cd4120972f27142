# SPDX-License-Identifier: Apache-2.0
"""A DynamoGraphDeployment for the operator of NVIDIA Dynamo, in the versions `v1beta1` and `v1alpha1`."""

from dataclasses import dataclass
from functools import partial

from aicjax.deploy.bench import JOB_FILE, bench_job
from aicjax.deploy.options import ENGINE_FILE, Command, command, variables
from aicjax.deploy.placement import nodes_of, ports_of
from aicjax.deploy.record import Deployment, Role
from aicjax.deploy.settings import Engine, Runtime
from aicjax.deploy.targets.graph import COMPONENTS, GRAPH_FILE, problems, read, service_url
from aicjax.deploy.targets.target import Target
from aicjax.deploy.templates import fill, yaml_text

_ENGINE_FOLDER = "/etc/aicjax"


@dataclass(frozen=True)
class Workers:
    """One kind of worker of a graph.

    Attributes:
        name: Of their component.
        role: What they are.
        nodes: Nodes of one.
        domain: NVLink domain over the nodes of each; empty where there is none.
        command: What one runs; the operator adds what joins its nodes.
    """

    name: str
    role: Role
    nodes: int
    domain: str
    command: Command

    @property
    def gpus(self) -> int:
        """GPUs of a pod."""
        return self.role.layout.gpus // self.nodes


def _render(template: str, deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    kinds, engine_files = [], {}
    for role in deployment.roles:
        file = ENGINE_FILE.format(role=role.name)
        started = command(deployment, role, engine, ports_of(0, runtime), f"{_ENGINE_FOLDER}/{file}")
        nodes = nodes_of(deployment, role, engine)
        domain = f"{deployment.name}-{role.name}" if nodes > 1 and deployment.gpus_per_rack else ""
        kinds.append(Workers(COMPONENTS[role.name], role, nodes, domain, started))
        if started.engine_file:
            engine_files[file] = yaml_text(started.engine_file)
    text = fill(
        template,
        deployment=deployment,
        engine=engine,
        runtime=runtime,
        components=kinds,
        engine_files=engine_files,
        engine_folder=_ENGINE_FOLDER,
        environment=variables(deployment, engine),
        image=deployment.site.image or engine.image,
        secret=deployment.site.secret or runtime.secret,
    )
    return {GRAPH_FILE: text, JOB_FILE: bench_job(deployment, runtime, service_url(deployment, runtime))}


BETA = Target(partial(_render, "dynamo_v1beta1.yaml.j2"), read, problems)
ALPHA = Target(partial(_render, "dynamo_v1alpha1.yaml.j2"), read, problems)
