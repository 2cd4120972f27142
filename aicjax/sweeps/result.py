# SPDX-License-Identifier: Apache-2.0
"""What a sweep found, as frames: best points, Pareto fronts, counts by reason and histograms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from aicjax._results import InputError
from aicjax.explore.frame import Frame
from aicjax.sweeps.cases import Cases
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.histogram import BINS, edges
from aicjax.sweeps.kept import COUNTS, Ints, Kept, Points, joined, no_points
from aicjax.sweeps.spec import SweepSpec

OVERALL = "overall"
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
    def found(self) -> bool:
        """Whether some point meets some limits."""
        return any(self.count(limits)["feasible"] for limits in range(len(self.spec.limits)))

    def best(self, objective: str | None = None, limits: int = 0, group: int | None = None) -> Frame:
        """The best points within limits, best first, one row each.

        Args:
            objective: One of `spec.objectives`; the first by default.
            limits: Position of the limits.
            group: Position of the group; the best overall by default.

        Raises:
            InputError: There is no such objective, limits or group.
        """
        return self.describe(self._best(objective or self.spec.objectives[0], limits, group))

    def front(self, limits: int = 0, group: int | None = None) -> Frame:
        """The Pareto front of TPOT against the first objective, by TPOT, of points within the TTFT limit.

        Arguments and errors as of `best`.
        """
        return self.describe(self._front(limits, group))

    @property
    def bests(self) -> Frame:
        """All lists of best points, the overall ones first.

        Columns `group` (`OVERALL`, or the name of the group), `ttft_limit`, `tpot_limit`, `objective` and `rank` say
        which list a row is of; the others are those of `best`.
        """
        lists = [(*place, objective) for place in self._places for objective in self.spec.objectives]
        parts = [self._best(objective, limits, group) for group, limits, objective in lists]
        lengths = [len(part.number) for part in parts]
        named = {
            **self._named([place[:2] for place in lists], lengths),
            "objective": np.repeat([objective for *_, objective in lists], lengths),
            "rank": np.concatenate([np.arange(1, length + 1) for length in lengths]),
        }
        return named | self.describe(joined(parts))

    @property
    def fronts(self) -> Frame:
        """All Pareto fronts, the overall ones first; columns `group`, `ttft_limit` and `tpot_limit` as in `bests`."""
        parts = [self._front(limits, group) for group, limits in self._places]
        named = self._named(self._places, [len(part.number) for part in parts])
        return named | self.describe(joined(parts))

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
        """Points by what became of them, one row for each group (as in `bests`) and pair of limits."""
        found = [self.count(limits, group) for group, limits in self._places]
        columns = {name: np.array([row[name] for row in found], np.int64) for name in REASONS}
        return self._named(self._places, [1] * len(found)) | columns

    @property
    def histogram(self) -> Frame:
        """Feasible points by bin of the first objective: a row for each group, pair of limits and bin that has some.

        Columns `group`, `ttft_limit` and `tpot_limit` as in `bests`; `at_least` and `below` are the edges of the bin.
        Empty unless the spec asks for it.
        """
        counts = np.array([self._bins(limits, group) for group, limits in self._places])
        place, at = np.nonzero(counts)
        named = self._named(self._places, [int((row > 0).sum()) for row in counts])
        at_least, below = edges()
        return named | {"at_least": at_least[at], "below": below[at], "points": counts[place, at]}

    @property
    def group_labels(self) -> tuple[str, ...]:
        """Name of each group: its values."""
        names = (["default" if value is None else str(value) for _, value in name] for name in self.groups.names)
        return tuple(" ".join(name) for name in names)

    @property
    def _places(self) -> list[tuple[int | None, int]]:
        """Group and limits of everything that is answered; no group is all of them."""
        groups = [None, *range(len(self.groups.names))] if self.spec.group_by else [None]
        return [(group, limits) for group in groups for limits in range(len(self.spec.limits))]

    def _named(self, places: Sequence[tuple[int | None, int]], lengths: Sequence[int]) -> Frame:
        """Columns that name group and limits, each repeated."""
        labels, pairs = self.group_labels, self.spec.limits
        groups = [OVERALL if group is None else labels[group] for group, _ in places]
        ttft, tpot = ([getattr(pairs[limits], name) for _, limits in places] for name in ("ttft", "tpot"))
        columns = {"group": np.array(groups), "ttft_limit": np.array(ttft, float), "tpot_limit": np.array(tpot, float)}
        return {name: np.repeat(values, lengths) for name, values in columns.items()}

    def _best(self, objective: str, limits: int, group: int | None) -> Points:
        if objective not in self.spec.objectives:
            raise InputError("objective", objective, f"one of {list(self.spec.objectives)}")
        place = self.spec.objectives.index(objective)
        tops = [self.kept.tops.get((chosen, limits, place)) for chosen in self._chosen(limits, group)]
        return joined([no_points(), *filter(None, tops)]).top(self.spec.top_k)

    def _front(self, limits: int, group: int | None) -> Points:
        fronts = [self.kept.fronts.get((chosen, limits)) for chosen in self._chosen(limits, group)]
        return joined([no_points(), *filter(None, fronts)]).front()

    def _bins(self, limits: int, group: int | None) -> Ints:
        bins = [self.kept.histograms.get((chosen, limits)) for chosen in self._chosen(limits, group)]
        return np.sum([np.zeros(BINS, np.int64), *(values for values in bins if values is not None)], axis=0)

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
