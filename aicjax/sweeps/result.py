# SPDX-License-Identifier: Apache-2.0
"""What a sweep found, as frames: best points, Pareto fronts, counts by reason and histograms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from aicjax._results import InputError
from aicjax.explore.frame import Frame
from aicjax.sweeps.cases import Cases
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.histogram import edges
from aicjax.sweeps.kept import COUNTS, Kept, Points, joined, no_points
from aicjax.sweeps.spec import SweepSpec

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "feasible": "feasible",
        "outside": "no room for decoding",
        "missing": "missing data",
        "memory": "out of memory",
        "kv_memory": "KV cache does not fit",
        "misses_ttft": "misses TTFT",
        "misses_tpot": "misses TPOT",
        "misses_both": "misses TTFT and TPOT",
    }
)
"""What becomes of a point, in words; every point is one of them."""


@dataclass(frozen=True)
class SweepResult:
    """What a sweep found.

    Limits are named by their position in `spec.limits`, groups by theirs in `groups.names`; no group is all of them.

    Attributes:
        spec: What was swept.
        cases: The combinations, those that run and those that were refused.
        groups: What is answered apart.
        kept: What is kept of the points.
        describe: Makes the rows of points.
        done_points: Points evaluated.
        complete: Whether that is all of them.
        seconds: Time that it took, of this run alone.
    """

    spec: SweepSpec
    cases: Cases
    groups: Groups
    kept: Kept
    describe: Callable[[Points], Frame]
    done_points: int
    complete: bool
    seconds: float

    @property
    def points(self) -> int:
        """Points of the whole sweep."""
        return self.cases.points

    @property
    def feasible(self) -> int:
        """Points within some pair of limits."""
        return max(self.count(limits)["feasible"] for limits in range(len(self.spec.limits)))

    def best(self, objective: str | None = None, limits: int = 0, group: int | None = None) -> Frame:
        """The best points within limits, best first, one row each.

        Args:
            objective: One of `spec.objectives`; the first by default.
            limits: Position of the limits.
            group: Position of the group; the best overall by default.

        Raises:
            InputError: There is no such objective, limits or group.
        """
        objective = objective or self.spec.objectives[0]
        if objective not in self.spec.objectives:
            raise InputError("objective", objective, f"one of {list(self.spec.objectives)}")
        place = self.spec.objectives.index(objective)
        tops = [self.kept.tops.get((chosen, limits, place)) for chosen in self._chosen(limits, group)]
        return self.describe(joined([no_points(), *filter(None, tops)]).top(self.spec.top_k))

    def front(self, limits: int = 0, group: int | None = None) -> Frame:
        """The Pareto front of TPOT against the first objective, by TPOT, of points within the TTFT limit.

        Arguments and errors as of `best`.
        """
        fronts = [self.kept.fronts.get((chosen, limits)) for chosen in self._chosen(limits, group)]
        return self.describe(joined([no_points(), *filter(None, fronts)]).front())

    def count(self, limits: int = 0, group: int | None = None) -> dict[str, int]:
        """Points by what became of them, keys of `REASONS`; arguments and errors as of `best`."""
        counts = [self.kept.counts.get((chosen, limits), 0) for chosen in self._chosen(limits, group)]
        total = dict(zip(COUNTS, np.broadcast_to(sum(counts), len(COUNTS)).tolist(), strict=True))
        feasible, ttft, tpot = total["feasible"], total["ttft_met"], total["tpot_met"]
        fit = total["points"] - sum(total[name] for name in ("outside", "missing", "memory", "kv_memory"))
        missed = {
            "misses_ttft": tpot - feasible,
            "misses_tpot": ttft - feasible,
            "misses_both": fit - ttft - tpot + feasible,
        }
        return {name: (total | missed)[name] for name in REASONS}

    @property
    def counts(self) -> Frame:
        """Points by what became of them, one row for each group and pair of limits."""
        found = [self.count(limits, group) for limits, group in self._pairs]
        return self._named({name: np.array([row[name] for row in found], np.int64) for name in REASONS}, 1)

    @property
    def histogram(self) -> Frame:
        """Feasible points by bin of the first objective, one row for each group, pair of limits and filled bin.

        Columns `at_least` and `below` are the edges of the bin. Empty unless the spec asks for it.
        """
        at_least, below = edges()
        empty = np.zeros(len(at_least), np.int64)
        found = np.array([self.kept.histograms.get((group, limits), empty) for limits, group in self._pairs])
        count = found.reshape(-1)
        bins = {name: np.tile(values, len(found)) for name, values in (("at_least", at_least), ("below", below))}
        frame = self._named(bins | {"points": count}, len(at_least))
        return {name: column[count > 0] for name, column in frame.items()}

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return [(limits, group) for group in range(len(self.groups.names)) for limits in range(len(self.spec.limits))]

    def _named(self, columns: Mapping[str, np.ndarray], each: int) -> Frame:
        """Columns with those that name group and limits before them; `each` rows for each pair."""
        named: dict[str, list] = {axis: [] for axis in (*self.spec.group_by, "ttft_limit", "tpot_limit")}
        for limits, group in self._pairs:
            pair = self.spec.limits[limits]
            limit_columns = {"ttft_limit": pair.ttft, "tpot_limit": pair.tpot}
            for axis, value in (dict(self.groups.names[group]) | limit_columns).items():
                named[axis].append(np.nan if value is None else value)
        return {name: np.repeat(np.array(values), each) for name, values in named.items()} | dict(columns)

    def _chosen(self, limits: int, group: int | None) -> range:
        """The groups asked for."""
        _check("limits", limits, len(self.spec.limits))
        if group is None:
            return range(len(self.groups.names))
        _check("group", group, len(self.groups.names))
        return range(group, group + 1)


def _check(name: str, position: int, count: int) -> None:
    if not 0 <= position < count:
        raise InputError(name, position, f"a position from 0 to {count - 1}")
