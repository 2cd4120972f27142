# SPDX-License-Identifier: Apache-2.0
"""Why nothing meets the limits, and how far the nearest configuration is from them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aicjax._results import NoFeasible
from aicjax.explore.request import SearchRequest

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Shortfall:
    """The limit that no configuration meets.

    Attributes:
        binding: `isolated prefill time`, `ttft`, `tpot`, `request_latency`, `memory`, `kv memory`, `missing data` or
            `replica size`.
        violation_pct: How far the nearest configuration exceeds the limit [percent]; None where that has no meaning.
        nearest: The nearest configuration, in words; empty where there is none.
        detail: The binding limit, in words.
    """

    binding: str
    violation_pct: float | None
    nearest: str
    detail: str

    @property
    def is_memory(self) -> bool:
        """Whether memory is what lacks."""
        return self.binding in ("memory", "kv memory")

    def error(self, task: str) -> NoFeasible:
        """The error that says so, in one line."""
        nearest = f" Nearest: {self.nearest}." if self.nearest else ""
        return NoFeasible(f"{task}: no configuration meets the limits. Binding: {self.detail}.{nearest}")


@dataclass(frozen=True)
class Limits:
    """The latency limits of a request [ms]; `request_latency_ms` replaces `tpot_ms` when given."""

    ttft_ms: float
    tpot_ms: float
    request_latency_ms: float | None

    @classmethod
    def of(cls, request: SearchRequest) -> "Limits":
        """The limits of a request."""
        return cls(request.ttft, request.tpot, request.request_latency)

    def excess(self, ttft_ms: Values, tpot_ms: Values, request_latency_ms: Values) -> dict[str, Values]:
        """Share by which each limited latency exceeds its limit; at most 0 where it is met. NaN latencies meet."""
        if self.request_latency_ms is not None:
            return {"request_latency": request_latency_ms / self.request_latency_ms - 1}
        return {"ttft": ttft_ms / self.ttft_ms - 1, "tpot": np.nan_to_num(tpot_ms, nan=0.0) / self.tpot_ms - 1}

    def value(self, name: str) -> float:
        """Limit by name: `ttft`, `tpot` or `request_latency`."""
        return {"ttft": self.ttft_ms, "tpot": self.tpot_ms, "request_latency": self.request_latency_ms or np.inf}[name]


def nearest(limits: Limits, ttft_ms: Values, tpot_ms: Values, request_latency_ms: Values) -> tuple[int, str, float]:
    """The configuration whose worst excess is least: its position, the limit it exceeds most, and by what share."""
    excess = limits.excess(ttft_ms, tpot_ms, request_latency_ms)
    worst = np.max(list(excess.values()), axis=0)
    position = int(np.argmin(worst))
    name = max(excess, key=lambda limit: excess[limit][position])
    return position, name, float(worst[position])


def latency_shortfall(limits: Limits, name: str, share: float, isolated_prefill_ms: float, where: str) -> Shortfall:
    """A latency limit that nothing meets.

    Args:
        limits: The limits of the request.
        name: The limit that the nearest configuration exceeds most.
        share: By what share it does.
        isolated_prefill_ms: Fastest prefill of a lone request; when it alone is over the TTFT limit, no number of
            replicas helps.
        where: The nearest configuration, in words.
    """
    limit = limits.value(name)
    label = {"ttft": "TTFT", "tpot": "TPOT", "request_latency": "request latency"}[name]
    detail = f"{label}, limit {limit:g} ms, exceeded by {share:.1%}"
    binding = name
    if name == "ttft" and isolated_prefill_ms > limit:
        binding = "isolated prefill time"
        detail = (
            f"isolated prefill time, {isolated_prefill_ms:.3f} ms at best against a TTFT limit of {limit:g} ms, which "
            "no number of replicas lowers"
        )
    return Shortfall(binding, 100 * share, f"{where}, {label} {(1 + share) * limit:.3f} ms (+{share:.1%})", detail)
