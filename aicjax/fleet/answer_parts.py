# SPDX-License-Identifier: Apache-2.0
"""Answers to sizings as plain Python values: what the commands print and the service sends. Times are ms."""

from dataclasses import dataclass, field

MET, MISSED, PREFILL_TOO_SLOW = "met", "missed", "isolated prefill time"  # verdicts


@dataclass(frozen=True)
class Interval:
    """A figure of a simulation, and the ends of its 95 % interval; None where the runs are too few for ends."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Workload:
    """Lengths of requests.

    Attributes:
        name: What was stated.
        mean_isl, mean_osl: Mean tokens.
        longest_tokens: Most tokens (prompt and output) of a request.
    """

    name: str
    mean_isl: float
    mean_osl: float
    longest_tokens: int


@dataclass(frozen=True)
class PoolAnswer:
    """One pool of a fleet under its share of the load.

    Attributes:
        name, replica: The pool and what it consists of.
        max_tokens: Most tokens of a request.
        replicas: Replicas that are bought; `spare` of them may fail.
        gpus: GPUs of them.
        slots: Requests that a replica runs at once.
        share: Share of all requests.
        rate_per_s: Arrivals.
        utilization: Share of the slots in use, without the spare replicas; None where a replica has no slot.
        wait_probability: Share of its requests that wait for a slot.
        wait_ms, ttft_ms: At the percentile; None in overload.
        ttft_simulated_ms: TTFT at the percentile by simulation; None where not simulated.
        price_per_hour: Of its replicas [USD/h].
        verdict: `met`, or why not: `overloaded`, `missed`, `isolated prefill time`, `too many replicas`,
            `no room for a request`.
    """

    name: str
    replica: str
    max_tokens: int
    replicas: int
    spare: int
    gpus: int
    slots: int
    share: float
    rate_per_s: float
    utilization: float | None
    wait_probability: float
    wait_ms: float | None
    ttft_ms: float | None
    ttft_simulated_ms: Interval | None
    price_per_hour: float
    verdict: str


@dataclass(frozen=True)
class CostAnswer:
    """What a fleet costs [USD]; prices per million tokens are of all its cost.

    Attributes:
        per_hour, per_year: Of all replicas.
        per_million_input, per_million_output, per_million_total: All of the cost over the tokens of that kind.
        input_price, output_price: The cost parted by the time in prefill and in decode, per million tokens of the kind.
        tokens_per_usd: Tokens of both kinds for a dollar; None where nothing is paid.
    """

    per_hour: float
    per_year: float
    per_million_input: float
    per_million_output: float
    per_million_total: float
    input_price: float
    output_price: float
    tokens_per_usd: float | None


@dataclass(frozen=True)
class FleetAnswer:
    """One fleet under a load.

    Attributes:
        pools: Its pools, short requests first.
        gamma: Factor of the threshold up to which requests are compressed; 1 for none.
        replicas, gpus: Of all pools.
        cost: What it costs.
        ttft_ms: TTFT at the percentile in the slowest pool; None in overload.
        refused: Share of the requests that are longer than every pool takes.
        meets: Whether every pool meets the limit, by simulation where there is one, and no more requests are refused
            than may miss the limit.
        confidence: Probability that the limit is met, by the spread of the runs; None where not simulated.
    """

    pools: tuple[PoolAnswer, ...]
    gamma: float
    replicas: int
    gpus: int
    cost: CostAnswer
    ttft_ms: float | None
    refused: float
    meets: bool
    confidence: float | None

    @property
    def simulated(self) -> bool:
        """Whether any pool was simulated."""
        return any(pool.ttft_simulated_ms is not None for pool in self.pools)

    @property
    def binding(self) -> str | None:
        """The first pool that misses its limit and why, or the requests that are refused; None where it meets."""
        missed = [f"{pool.name} pool: {pool.verdict}" for pool in self.pools if pool.verdict != MET]
        if missed:
            return missed[0]
        return None if self.meets else f"requests longer than every pool ({self.refused:.1%} of all)"


@dataclass(frozen=True)
class Asked:
    """What an answer is for.

    Attributes:
        workload: Lengths of requests.
        rate_per_s: Arrivals; None where several are asked.
        ttft_ms, percentile: Limit, and the share of requests that must be within it [%].
        compat: Whose rules.
    """

    workload: Workload
    rate_per_s: float | None
    ttft_ms: float
    percentile: float
    compat: str


@dataclass(frozen=True)
class SizeAnswer:
    """Fleets that serve a rate, cheapest first.

    Attributes:
        asked: What was asked.
        fleets: One for each gamma, cheapest first; the first few may be simulated.
        best: Position of the answer: the cheapest that meets the limit, else the cheapest.
    """

    asked: Asked
    fleets: tuple[FleetAnswer, ...]
    best: int = field(default=0)

    @property
    def chosen(self) -> FleetAnswer:
        """The answer."""
        return self.fleets[self.best]


@dataclass(frozen=True)
class ThresholdRow:
    """A threshold between two pools; None is one pool.

    Attributes:
        threshold: Total tokens.
        fleet: The fleet.
        saving: Share of the cost of one pool that it saves.
        pareto: Whether no other threshold is both cheaper and faster.
    """

    threshold: int | None
    fleet: FleetAnswer
    saving: float
    pareto: bool


@dataclass(frozen=True)
class ParetoAnswer:
    """Cost against latency of thresholds, ascending; `best` is the cheapest that meets the limit, None without one."""

    asked: Asked
    rows: tuple[ThresholdRow, ...]
    best: int | None


@dataclass(frozen=True)
class RateRow:
    """The cheapest fleet of one kind of replica at one rate."""

    rate_per_s: float
    replica: str
    fleet: FleetAnswer


@dataclass(frozen=True)
class WhatIfAnswer:
    """Fleets by rate, then by kind of replica."""

    asked: Asked
    rows: tuple[RateRow, ...]
