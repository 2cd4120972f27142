# SPDX-License-Identifier: Apache-2.0
"""The benchmark that replays what a prediction assumes: a script, and a Job that runs the same script in a cluster."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Runtime
from aicjax.deploy.templates import documents, fill

BENCH_FILE = "bench.sh"
JOB_FILE = "k8s_bench.yaml"
BENCH_FOLDER = "/bench"  # where a pod has the script
_SETTING = re.compile(r'^(\w+)="\$\{\1:-(.*)\}"$', re.MULTILINE)


def bench_script(deployment: Deployment, runtime: Runtime) -> str:
    """The script: closed loop around the predicted concurrency, open loop below the predicted rate."""
    return fill(
        "bench.sh.j2",
        deployment=deployment,
        client=runtime.benchmark_client,
        plan=runtime.benchmark,
        port=runtime.ports["frontend"],
        load=_load(deployment, runtime),
    )


def _load(deployment: Deployment, runtime: Runtime) -> dict[str, Any]:
    """What the client sends, by the name that it has in the script."""
    plan, prediction, workload = runtime.benchmark, deployment.prediction, deployment.workload
    concurrencies = {max(1, round(factor * prediction.concurrency)) for factor in plan["concurrency_factors"]}
    return {
        "MODEL": deployment.model,
        "TOKENIZER": deployment.model,
        "ISL": max(1, workload.isl - workload.prefix),
        "OSL": workload.osl,
        "PREFIX": workload.prefix,
        "CONCURRENCIES": " ".join(map(str, sorted(concurrencies))),
        "RATES": " ".join(f"{factor * prediction.requests_per_s:.4g}" for factor in plan["rate_factors"]),
        "ROUNDS": plan["rounds"],
    }


def bench_job(deployment: Deployment, runtime: Runtime, url: str, secret: str | None = None) -> str:
    """A Kubernetes Job that runs the script against a service.

    Args:
        deployment: What is measured.
        runtime: The client and its load.
        url: Where the model is served, as seen from a pod.
        secret: Secret of the target where the deployment states none; that of the runtime when None.
    """
    return fill(
        "k8s_bench.yaml.j2",
        deployment=deployment,
        runtime=runtime,
        url=url,
        folder=BENCH_FOLDER,
        script=bench_script(deployment, runtime),
        secret=deployment.site.secret or secret or runtime.secret,
    )


def bench_problems(deployment: Deployment, files: Mapping[str, str], runtime: Runtime) -> Iterator[str]:
    """A script against another port than the frontend's, or with another load; a Job that runs another one."""
    stated = dict(_SETTING.findall(files.get(BENCH_FILE, "")))
    for name, value in _load(deployment, runtime).items():
        if stated.get(name) != str(value):
            yield f"{BENCH_FILE}: {name} is {stated.get(name, 'not set')}, not {value}"
    if f"localhost:{runtime.ports['frontend']}}}" not in files.get(BENCH_FILE, ""):
        yield f"{BENCH_FILE}: not the port of the frontend"
    if JOB_FILE in files:
        scripts, job = documents(files[JOB_FILE])
        container = job["spec"]["template"]["spec"]["containers"][0]
        ran = scripts["data"].get(BENCH_FILE), container.get("command"), job["kind"]
        if ran != (files.get(BENCH_FILE), ["bash", f"{BENCH_FOLDER}/{BENCH_FILE}"], "Job"):
            yield f"{JOB_FILE}: another script than {BENCH_FILE}"
