# SPDX-License-Identifier: Apache-2.0
"""The answer of a plan as plain Python values. Times are ms."""

from dataclasses import dataclass

from aicjax.fleet.answer_parts import Asked, CostAnswer, Interval


@dataclass(frozen=True)
class PlanRow:
    """Replicas of one deployment that serve the load.

    Attributes:
        system, backend, tp, pp, dp, moe_tp, moe_ep: The deployment.
        batch_size: Most requests in flight of one attention rank.
        gpus_per_replica: GPUs of a replica.
        needed, spare, replicas: Replicas that must be up, that may fail, and that are bought.
        gpus: GPUs that are bought.
        cost: What they cost; None without a price.
        capacity_per_s: Requests per second of a replica with every slot in use.
        utilization: Share of that capacity in use, with the needed replicas.
        ttft_ms: TTFT at the percentile by the queue law; None in overload.
        tpot_ms: Time per output token of the searched deployment, with every slot in use.
        ttft_simulated_ms, tpot_simulated_ms: TTFT at the percentile and mean TPOT by simulation of the engine's steps;
            None where not simulated: a cheaper deployment meets the limits.
        confidence: Probability that the limit on TTFT is met, by the spread of the runs.
        enough_up: Probability that the needed replicas are up; 1 where all always are.
        verdict: `met`, or what the limits fail by: `isolated prefill time`, `TPOT`, `TTFT`.
    """

    system: str
    backend: str
    tp: int
    pp: int
    dp: int
    moe_tp: int
    moe_ep: int
    batch_size: int
    gpus_per_replica: int
    needed: int
    spare: int
    replicas: int
    gpus: int
    cost: CostAnswer | None
    capacity_per_s: float
    utilization: float
    ttft_ms: float | None
    tpot_ms: float
    ttft_simulated_ms: Interval | None
    tpot_simulated_ms: Interval | None
    confidence: float | None
    enough_up: float
    verdict: str


@dataclass(frozen=True)
class PlanAnswer:
    """Deployments with their replicas, those that meet the limits first and the cheapest of them first.

    Attributes:
        asked: What was asked.
        model: The model.
        tpot_ms: Limit on the mean time per output token.
        rows: The deployments.
        refused: Systems without an answer, and why.
    """

    asked: Asked
    model: str
    tpot_ms: float
    rows: tuple[PlanRow, ...]
    refused: dict[str, str]
