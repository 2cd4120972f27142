# SPDX-License-Identifier: Apache-2.0
"""A kustomize overlay over the model servers of a guide of llm-d."""

from collections.abc import Iterator, Mapping

from aicjax.deploy.bench import JOB_FILE, bench_job
from aicjax.deploy.read_back import Started
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Engine, Runtime, load_server
from aicjax.deploy.targets.llm_d import (
    DECODE,
    PREFILL,
    llm_d,
    model_label,
    pods,
    require_llm_d,
    router_url,
    worker_problems,
)
from aicjax.deploy.targets.pods import POD_ADDRESS, gpus_in, started_in
from aicjax.deploy.targets.target import Target
from aicjax.deploy.templates import documents, fill

OVERLAY_FILE = "kustomization.yaml"
PATCH_FILE = "patch-{name}.yaml"


def _render(deployment: Deployment, engine: Engine, runtime: Runtime) -> dict[str, str]:
    require_llm_d(deployment, engine, "llm-d-kustomize")
    parts = pods(deployment, engine)
    values = {"deployment": deployment, "llm_d": llm_d(), "guide": llm_d().guide_of(deployment.disaggregated)}
    values |= {"cache": llm_d().model_folder if deployment.site.model_cache else "", "address": POD_ADDRESS}
    values |= {"label": model_label(deployment.model), "secret": deployment.site.secret or llm_d().secret}
    names = [PATCH_FILE.format(name=name) for name in parts]
    files = {OVERLAY_FILE: fill("llm-d-kustomization.yaml.j2", base=base(deployment), files=names, **values)}
    for name, pod in parts.items():
        proxy = llm_d().guides_proxy if deployment.disaggregated and name == DECODE else ""
        files[PATCH_FILE.format(name=name)] = fill("llm-d-patch.yaml.j2", name=name, pod=pod, proxy=proxy, **values)
    return {**files, JOB_FILE: bench_job(deployment, runtime, router_url(deployment), llm_d().secret)}


def base(deployment: Deployment) -> str:
    """Address of the folder of the guide, at its tag."""
    folder = llm_d().base.format(guide=llm_d().guide_of(deployment.disaggregated), engine=deployment.engine)
    return f"{llm_d().guides}//{folder}?ref={llm_d().guides_tag}"


def _read(files: Mapping[str, str]) -> list[Started]:
    started = []
    found = {name: files[PATCH_FILE.format(name=name)] for name in (PREFILL, DECODE) if _patched(name, files)}
    for name, text in found.items():
        spec = documents(text)[0]["spec"]
        container = next(part for part in spec["template"]["spec"]["containers"] if part["name"] == llm_d().container)
        role = name if PREFILL in found else "agg"
        where = PATCH_FILE.format(name=name)
        started.append(started_in(where, role, spec["replicas"], container, {}, gpus_in(container)))
    return started


def _patched(name: str, files: Mapping[str, str]) -> bool:
    """Whether the overlay names the patch of a kind of workers."""
    patches = documents(files[OVERLAY_FILE])[0]["patches"]
    return {"path": PATCH_FILE.format(name=name)} in patches


def _problems(deployment: Deployment, files: Mapping[str, str], started: list[Started]) -> Iterator[str]:
    """Ports; the base of the guide at its tag, and the Deployments that it holds."""
    yield from worker_problems(deployment, started)
    if f'"{router_url(deployment)}"' not in files[JOB_FILE]:
        yield f"{JOB_FILE}: not the address of the router"
    if deployment.disaggregated and f'"{llm_d().guides_proxy}"' not in files[PATCH_FILE.format(name=DECODE)]:
        yield f"{PATCH_FILE.format(name=DECODE)}: the proxy is not {llm_d().guides_proxy}"
    if documents(files[OVERLAY_FILE])[0]["resources"] != [base(deployment)]:
        yield f"{OVERLAY_FILE}: not over the guide {llm_d().guide_of(deployment.disaggregated)} at {llm_d().guides_tag}"
    for name in (PREFILL, DECODE):
        if _patched(name, files):
            patch = documents(files[PATCH_FILE.format(name=name)])[0]
            target = (patch["apiVersion"], patch["kind"], patch["metadata"]["name"])
            if target != ("apps/v1", "Deployment", name):
                yield f"{PATCH_FILE.format(name=name)}: the guide has no {' '.join(target)}"
            limits = patch["spec"]["template"]["spec"]["containers"][0]["resources"]
            if limits["limits"] != limits["requests"]:
                yield f"{PATCH_FILE.format(name=name)}: GPUs requested are not those of the limit"


TARGET = Target(_render, _read, _problems, load_server, lambda: llm_d().secret)
