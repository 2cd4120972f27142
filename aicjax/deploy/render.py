# SPDX-License-Identifier: Apache-2.0
"""The files of a target, as text, from the record of a deployment."""

import json

from aicjax._names import one_of
from aicjax._results import InputError
from aicjax.deploy.record import Deployment, as_dict
from aicjax.deploy.settings import Runtime, load_engine, load_runtime
from aicjax.deploy.targets import TARGETS
from aicjax.deploy.templates import fill

RECORD_FILE = "deployment.json"
BENCH_FILE = "bench.sh"


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
        **TARGETS[target].render(deployment, engine, runtime),
    }


def _bench(deployment: Deployment, runtime: Runtime) -> str:
    plan, prediction, workload = runtime.benchmark, deployment.prediction, deployment.workload
    concurrencies = {max(1, round(factor * prediction.concurrency)) for factor in plan["concurrency_factors"]}
    return fill(
        "bench.sh.j2",
        deployment=deployment,
        client=runtime.benchmark_client,
        plan=plan,
        port=runtime.ports["frontend"],
        new_tokens=max(1, workload.isl - workload.prefix),
        concurrencies=sorted(concurrencies),
        rates=[f"{factor * prediction.requests_per_s:.4g}" for factor in plan["rate_factors"]],
    )
