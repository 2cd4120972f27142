# SPDX-License-Identifier: Apache-2.0
"""Parts of an answer in a few words: a worker, its memory, where the time of a step comes from."""

from typing import TYPE_CHECKING, Any

import numpy as np

from aicjax._results import Provenance
from aicjax.explore.result import MemoryUse, StepTimes
from aicjax.report.rows import Worker

if TYPE_CHECKING:
    from aicjax.explore.open_point import OpenLoad


def model(request: Any) -> str:
    """The model of a request, and what it is modelled as where the request says so."""
    return request.model_path if request.family is None else f"{request.model_path} modelled as {request.family}"


def following(request: Any) -> str:
    """That a request follows AIConfigurator also in its defects, as the end of a phrase; empty otherwise."""
    return "; as AIConfigurator" if request.compat == "reference" else ""


def describe(worker: Worker) -> str:
    """A worker: how many, layout, batch."""
    count = "" if worker.role == "agg" and worker.count == 1 else f"{worker.count} x "
    return f"{count}{worker.layout} b{worker.batch}"


def composition(workers: tuple[Worker, ...]) -> str:
    """The workers of a replica: `5 x tp4 b1 prefill + 3 x tp4 b64 decode`."""
    return " + ".join(f"{describe(worker)} {'' if worker.role == 'agg' else worker.role}".strip() for worker in workers)


def memory_use(use: MemoryUse) -> str:
    """The memory of one GPU of a worker, whole and by part."""
    rule = f" at {use.kv_rule}" if use.kv_rule else ""
    return (
        f"memory {use.role}: {use.total:.1f} of {use.capacity:.1f} GiB (weights {use.weights:.1f}, activations "
        f"{use.activations:.1f}, KV {use.kvcache:.1f} of {use.kv_budget:.1f}{rule}, other {use.nccl + use.others:.1f})"
    )


def sources(step: StepTimes) -> str:
    """The share of a step's time by how it was obtained, largest first."""
    latency_ms, codes = np.asarray(step.latency_ms), np.asarray(step.provenance, int)
    parts = {int(code): float(latency_ms[codes == code].sum() / step.total_ms) for code in np.unique(codes)}
    order = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{share:.1%} {Provenance(code).name.lower()}" for code, share in order if share > 0)


def open_load(load: "OpenLoad") -> str:
    """What becomes of a stated rate."""
    most = f"at most {load.largest_stable_rate:.4g} req/s, by {load.reason}"
    asked = f"open load of {load.request_rate:g} req/s ({load.arrivals}): {load.verdict}"
    if load.batch is None:
        return f"{asked}; {most}"
    waits = f"waits {load.queue_wait_ms:.1f} ms for a step and {load.space_wait_ms:.1f} ms for a place"
    return f"{asked} at {load.utilization:.0%} of {most}; batch {load.batch:.2f} of {load.batch_limit}, {waits}"
