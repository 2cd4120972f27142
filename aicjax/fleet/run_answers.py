# SPDX-License-Identifier: Apache-2.0
"""Answers of simulations as plain Python values. Times are ms."""

from dataclasses import dataclass

from aicjax.fleet.answer_parts import Asked, Interval


@dataclass(frozen=True)
class Simulated:
    """How a pool, or the fleet, served its simulated requests.

    Attributes:
        requests: Requests of all runs after the warm-up, all over a horizon; `completed`, `rejected` (queues full) and
            `refused` (too long) add up to them.
        ttft_p50_ms, ttft_ms: TTFT at the median and at the percentile; None with too few requests, or where too many
            were not served.
        wait_ms: Wait at the percentile; None where nothing was served.
        within_limit: Share of the requests within the limit.
        utilization: Share of the slot time in use.
        offered: Slot time that arrives per slot time there is; 1 or more grows the queue without bound.
    """

    requests: int
    completed: int
    rejected: int
    refused: int
    ttft_p50_ms: Interval | None
    ttft_ms: Interval | None
    wait_ms: float | None
    within_limit: Interval | None
    utilization: float
    offered: float


@dataclass(frozen=True)
class SimulatedPool:
    """A pool of a stated fleet and how it did."""

    name: str
    replica: str
    replicas: int
    gpus: int
    max_tokens: int
    slots: int
    price_per_hour: float
    result: Simulated


@dataclass(frozen=True)
class PoolDown:
    """A pool with some of its replicas down, in closed form.

    Attributes:
        down: Replicas that are down.
        probability: Of exactly so many; None where the availability is not known.
        utilization: Share of the slots in use; None without a replica, or where none has a slot.
        ttft_ms: TTFT at the percentile; None in overload.
        verdict: `met`, or why not.
    """

    down: int
    probability: float | None
    utilization: float | None
    ttft_ms: float | None
    verdict: str


@dataclass(frozen=True)
class PoolBounds:
    """What a pool bears, in closed form.

    Attributes:
        name: The pool, and its `replicas`.
        needed: Least replicas that meet the limit; None where no number does.
        enough: Probability that so many are up; None where the availability is not known.
        spare: Replicas above `needed` with which enough are up with the probability asked for; None as before, or where
            none suffice.
        down: State with 0, 1, 2 replicas down.
    """

    name: str
    replicas: int
    needed: int | None
    enough: float | None
    spare: int | None
    down: tuple[PoolDown, ...]


@dataclass(frozen=True)
class Bounds:
    """What a fleet bears in the long run, in closed form.

    Attributes:
        breaking_rate_per_s: Largest rate at which every pool meets the limit with all replicas up; 0 for none.
        enough: Probability that every pool has enough replicas up; None where the availability is not known.
        pools: Pools that get requests, by context.
    """

    breaking_rate_per_s: float
    enough: float | None
    pools: tuple[PoolBounds, ...]


@dataclass(frozen=True)
class SimulateAnswer:
    """A stated fleet, request by request.

    Attributes:
        asked: What was asked.
        router: Rule of the routing.
        pools: Its pools.
        fleet: All of it.
        gpus: GPUs of all pools.
        price_per_hour, price_per_year: Of all pools [USD].
        runs: Independent runs of `requests` each.
        horizon_s: Mean time that a run covers.
        start: How the fleet began where a horizon was stated, `empty` or `settled`; None for the long run.
        histogram: Counts of TTFT [ms] of served requests that count, as `lo`, `hi`, `count`.
        verdict: `met`, `missed`, or in the long run `unstable`: then times are those of the runs, and grow with them.
        bounds: The fleet in closed form; None where the rule of the routing has none.
    """

    asked: Asked
    router: str
    pools: tuple[SimulatedPool, ...]
    fleet: Simulated
    gpus: int
    price_per_hour: float
    price_per_year: float
    runs: int
    requests: int
    horizon_s: float
    start: str | None
    histogram: tuple[dict[str, float], ...]
    verdict: str
    bounds: Bounds | None


@dataclass(frozen=True)
class RouterRow:
    """One routing rule.

    Attributes:
        router: The rule.
        fleet: How the fleet did.
        pools: Share of the requests of each pool, by name.
        slower_ms: TTFT at the percentile less that of the first rule; its interval is that of the paired runs.
        verdict: As of a simulated fleet.
    """

    router: str
    fleet: Simulated
    pools: dict[str, float]
    slower_ms: Interval | None
    verdict: str


@dataclass(frozen=True)
class RoutersAnswer:
    """Routing rules on the same requests."""

    asked: Asked
    rows: tuple[RouterRow, ...]
    runs: int
    requests: int
    horizon_s: float
