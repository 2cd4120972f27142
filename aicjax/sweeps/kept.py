# SPDX-License-Identifier: Apache-2.0
"""What a sweep keeps of its points: counts, the best few and the Pareto front of each group and pair of limits.

Points are told apart by their number in the sweep; of equals the lower number wins. So merging is associative and
commutative, exactly: chunks may be done in any order, on any number of hosts.
"""

import io
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.pareto import front_rows

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
TopKey = tuple[int, int, int]  # group, limits, objective
FrontKey = tuple[int, int]  # group, limits

COUNTS = ("points", "outside", "missing", "memory", "kv_memory", "feasible", "ttft_met", "tpot_met")
"""Per group and limits: all points; without room for decoding; without data; without room for everything, or for the
KV cache; and of those that fit, how many meet both limits, that on TTFT, that on TPOT."""


class Points(NamedTuple):
    """Estimates of points, greater values better; arrays [point].

    Attributes:
        number: Number of the point in the sweep.
        value: What it is kept for: an objective, latencies negative.
        ttft_ms, tpot_ms, request_latency_ms: Latencies [ms]; TPOT is 0 for one output token.
        seq_per_s: Requests per second of a worker, or of a replica.
    """

    number: Ints
    value: Floats
    ttft_ms: Floats
    tpot_ms: Floats
    request_latency_ms: Floats
    seq_per_s: Floats

    def take(self, rows: NDArray) -> "Points":
        """Some of the points."""
        return Points(self.number[rows], *(values[rows] for values in self[1:]))

    def top(self, count: int) -> "Points":
        """The best few, best first."""
        return self.take(np.lexsort((self.number, -self.value))[:count])

    def front(self) -> "Points":
        """The points that no other beats in both TPOT and value, by TPOT."""
        ordered = self.take(np.argsort(self.number))
        return ordered.take(front_rows(ordered.tpot_ms, ordered.value, maximize_x=False))


def no_points() -> Points:
    """No points."""
    return Points(np.zeros(0, np.int64), *np.zeros((len(Points._fields) - 1, 0)))


def joined(parts: list[Points]) -> Points:
    """The points of all parts."""
    return Points(*(np.concatenate(values) for values in zip(*parts, strict=True)))


@dataclass
class Kept:
    """What is kept of some chunks of a sweep.

    Attributes:
        top_k: Length of the lists.
        counts: `COUNTS` of each group and pair of limits.
        histograms: Feasible points by bin of the first objective, of each group and pair of limits.
        tops: Best points.
        fronts: Pareto fronts.
    """

    top_k: int
    counts: dict[FrontKey, Ints] = field(default_factory=dict)
    histograms: dict[FrontKey, Ints] = field(default_factory=dict)
    tops: dict[TopKey, Points] = field(default_factory=dict)
    fronts: dict[FrontKey, Points] = field(default_factory=dict)

    def count(self, key: FrontKey, counts: Ints) -> None:
        """Adds counts."""
        self.counts[key] = self.counts.get(key, 0) + counts

    def tally(self, key: FrontKey, bins: Ints) -> None:
        """Adds to a histogram."""
        self.histograms[key] = self.histograms.get(key, 0) + bins

    def offer(self, key: TopKey, points: Points) -> None:
        """Takes in points that may be among the best."""
        known = [self.tops[key]] if key in self.tops else []
        self.tops[key] = joined([*known, points]).top(self.top_k)

    def offer_front(self, key: FrontKey, points: Points) -> None:
        """Takes in points that may be on the front."""
        known = [self.fronts[key]] if key in self.fronts else []
        self.fronts[key] = joined([*known, points]).front()

    def threshold(self, key: TopKey) -> float:
        """Value that a point must reach to be among the best."""
        known = self.tops.get(key)
        return -np.inf if known is None or len(known.number) < self.top_k else float(known.value[-1])

    def with_front(self, key: FrontKey, tpot_ms: NDArray, value: NDArray) -> tuple[NDArray, NDArray]:
        """TPOT and value of points and of the front known so far, flat."""
        known = self.fronts.get(key)
        if known is None:
            return tpot_ms.ravel(), value.ravel()
        return np.concatenate([tpot_ms.ravel(), known.tpot_ms]), np.concatenate([value.ravel(), known.value])

    def merge(self, other: "Kept") -> None:
        """Takes in what is kept of other chunks."""
        for key, counts in other.counts.items():
            self.count(key, counts)
        for key, bins in other.histograms.items():
            self.tally(key, bins)
        for key, points in other.tops.items():
            self.offer(key, points)
        for key, points in other.fronts.items():
            self.offer_front(key, points)

    def pack(self) -> bytes:
        """As bytes, for `unpack`; the same whatever the order it was taken in."""
        names: Any = ",".join(Points._fields)
        arrays: dict[str, Any] = {"top_k": np.array(self.top_k)}
        for name in ("counts", "histograms"):
            for key, values in sorted(getattr(self, name).items()):
                arrays[_name(name, key)] = values
        for name in ("tops", "fronts"):
            for key, points in sorted(getattr(self, name).items()):
                arrays[_name(name, key)] = np.rec.fromarrays(points, names=names)
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    @classmethod
    def unpack(cls, content: bytes) -> "Kept":
        """What `pack` made bytes of."""
        with np.load(io.BytesIO(content)) as arrays:
            kept = cls(int(arrays["top_k"]))
            for name in arrays.files:
                part, *key = name.split(".")
                if not key:
                    continue
                values = arrays[name]
                if part in ("tops", "fronts"):
                    values = Points(*(np.ascontiguousarray(values[field]) for field in Points._fields))
                getattr(kept, part)[tuple(int(number) for number in key)] = values
        return kept


def _name(part: str, key: tuple[int, ...]) -> str:
    return ".".join([part, *map(str, key)])
