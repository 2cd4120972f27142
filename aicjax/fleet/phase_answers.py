# SPDX-License-Identifier: Apache-2.0
"""Answers about phases on replicas of their own and about power, as plain Python values. Times are ms."""

from dataclasses import dataclass

from aicjax.fleet.answer_parts import Asked


@dataclass(frozen=True)
class DisaggRow:
    """Counts of prefill and decode replicas.

    Attributes:
        prefill, decode: Replicas of each phase.
        gpus: GPUs of all.
        price_per_hour, price_per_year: Of all [USD].
        capacity_per_s: Rate that the slower phase serves; `per_gpu_per_s` per GPU.
        prefill_utilization, decode_utilization: Share of the capacity of each phase that the load takes.
        ttft_ms, tpot_ms: TTFT at the percentile, mean time per output token; None in overload.
        bottleneck: The phase with the smaller capacity.
        meets: Whether both limits hold and both phases keep up.
    """

    prefill: int
    decode: int
    gpus: int
    price_per_hour: float
    price_per_year: float
    capacity_per_s: float
    per_gpu_per_s: float
    prefill_utilization: float
    decode_utilization: float
    ttft_ms: float | None
    tpot_ms: float | None
    bottleneck: str
    meets: bool


@dataclass(frozen=True)
class DisaggAnswer:
    """Fleets with phases on replicas of their own.

    Attributes:
        asked: What was asked.
        tpot_ms: Limit on the mean time per output token.
        prefill, decode: Kinds of replica.
        rows: Fleets within the limits that none matches in price, TTFT and TPOT and beats in one, cheapest first; where
            none is within, the nearest alone.
        binding: What keeps every fleet from the limits, or None.
    """

    asked: Asked
    tpot_ms: float
    prefill: str
    decode: str
    rows: tuple[DisaggRow, ...]
    binding: str | None


@dataclass(frozen=True)
class FlexRow:
    """A fleet with part of its power shed.

    Attributes:
        cut: Share of the full power that is shed.
        cap: Requests that a replica may run at once.
        gpu_w: Power of a GPU at its load, and `cap_gpu_w` at most.
        fleet_kw: Power of all GPUs at their load, and `cap_kw` at most.
        utilization: Share of the allowed requests that run; None where a replica has no slot.
        ttft_ms: TTFT at the percentile; None in overload.
        verdict: As of a pool.
    """

    cut: float
    cap: int
    gpu_w: float
    cap_gpu_w: float
    fleet_kw: float
    cap_kw: float
    utilization: float | None
    ttft_ms: float | None
    verdict: str


@dataclass(frozen=True)
class FlexAnswer:
    """What a fleet can shed.

    Attributes:
        asked: What was asked.
        replica, replicas: The fleet.
        evidence: How well its power law is known.
        rows: One for each cut.
        best: Position of the largest cut within the limit; None where it is missed without any.
    """

    asked: Asked
    replica: str
    replicas: int
    evidence: str
    rows: tuple[FlexRow, ...]
    best: int | None


@dataclass(frozen=True)
class WattRow:
    """Output tokens for power and money of one kind of fleet.

    Attributes:
        fleet: Pools in words.
        replicas, gpus: Of all pools.
        utilization: Share of the slots in use, of the busiest pool, None without slots; `sized` whether by the limit.
        running: Requests that a replica runs in the mean, of the last pool.
        gpu_w: Power of a GPU then.
        fleet_kw: Power of all GPUs.
        tokens_per_s: Output tokens.
        tokens_per_joule: Output tokens per second and watt.
        usd_per_million_output: Price.
        ttft_ms: TTFT at the percentile in the slowest pool; None in overload.
        evidence: How well the power laws are known, the worst of all pools.
        meets: Whether every pool meets the limit.
    """

    fleet: str
    replicas: int
    gpus: int
    sized: bool
    utilization: float | None
    running: float
    gpu_w: float
    fleet_kw: float
    tokens_per_s: float
    tokens_per_joule: float
    usd_per_million_output: float
    ttft_ms: float | None
    evidence: str
    meets: bool


@dataclass(frozen=True)
class WattAnswer:
    """Kinds of fleet by tokens per watt, those sized by the limit first and the best of them first."""

    asked: Asked
    rows: tuple[WattRow, ...]
