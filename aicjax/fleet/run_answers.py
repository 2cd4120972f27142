# SPDX-License-Identifier: Apache-2.0
"""Answers of simulations as plain Python values. Times are ms."""

from dataclasses import dataclass

from aicjax.fleet.answer_parts import Asked, Interval


@dataclass(frozen=True)
class Simulated:
    """How a pool, or the fleet, served its simulated requests.

    Attributes:
        requests: Requests of all runs after the warm-up; `completed`, `rejected` (queues full) and `refused` (too
            long) add up to them.
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
        histogram: Counts of TTFT [ms] of served requests after the warm-up, as `lo`, `hi`, `count`.
        verdict: `met`, `missed`, or `unstable`: then times are those of the horizon, and grow with it.
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
    histogram: tuple[dict[str, float], ...]
    verdict: str


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
