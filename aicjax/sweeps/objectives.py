# SPDX-License-Identifier: Apache-2.0
"""What points are ranked by: rates per GPU, dollar or joule, and latencies."""

import numpy as np
from numpy.typing import NDArray

from aicjax._units import S_PER_HOUR
from aicjax.hardware import System
from aicjax.sweeps.spec import OBJECTIVES, SweepSpec

RATE = "seq_per_s"


def measure(objective: str) -> str:
    """What a kernel bounds for an objective: the rate, or a latency."""
    return RATE if OBJECTIVES[objective] else objective


def measures(spec: SweepSpec) -> tuple[str, ...]:
    """Measures of all objectives, without repeats."""
    return tuple(dict.fromkeys(measure(name) for name in spec.objectives))


def factor(objective: str, spec: SweepSpec, system: System, gpus: NDArray[np.int64], tokens: int) -> NDArray:
    """What a rate of requests is worth per GPU, dollar or joule of the GPUs' board power; 1 for latencies.

    Args:
        objective: The objective.
        spec: Has the prices.
        system: Has the power.
        gpus: GPUs that the rate takes.
        tokens: Output tokens that count per request.
    """
    match objective:
        case "tokens/s/gpu":
            return tokens / gpus
        case "tokens/$":
            return tokens * S_PER_HOUR / (gpus * spec.gpu_hour_price[system.name])
        case "tokens/J":
            return tokens / (gpus * system.power_w)
        case _:
            return np.ones(len(gpus))
