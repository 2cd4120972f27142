# SPDX-License-Identifier: Apache-2.0
"""The rows of points of a disaggregated sweep, from their numbers."""

import numpy as np
from numpy.typing import NDArray

from aicjax.explore import frame as frames
from aicjax.explore.columns import DISAGG
from aicjax.explore.disagg_sweep import disagg_frame
from aicjax.explore.frame import Frame
from aicjax.explore.replicas import Replicas
from aicjax.explore.space import Role
from aicjax.explore.static_sweep import static_frame
from aicjax.serving.disagg import WorkerCounts, Workers, disagg_estimate
from aicjax.sweeps.cases import Case, pair_numbers
from aicjax.sweeps.disagg_prepare import DisaggPreparation
from aicjax.sweeps.kept import Points, no_points
from aicjax.sweeps.objectives import factor

_ADDED = ("nextn", "nextn_accepted", "memory_fraction", "tokens/$", "tokens/J", "point")
COLUMNS = (*DISAGG, *_ADDED)
"""Names as in the rows of a search, and of this room: `memory_fraction` (absent for the engine's own), `tokens/$`
(absent without a price), `tokens/J` of board power, and `point`, the number of the point."""

Ints = NDArray[np.int64]


def disagg_rows(preparation: DisaggPreparation, points: Points) -> Frame:
    """One row for each point in their order, numbers rounded as those of a search; NaN where a number is absent.

    Args:
        preparation: Times the workers of the sweep.
        points: Points of it.
    """
    cases = preparation.cases.cases
    of_case = np.searchsorted([case.first_point for case in cases], points.number, side="right") - 1
    order = np.argsort(of_case, kind="stable")
    chosen, first = np.unique(of_case[order], return_index=True)
    parts = [_case_rows(preparation, cases[0], no_points())]
    for case, rows in zip(chosen, np.split(order, first[1:]), strict=False):
        parts.append(_case_rows(preparation, cases[case], points.take(rows)))
    return frames.take(frames.concatenate(parts), np.argsort(order))


def _case_rows(preparation: DisaggPreparation, case: Case, points: Points) -> Frame:
    spec, engine = preparation.spec, preparation.cases.engines[case.engine]
    numbers = pair_numbers(spec, engine, len(case.batches))
    at = numbers.place(points.number - case.first_point)
    sides: tuple[tuple[Role, Ints, Ints, tuple[int, ...]], ...] = (
        ("prefill", at.prefill_layout, at.prefill_batch, spec.prefill_batch),
        ("decode", at.decode_layout, at.decode_batch, case.batches),
    )
    rows = [_worker_rows(preparation, case, role, layout, np.array(b)[batch]) for role, layout, batch, b in sides]
    prefill, decode = rows
    counts = WorkerCounts(*numbers.space.workers(at.prefill_layout, at.decode_layout, at.choice), 0 * at.choice)
    deployment = engine.workers["prefill"].deployment
    before, after = (Workers(side["seq/s"], side["num_total_gpus"]) for side in rows)
    osl, constants = case.workload.osl, deployment.disagg
    estimate = disagg_estimate(before, after, counts, prefill["ttft"], decode["tpot"], osl, constants)
    every = np.arange(len(at.choice))
    frame = disagg_frame(prefill, decode, Replicas(every, every, 0 * every, counts, estimate))
    system = deployment.system
    priced = system.name in spec.gpu_hour_price
    values = {
        "nextn": case.workload.drafts.nextn,
        "nextn_accepted": case.workload.drafts.accepted,
        "memory_fraction": np.nan if case.memory_fraction is None else case.memory_fraction,
        "tokens/$": estimate.seq_per_s * factor("tokens/$", spec, system, estimate.gpus, osl) if priced else np.nan,
        "tokens/J": estimate.seq_per_s * factor("tokens/J", spec, system, estimate.gpus, osl),
        "point": points.number,
    }
    return frame | frames.build(_ADDED, values, len(every), decimals=None)


def _worker_rows(preparation: DisaggPreparation, case: Case, role: Role, layout: Ints, batch: Ints) -> Frame:
    """One row for each worker, numbers not rounded."""
    batches, batch_at = np.unique(batch, return_inverse=True)
    if len(batches) == 0:
        batches = np.ones(1, np.int64)
    sweep, points = preparation.points(case, role, batches.tolist())
    frame = static_frame(sweep, points, np.ones(points.context_ms.shape, bool), decimals=None)
    return frames.take(frame, layout * len(batches) + batch_at)
