# SPDX-License-Identifier: Apache-2.0
"""What lies behind a row: memory by part, the limit that binds it, and why the next larger batch was not taken."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aicjax._units import GIB, MS_PER_S
from aicjax.explore.result import MemoryUse
from aicjax.explore.shortfall import Limits
from aicjax.forward.memory import MemorySplit, Verdict

Values = NDArray[np.float64]


def memory_use(role: str, split: MemorySplit, config: int) -> MemoryUse:
    """Memory of one GPU of one layout; the split is of a single point."""

    def gib(part: NDArray | float) -> float:
        values = np.broadcast_to(part, split.total_bytes.shape)
        return float(values[config, 0]) / GIB

    return MemoryUse(
        role=role,
        weights=gib(split.weights_bytes),
        activations=gib(split.activations_bytes),
        kvcache=gib(split.kvcache_bytes),
        nccl=gib(split.nccl_bytes),
        others=gib(split.others_bytes),
        capacity=split.capacity_bytes / GIB,
        kv_budget=gib(split.kv_budget_bytes),
        kv_rule=f"{split.kv_fraction[config, 0]:g} of {'what is free' if split.kv_fraction_of_free else 'the GPU'}",
    )


def misfit_reason(split: MemorySplit, config: int) -> tuple[str, str] | None:
    """Binding limit and reason of a point that does not fit; None if it does."""
    use = memory_use("", split, config)
    verdict = int(np.broadcast_to(split.verdict, split.total_bytes.shape)[config, 0])
    if verdict == Verdict.DOES_NOT_FIT:
        return "memory", f"needs {use.total:.2f} GiB of {use.capacity:.2f} GiB per GPU"
    if verdict == Verdict.KV_DOES_NOT_FIT:
        return "kv_memory", f"its KV cache needs {use.kvcache:.2f} GiB, the engine gives it {use.kv_budget:.2f} GiB"
    return None


def limit_reason(limits: Limits, ttft_ms: float, tpot_ms: float, request_latency_ms: float) -> tuple[str, str] | None:
    """Binding limit and reason of a point that misses a latency limit; None if it meets all."""
    values = {"ttft": ttft_ms, "tpot": tpot_ms, "request_latency": request_latency_ms}
    excess = limits.excess(*(np.asarray(value) for value in values.values()))
    name = max(excess, key=lambda limit: float(excess[limit]))
    if excess[name] <= 0:
        return None
    return name, f"{name} {values[name]:.3f} ms is over {limits.value(name):g} ms"


def concurrency_in_use(concurrency: float, seq_per_s: float, request_latency_ms: float) -> float:
    """Requests in flight at a rate and a latency (Little's law), at most those configured."""
    return min(concurrency, seq_per_s * request_latency_ms / MS_PER_S)


def first_reason(reasons: Sequence[tuple[str, str] | None], otherwise: tuple[str, str]) -> tuple[str, str]:
    """The first reason there is."""
    return next((reason for reason in reasons if reason is not None), otherwise)
