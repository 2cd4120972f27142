# SPDX-License-Identifier: Apache-2.0
"""What simulated runs say of a fleet and of each pool, with intervals; host side.

A request that was rejected or refused counts as a miss of the limit, and is as late as can be in every percentile.
"""

import dataclasses

import numpy as np

from aicjax._results import InputError
from aicjax.fleet.fleet_queue import FleetRun
from aicjax.fleet.fleet_simulation import Deployment, Runs
from aicjax.fleet.fleet_state import Outcome
from aicjax.fleet.statistics import (
    BATCHES,
    WARM_UP_SHARE,
    Interval,
    after_warm_up,
    nearest_rank,
    quantile_interval,
    share_interval,
    student_t,
)


@dataclasses.dataclass(frozen=True)
class Served:
    """How a pool, or a fleet, served its requests after the warm-up.

    Attributes:
        requests: Requests of all seeds that were sent to it.
        completed, rejected, refused: How many ended so; their sum is `requests`.
        ttft_s: Percentiles of the time to first token [s] by percentile; none where a seed has too few requests.
            Infinite where too many were not served.
        wait_s: Percentiles of the wait of served requests [s].
        slo_share: Share of the requests with a first token within the limit.
        utilization: Slot time in use of all slot time, from the end of the warm-up to the last arrival.
    """

    requests: int
    completed: int
    rejected: int
    refused: int
    ttft_s: dict[float, Interval | None]
    wait_s: dict[float, float | None]
    slo_share: Interval | None
    utilization: float


@dataclasses.dataclass(frozen=True)
class FleetSummary:
    """The fleet as a whole, and each pool by its number."""

    fleet: Served
    pools: tuple[Served, ...]


def summaries(
    runs: Runs,
    gaps_s: np.ndarray,
    deployment: Deployment,
    limit_s: float,
    percentiles: tuple[float, ...] = (50.0, 99.0),
    warm_up: float = WARM_UP_SHARE,
    batches: int = BATCHES,
) -> tuple[FleetSummary, ...]:
    """One summary a policy.

    Args:
        runs: Simulated requests [policy seed n].
        gaps_s: Their gaps [seed n].
        deployment: The pools.
        limit_s: Limit of the time to first token [s].
        percentiles: Percentiles to state.
        warm_up: Share of the requests, from the start, that does not count.
        batches: Least number of batches of all seeds that intervals come from; as many as seeds where requests of one
            seed differ by their time.
    """
    arrival_s = np.cumsum(np.asarray(gaps_s, np.float64), axis=-1)
    n = arrival_s.shape[1]
    first = int(warm_up * n)
    slots = np.asarray(deployment.pool_slots())
    pools = range(slots.size)
    window_s = np.asarray(gaps_s, np.float64)[:, first:].sum(axis=-1)

    def of(policy: int) -> FleetSummary:
        run = FleetRun(*(np.asarray(values)[policy] for values in runs.run))
        ttft_s = np.asarray(runs.ttft_s, np.float64)[policy]
        before = FleetRun(*(np.asarray(values)[policy] for values in runs.before))
        held_s = [_held_s(run, arrival_s, arrival_s[:, -1], window_s), _held_s(before, 0.0, arrival_s[:, -1], window_s)]

        def served(pool: int | None, slots: int) -> Served:
            member, under_way = (
                np.ones(one.pool.shape, bool) if pool is None else one.pool == pool for one in (run, before)
            )
            counted = member & (np.arange(n) >= first)
            ended = np.bincount(run.outcome[counted], minlength=len(Outcome))
            ttfts = _rectangle(ttft_s, counted)
            waits = np.sort(run.wait_s[counted & (run.outcome == Outcome.COMPLETED)])
            used_s = held_s[0][member].sum() + held_s[1][under_way].sum()
            return Served(
                requests=int(counted.sum()),
                completed=int(ended[Outcome.COMPLETED]),
                rejected=int(ended[Outcome.REJECTED]),
                refused=int(ended[Outcome.REFUSED]),
                ttft_s={share: quantile_interval(ttfts, share / 100.0, batches=batches) for share in percentiles},
                wait_s={share: _number(nearest_rank(waits, share / 100.0)) for share in percentiles},
                slo_share=share_interval(ttfts <= limit_s, batches=batches),
                utilization=float(used_s / (slots * window_s.sum())) if slots else 0.0,
            )

        return FleetSummary(served(None, int(slots.sum())), tuple(served(pool, int(slots[pool])) for pool in pools))

    return tuple(of(policy) for policy in range(runs.ttft_s.shape[0]))


def _held_s(run: FleetRun, arrival_s: np.ndarray | float, end_s: np.ndarray, window_s: np.ndarray) -> np.ndarray:
    """Slot time of each request in the window that ends at `end_s` [seed n]."""
    start_s = arrival_s + np.asarray(run.wait_s, np.float64)
    within_s = np.minimum(start_s + run.service_s, end_s[:, None]) - np.maximum(start_s, (end_s - window_s)[:, None])
    return np.nan_to_num(np.maximum(within_s, 0.0))


def _rectangle(samples: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Counted samples of each seed, the last so many that every seed has."""
    least = counted.sum(axis=1).min()
    return np.stack([row[mask][-least or row.size :] for row, mask in zip(samples, counted, strict=True)])


def _number(value: np.ndarray | None) -> float | None:
    return None if value is None else float(value)


def paired_difference(runs: Runs, percentile: float, confidence: float = 0.95) -> Interval:
    """How much later a percentile of the time to first token is [policy], against the first policy [s].

    The interval is that of the differences seed by seed, which shared arrivals make narrow.

    Raises:
        InputError: No requests after the warm-up.
    """
    each = nearest_rank(after_warm_up(np.asarray(runs.ttft_s, np.float64)), percentile / 100.0)
    if each is None:
        raise InputError("runs", runs.ttft_s.shape, "requests after the warm-up")
    with np.errstate(invalid="ignore"):
        change = np.where(each == each[0], 0.0, each - each[0])
    seeds, value = change.shape[-1], change.mean(axis=-1)
    known = np.isfinite(change).min(axis=-1)
    spread = np.where(known[:, None], change, 0.0).std(axis=-1, ddof=1)
    half = student_t((1.0 + confidence) / 2.0, seeds - 1) * spread / np.sqrt(seeds)
    return Interval(value, np.where(known, value - half, -np.inf), np.where(known, value + half, np.inf))
