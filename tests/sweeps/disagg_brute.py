# SPDX-License-Identifier: Apache-2.0
"""Every pair of workers and worker counts of a disaggregated sweep, in float64, from the worker rows of a search."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.evaluation import Evaluation
from aicjax.explore.frame import Frame
from aicjax.explore.grid import load_grid
from aicjax.explore.space import Role
from aicjax.explore.static_sweep import StaticSweep, plan_static_sweep, static_frame, static_points
from aicjax.serving.static import Mode
from aicjax.serving.worker_cost import WorkerCost
from aicjax.sweeps.cases import Case, Cases, Engine, request_of
from aicjax.sweeps.spec import Limits, SweepSpec

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


MODES: dict[Role, Mode] = {"prefill": "static_ctx", "decode": "static_gen"}


class Brute(NamedTuple):
    """All points of a case in the order of their numbers, flat; NaN without data.

    Attributes:
        pair: Which pair of workers each is of, from 0.
        gpus: GPUs of the replica.
        score: Requests per second and GPU.
        ttft_ms, tpot_ms, request_latency_ms: Latencies [ms].
        worst: The worse of the memory verdicts of the two workers.
        prefill_workers, decode_workers: Number of workers.
    """

    pair: NDArray[np.int64]
    gpus: NDArray[np.int64]
    score: Floats
    ttft_ms: Floats
    tpot_ms: Floats
    request_latency_ms: Floats
    worst: NDArray[np.int64]
    prefill_workers: NDArray[np.int64]
    decode_workers: NDArray[np.int64]

    @property
    def usable(self) -> Mask:
        """Points with data and room, whatever the limits."""
        return np.isfinite(self.score) & (self.worst == 0)

    def met(self, limits: Limits) -> tuple[Mask, Mask]:
        """Usable points within the limit on TTFT, and within that on TPOT."""
        fast, quick = self.ttft_ms <= (limits.ttft or np.inf), self.tpot_ms <= (limits.tpot or np.inf)
        return self.usable & fast, self.usable & quick

    def counts(self, limits: Limits) -> list[int]:
        """`kept.COUNTS`."""
        fast, quick = self.met(limits)
        known = np.isfinite(self.score)
        lost = ~known, known & (self.worst == 2), known & (self.worst == 1)
        return [len(self.pair), 0, *(int(mask.sum()) for mask in (*lost, fast & quick, fast, quick))]

    def chosen(self) -> NDArray[np.int64]:
        """Position of the point that stands for each usable pair: most per GPU, then fewest GPUs, then first."""
        order = np.lexsort((self.gpus, self.pair))
        order = order[self.usable[order]]
        first = np.flatnonzero(np.diff(self.pair[order], prepend=-1))
        most = np.repeat(np.maximum.reduceat(self.score[order], first), np.diff(first, append=len(order)))
        tied = order[self.score[order] >= most * (1 - 1e-6)]
        return tied[np.unique(self.pair[tied], return_index=True)[1]]


def group_points(spec: SweepSpec, cases: Cases, group: Sequence[Case]) -> list[Brute]:
    """All points of each of some cases."""
    timed: dict[tuple, dict[Role, tuple[StaticSweep, Evaluation]]] = {}
    found = []
    for case in group:
        key = case.engine, case.workload, case.batches
        if key not in timed:
            timed[key] = _timed(spec, cases.engines[case.engine], case)
        prefill, decode = (_rows(*timed[key][role], case.memory_fraction) for role in MODES)
        found.append(_case_points(spec, cases.engines[case.engine], case, prefill, decode))
    return found


def _case_points(spec: SweepSpec, engine: Engine, case: Case, prefill: Frame, decode: Frame) -> Brute:
    rules = engine.workers["prefill"].deployment.rules
    parts: dict[str, list] = {name: [] for name in Brute._fields}
    counts = np.arange(1, spec.prefill_workers + 1)[None, :], np.arange(1, spec.decode_workers + 1)[:, None]
    pairs = 0
    for d in range(len(decode["tp"])):
        for p in range(len(prefill["tp"])):
            gpus = counts[0] * prefill["num_total_gpus"][p] + counts[1] * decode["num_total_gpus"][d]
            if rules.same_tp_handover and prefill["tp"][p] != decode["tp"][d]:
                continue
            allowed = np.argwhere(gpus <= spec.total_gpus)
            allowed = allowed[np.lexsort((allowed[:, 0], gpus[tuple(allowed.T)]))]
            d_num, p_num = allowed.T + 1
            total = gpus[tuple(allowed.T)]
            rate = np.minimum(0.9 * p_num * prefill["seq/s"][p], 0.92 * d_num * decode["seq/s"][d])
            ttft_ms, tpot_ms = 1.8 * prefill["ttft"][p], decode["tpot"][d]
            if (constants := engine.workers["prefill"].deployment.constants).formulas == "closed_loop":
                wait = constants.loop.disagg_queue_weight * 0.9 / 0.1
                ttft_ms = constants.loop.disagg_request_ms + (1 + wait) * prefill["ttft"][p]
            values = {
                "pair": pairs, "gpus": total, "score": rate / total, "ttft_ms": ttft_ms, "tpot_ms": tpot_ms,
                "request_latency_ms": ttft_ms + tpot_ms * (case.workload.osl - 1),
                "worst": max(prefill["verdict"][p], decode["verdict"][d]),
                "prefill_workers": p_num, "decode_workers": d_num,
            }  # fmt: skip
            for name, value in values.items():
                parts[name].append(np.broadcast_to(value, total.shape))
            pairs += 1
    return Brute(**{name: np.concatenate(values) for name, values in parts.items()})


def _timed(spec: SweepSpec, engine: Engine, case: Case) -> dict[Role, tuple[StaticSweep, Evaluation]]:
    workers, evaluation = engine.under(request_of(spec, engine.name, case.workload)), Evaluation()
    batches, stride = {"prefill": spec.prefill_batch, "decode": case.batches}, load_grid().disagg.decode_stride
    return {
        role: (plan_static_sweep(workers[role], mode, batches[role], evaluation.add(workers[role]), stride), evaluation)
        for role, mode in MODES.items()
    }


def _rows(sweep: StaticSweep, evaluation: Evaluation, memory_fraction: float | None) -> Frame:
    """Workers layout by layout, batch by batch, numbers not rounded."""
    deployment = sweep.worker.deployment
    numbers = deployment.constants.loop
    cost = WorkerCost(1.1 if sweep.mode == "static_ctx" else 1.08)
    if deployment.constants.formulas == "closed_loop" and sweep.mode == "static_ctx":
        host_ms = numbers.host_ms_per_prefill + numbers.host_ms_per_prefill_layer * deployment.model.layers
        cost = WorkerCost(numbers.disagg_prefill_level * numbers.prefill_level, host_ms)
    elif deployment.constants.formulas == "closed_loop":
        host = numbers.host_ms_per_step, numbers.host_ms_per_running_request
        cost = WorkerCost(*(numbers.disagg_decode_level * part for part in (1, *host)))
    points = static_points(sweep, *evaluation.curves(sweep.worker), cost=cost, kv_fraction=memory_fraction)
    frame = static_frame(sweep, points, np.ones(points.verdict.shape, bool), decimals=None)
    return frame | {"verdict": points.verdict.ravel().astype(int)}
