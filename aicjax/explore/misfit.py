# SPDX-License-Identifier: Apache-2.0
"""Why no configuration of a role could be evaluated: memory or missing data, in words."""

from collections.abc import Callable, Sequence

import numpy as np

from aicjax._results import AicjaxError, MissingData, NoFeasible
from aicjax.explore.roles import Deployment, Worker
from aicjax.explore.shortfall import Shortfall
from aicjax.forward.bound import PARTS, StepCurves
from aicjax.forward.encoder import EncoderTimes
from aicjax.forward.kv_capacity import misfit_message, smallest_fitting_tp
from aicjax.forward.memory import MemorySplit, Verdict, WorkerMemory

Memory = Callable[[WorkerMemory], MemorySplit]


def memory_shortfall(worker: Worker, at_least: Memory) -> Shortfall:
    """The verdict of a role of which no layout fits, not even at its least demanding point.

    Args:
        worker: The role in all its layouts.
        at_least: Memory of the least demanding point, [layout, 1].
    """
    deployment = worker.deployment
    split = at_least(worker.memory)
    verdict = np.broadcast_to(split.verdict, (len(worker.layouts), 1))[:, 0]
    total = np.broadcast_to(split.total_bytes, (len(worker.layouts), 1))[:, 0]
    best = int(np.lexsort((total, verdict))[0])
    smallest = smallest_fitting_tp(
        deployment.system,
        deployment.backend,
        deployment.version,
        deployment.model,
        worker.layouts[best],
        deployment.quantisation,
        deployment.constants.memory,
        at_least,
        deployment.load.nextn,
    )
    binding = "memory" if verdict[best] == Verdict.DOES_NOT_FIT else "kv memory"
    detail = f"{worker.layouts[best].label} on {deployment.system.name}: {misfit_message(split, best, 0, smallest)}"
    over = 100 * (total[best] / split.capacity_bytes - 1) if binding == "memory" else None
    return Shortfall(binding, over, "", detail.rstrip("."))


def missing_error(
    task: str, worker: Worker, curves: StepCurves, rows: Sequence[int], encoder: EncoderTimes | None = None
) -> MissingData:
    """The error of a role of which no point has data: the operators that lack them in its first layout."""
    lacking = [name for part in PARTS for name in curves.missing(part, rows[0])]
    names = lacking + (encoder.missing(0) if encoder is not None else [])
    return no_data(task, names, worker.deployment, worker.deployment.system.name, worker.deployment.version)


def no_data(task: str, names: Sequence[str], deployment: Deployment, system: str, version: str) -> MissingData:
    """The error of operators that have no answer on a system."""
    where = f"{deployment.model.name} on {system}, {deployment.backend} {version}"
    return MissingData(
        f"{task}: no data for {', '.join(dict.fromkeys(names)) or 'any operator'} ({where}) in database mode "
        f"{deployment.database_mode}; HYBRID estimates what it can, SOL gives bounds."
    )


def nothing_fits(task: str, worker: Worker, at_least: Memory) -> tuple[Shortfall, AicjaxError]:
    """The shortfall of a role that does not fit, and the error that says so."""
    shortfall = memory_shortfall(worker, at_least)
    return shortfall, NoFeasible(f"{task}: {shortfall.detail}.")
