# SPDX-License-Identifier: Apache-2.0
"""What simulated queues say of their times to first token: in the long run, or over a stated horizon in overload.

Where arrivals ask for all servers or more, waits grow for as long as the load lasts and no percentile exists. Such a
load has a verdict, and a percentile only over the arrivals of a stated time, from an empty queue.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from aicjax._results import InputError
from aicjax.fleet.pool_queue import Arrivals, QueueSample, simulate_queues, unit_poisson
from aicjax.fleet.service import ServiceLaw
from aicjax.fleet.statistics import BATCHES, Interval, after_warm_up, mean_interval, quantile_interval


class QueueAnswer(NamedTuple):
    """Times to first token of one load.

    Attributes:
        stable: Whether the queue has a long run: utilization is below 1.
        utilization: Mean servers that the arrivals ask for, as a share of all.
        horizon_s: Time over which requests arrived, from an empty queue; None for the long run.
        ttft_s: TTFT at the percentile, with its 95 % interval; None for the long run of an unstable queue.
        within_limit: Share of the requests with a TTFT within the limit; as `ttft_s`.
    """

    stable: bool
    utilization: float
    horizon_s: float | None
    ttft_s: Interval | None
    within_limit: Interval | None


def steady_answers(sample: QueueSample, quantile: float, limit_s: float) -> list[QueueAnswer]:
    """The long run of each load, without the first fifth of the requests.

    Args:
        sample: Simulated queues.
        quantile: Percentile as a share, such as 0.99.
        limit_s: Limit on the TTFT.
    """
    answers = []
    for utilization, ttft_s in zip(sample.utilization, after_warm_up(sample.ttft_s), strict=True):
        stable = bool(utilization < 1.0)
        intervals = _intervals(ttft_s, quantile, limit_s, BATCHES) if stable else (None, None)
        answers.append(QueueAnswer(stable, float(utilization), None, *intervals))
    return answers


def horizon_answer(
    key: Array,
    service: ServiceLaw,
    rate_per_s: float,
    servers: int,
    horizon_s: float,
    *,
    quantile: float,
    limit_s: float,
    seeds: int = BATCHES,
    arrivals: Arrivals = unit_poisson,
) -> QueueAnswer:
    """The requests of a stated time from an empty queue, stable or not: as many as arrive in the mean.

    Args:
        key: Random key.
        service: Law of service and prefill.
        rate_per_s: Arrivals.
        servers: Servers.
        horizon_s: Time over which requests arrive.
        quantile: Percentile as a share, such as 0.99.
        limit_s: Limit on the TTFT.
        seeds: Independent runs, which give the interval; 5 or more.
        arrivals: Gaps of mean one from a key and their number; Poisson by default.

    Raises:
        InputError: Less than one request arrives in the mean.
    """
    requests = round(rate_per_s * horizon_s)
    if requests < 1:
        raise InputError("horizon_s", horizon_s, f"{1.0 / rate_per_s:g} or more, so that a request arrives")
    sample = simulate_queues(
        key, service, rate_per_s, np.array([servers]), requests=requests, seeds=seeds, arrivals=arrivals
    )
    utilization = float(sample.utilization[0])
    intervals = _intervals(sample.ttft_s[0], quantile, limit_s, seeds)
    return QueueAnswer(utilization < 1.0, utilization, float(horizon_s), *intervals)


def _intervals(
    ttft_s: Float[np.ndarray, "seed request"], quantile: float, limit_s: float, batches: int
) -> tuple[Interval | None, Interval | None]:
    return (
        quantile_interval(ttft_s, quantile, batches=batches),
        mean_interval(ttft_s <= limit_s, batches=batches),
    )
