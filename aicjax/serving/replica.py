# SPDX-License-Identifier: Apache-2.0
"""What the workers of disaggregated serving cost, by the formulas that the constants belong to.

A search prices prefill and decode workers apart, before it pairs them. The closed loop is brought into that form: its
levels are corrections of a worker, its host times are added to each step, and the wait for a prefill rank is that at
the utilisation that rate matching plans with.
"""

import dataclasses
import math
from typing import Any, Literal

from aicjax.constants import Constants, DisaggConstants
from aicjax.serving.worker_cost import WorkerCost, decode_worker_cost, prefill_worker_cost


def worker_cost(constants: Constants, role: Literal["prefill", "decode"], layers: Any) -> WorkerCost:
    """What a worker of a replica costs.

    Args:
        constants: Numbers of the engine.
        role: Which worker.
        layers: Decoder layers, which cost host time per prefill.
    """
    loop, correction = constants.loop, getattr(constants.disagg, f"{role}_latency_correction")
    if constants.formulas != "closed_loop":
        return WorkerCost(correction)
    if role == "prefill":
        return prefill_worker_cost(loop, layers).times(correction)
    return decode_worker_cost(loop).times(correction * loop.tpot_level)


def replica_constants(constants: Constants, wait: Any = None) -> DisaggConstants:
    """The constants of a replica as its estimate takes them.

    With requests that wait w prefills for a prefill rank, the closed loop has

        ttft = level (request + handover + (1 + w) prefill)

    Args:
        constants: Numbers of the engine.
        wait: The wait; by default that at the utilisation that rate matching plans with (`prefill_degradation`). That
            of a replica is no higher, so that its wait is no longer. Not read by the mean field.
    """
    at, loop = constants.disagg, constants.loop
    if constants.formulas != "closed_loop":
        return at
    wait = prefills_waited(constants, at.prefill_degradation) if wait is None else wait
    return dataclasses.replace(
        at,
        ttft_correction=at.ttft_correction * loop.ttft_level * (1.0 + wait),
        handover_ms=loop.ttft_level * (at.handover_ms + loop.disagg_request_ms),
    )


def prefills_waited(constants: Constants, utilisation: Any, asked: Any = 1.0, waves: Any = math.inf) -> Any:
    """Mean wait for a prefill rank of the closed loop, in prefills; of a first wave by its place in the queue.

    Args:
        constants: Numbers of the engine.
        utilisation: Share of the time in which the rank works; below 1.
        asked: Requests in flight for each rank.
        waves: Requests of the run, relative to those in flight.
    """
    loop = constants.loop
    steady = loop.disagg_queue_weight * utilisation / (1.0 - utilisation)
    return (1.0 - 1.0 / waves) * steady + loop.disagg_burst_weight / waves * (asked - 1.0) / 2.0
