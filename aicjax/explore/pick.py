# SPDX-License-Identifier: Apache-2.0
"""Top rows of a feasible frame: the most throughput for a GPU budget, or the fewest GPUs for a load."""

from dataclasses import dataclass

import numpy as np

from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER, LOAD_MATCH
from aicjax.explore.frame import Frame
from aicjax.explore.objective import Objective
from aicjax.explore.pareto import pareto_front


@dataclass(frozen=True)
class Limit:
    """The latency limit that picking applies.

    Attributes:
        column: `tpot` or `request_latency`.
        value_ms: Largest value allowed.
    """

    column: str
    value_ms: float

    def values(self, frame: Frame) -> np.ndarray:
        """The limited column; 0 where a request has one output token and so no TPOT."""
        column = frame[self.column]
        return np.where(frame["osl"] == 1, 0.0, column) if self.column == "tpot" else column

    @property
    def on_request(self) -> bool:
        """Whether the whole request is limited."""
        return self.column == "request_latency"


@dataclass(frozen=True)
class Pick:
    """Outcome of picking.

    Attributes:
        best: Top rows.
        pareto: Front of the frame.
        meets_target: Whether the top rows meet the limit; False when none does and the nearest are given.
    """

    best: Frame
    pareto: Frame
    meets_target: bool


def pick_for_budget(frame: Frame, limit: Limit, total_gpus: int, top_n: int, group: str, *, strict: bool) -> Pick:
    """The rows with the most tokens/s over a GPU budget that whole replicas fill, one of each group.

    Of rows with the same throughput the first in the frame counts: sweeps put those of tighter targets first. When no
    row meets the limit: each group's row with the most throughput, those nearest to the limit first.

    Args:
        frame: Feasible rows.
        limit: Latency limit.
        total_gpus: GPU budget.
        top_n: Rows to return.
        group: Column whose values are kept apart.
        strict: Whether rows that miss the limit are dropped before the front is taken.
    """
    if strict:
        frame = frames.take(frame, limit.values(frame) <= limit.value_ms)
    frame = over_budget(frame, total_gpus)
    rows, meets = _candidates(frame, limit)
    candidates = frames.take(frame, rows)
    candidates = frames.take(candidates, _first_of_groups(candidates[group], -candidates[CLUSTER]))
    if meets:
        second = candidates["request_latency"] if limit.on_request else -candidates["tokens/s/user"]
        order = np.lexsort((second, -candidates[CLUSTER]))
    else:
        order = np.argsort(limit.values(candidates), kind="stable")
    return Pick(frames.take(candidates, order[:top_n]), _front(frame, limit), meets)


def over_budget(frame: Frame, total_gpus: int) -> Frame:
    """The frame with the throughput of a GPU budget that whole replicas of each row fill, idle GPUs counted."""
    size = frame["num_total_gpus"]
    return frames.with_cluster(frame, frame["tokens/s/gpu"] * (total_gpus // size) * size / total_gpus)


def pick_for_load(
    frame: Frame,
    limit: Limit,
    top_n: int,
    group: str,
    *,
    request_rate: float | None = None,
    concurrency: float | None = None,
    max_gpus: int | None = None,
    in_flight: np.ndarray | None = None,
) -> Pick:
    """The rows that serve a load with the fewest GPUs, one of each group.

    When no row meets the limit: each group's nearest row. When none fits `max_gpus`: the rows with the most throughput
    on that many GPUs, with the share of the load that they serve.

    Args:
        frame: Feasible rows.
        limit: Latency limit.
        top_n: Rows to return.
        group: Column whose values are kept apart.
        request_rate: Load [requests/s]; this or `concurrency`.
        concurrency: Load [requests in flight].
        max_gpus: Most GPUs, or None.
        in_flight: Requests that a replica of each row has in flight; those that it has room for when None.
    """
    in_flight = frame["concurrency"] if in_flight is None else in_flight
    frame = frames.with_cluster(frame, frame["tokens/s/gpu"])
    rows, meets = _candidates(frame, limit)
    candidates, load = frames.take(frame, rows), Objective(request_rate=request_rate, concurrency=concurrency)
    replicas = load.replicas(candidates["seq/s"], in_flight[rows])
    size = candidates["num_total_gpus"]
    capped = meets and max_gpus is not None and bool((replicas * size > max_gpus).all())
    if meets and max_gpus is not None:
        if capped:
            wanted, replicas = replicas, np.maximum(max_gpus // size, 1)
            served = {LOAD_MATCH[2]: np.round(replicas / wanted * 100, 1)}
            cluster = candidates["tokens/s/gpu"] * replicas * size / max_gpus
            candidates = frames.with_cluster({**candidates, **served}, cluster)
        else:
            fits = replicas * size <= max_gpus
            candidates, replicas, size = frames.take(candidates, fits), replicas[fits], size[fits]
    needs = {LOAD_MATCH[0]: replicas, LOAD_MATCH[1]: replicas * size}
    candidates = frames.with_cluster({**candidates, **needs}, candidates[CLUSTER])
    if not meets:
        cost = limit.values(candidates)
    elif capped:
        cost = -candidates[CLUSTER]
    else:
        cost = candidates[LOAD_MATCH[1]]
    first = _first_of_groups(candidates[group], cost)
    candidates, cost = frames.take(candidates, first), cost[first]
    plain = meets and not capped
    order = np.lexsort((-candidates["tokens/s/gpu"] if plain else np.zeros(len(cost)), cost))
    return Pick(frames.take(candidates, order[:top_n]), _front(frame, limit), meets)


def order_of_engines(frame: Frame, *, by_throughput: bool = False) -> np.ndarray:
    """Order of rows that several engines picked: fewest GPUs first where a load is served whole, else throughput.

    Args:
        frame: The rows.
        by_throughput: Whether throughput decides in any case.
    """
    _, needed, served = LOAD_MATCH
    if needed in frame and served not in frame and not by_throughput:
        return np.lexsort((-frame["tokens/s/gpu"], frame[needed]))
    return np.argsort(-frame[CLUSTER], kind="stable")


def _front(frame: Frame, limit: Limit) -> Frame:
    """Front of what one request sees, its speed or the limited latency, against the throughput of the budget."""
    if limit.on_request or (frame["osl"] == 1).all():
        return pareto_front(frame, "request_latency", CLUSTER, maximize_x=False)
    return pareto_front(frame, "tokens/s/user", CLUSTER)


def _candidates(frame: Frame, limit: Limit) -> tuple[np.ndarray, bool]:
    """Mask of the rows within the limit, or of all when there is none; without those that are not finite."""
    values = limit.values(frame)
    meets = values <= limit.value_ms
    chosen = meets if meets.any() else np.ones(len(values), bool)
    return chosen & np.isfinite(values) & np.isfinite(frame[CLUSTER]), bool(meets.any())


def _first_of_groups(group: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Position of the first row with the least cost in each group, groups in the order of their names."""
    order = np.lexsort((cost, group))
    return order[np.unique(group[order], return_index=True)[1]]
