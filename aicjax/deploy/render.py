# SPDX-License-Identifier: Apache-2.0
"""The files of a target, as text, from the record of a deployment."""

import json

from aicjax._names import one_of
from aicjax._results import InputError
from aicjax.deploy.bench import BENCH_FILE, bench_script
from aicjax.deploy.readme import README_FILE, readme
from aicjax.deploy.record import Deployment, as_dict
from aicjax.deploy.settings import load_runtime
from aicjax.deploy.targets import TARGETS

RECORD_FILE = "deployment.json"


def render(deployment: Deployment, target: str) -> dict[str, str]:
    """The files of a target by name; nothing is written.

    Raises:
        InputError: No such target, or one that cannot carry this deployment.
    """
    if target not in TARGETS:
        raise InputError("deployment_target", target, one_of(target, TARGETS))
    engine, runtime = TARGETS[target].engine(deployment.engine), load_runtime()
    record = {"target": target, **as_dict(deployment)}
    files = {
        RECORD_FILE: json.dumps(record, indent=2) + "\n",
        BENCH_FILE: bench_script(deployment, runtime),
        **TARGETS[target].render(deployment, engine, runtime),
    }
    return {README_FILE: readme(deployment, target, files), **files}
