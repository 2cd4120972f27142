# SPDX-License-Identifier: Apache-2.0
"""What a sweep found, as frames: best points, Pareto fronts, counts by reason and histograms."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from aicjax._results import InputError
from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame
from aicjax.sweeps.cases import Cases
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.histogram import BINS, edges
from aicjax.sweeps.kept import COUNTS, Ints, Kept, Points, joined, no_points
from aicjax.sweeps.spec import Limits, SweepSpec

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
class Answer:
    """What was found in one group under one pair of limits.

    Attributes:
        group: Name of the group: its values; `OVERALL` for all groups together.
        values: Its values by axis.
        limits: The limits.
        counts: Points by what became of them, keys of `REASONS`.
        best: Best points, best first, by objective.
        front: Pareto front, by TPOT.
        histogram: Feasible points by bin of the first objective, from `at_least` to `below`, bins that have some.
    """

    group: str
    values: Mapping[str, str | float | None]
    limits: Limits
    counts: Mapping[str, int]
    best: Mapping[str, Frame]
    front: Frame
    histogram: Frame


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

    @functools.cached_property
    def answers(self) -> tuple[Answer, ...]:
        """Everything that was found: overall first, then group by group, each under every pair of limits."""
        groups = [None, *range(len(self.groups.names))] if self.spec.group_by else [None]
        places = [(group, limits) for group in groups for limits in range(len(self.spec.limits))]
        objectives = self.spec.objectives
        lists = [
            *(self._best(objective, limits, group) for group, limits in places for objective in objectives),
            *(self._front(limits, group) for group, limits in places),
        ]
        described = self._described(lists)
        best = [described[start : start + len(objectives)] for start in range(0, len(lists), len(objectives))]
        return tuple(
            Answer(
                group=OVERALL if group is None else _label(self.groups.names[group]),
                values={} if group is None else dict(self.groups.names[group]),
                limits=self.spec.limits[limits],
                counts=self.count(limits, group),
                best=dict(zip(objectives, best[at], strict=True)),
                front=described[len(places) * len(objectives) + at],
                histogram=_histogram(self._bins(limits, group)),
            )
            for at, (group, limits) in enumerate(places)
        )

    @property
    def bests(self) -> Frame:
        """The best points of all answers.

        Columns `group`, `ttft_limit`, `tpot_limit`, `objective` and `rank` say what a row is; the others are those of
        `best`.
        """
        rows = [
            _named(answer, frame, objective=objective, rank=np.arange(1, frames.length(frame) + 1))
            for answer in self.answers
            for objective, frame in answer.best.items()
        ]
        return frames.concatenate(rows)

    @property
    def fronts(self) -> Frame:
        """The Pareto fronts of all answers; columns `group`, `ttft_limit` and `tpot_limit` say which is which."""
        return frames.concatenate([_named(answer, answer.front) for answer in self.answers])

    @property
    def counts(self) -> Frame:
        """Points by what became of them, one row for each answer."""
        rows = ({name: np.array([count]) for name, count in answer.counts.items()} for answer in self.answers)
        return frames.concatenate([_named(answer, row) for answer, row in zip(self.answers, rows, strict=True)])

    @property
    def histogram(self) -> Frame:
        """The histograms of all answers; no rows unless the spec asks for them."""
        return frames.concatenate([_named(answer, answer.histogram) for answer in self.answers])

    def _described(self, lists: Sequence[Points]) -> list[Frame]:
        """The rows of each list; all are described at once."""
        frame = self.describe(joined(list(lists)))
        ends = np.cumsum([len(points.number) for points in lists])[:-1]
        columns = {name: np.split(values, ends) for name, values in frame.items()}
        return [{name: parts[at] for name, parts in columns.items()} for at in range(len(lists))]

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


def _label(name: Sequence[tuple[str, str | float | None]]) -> str:
    return " ".join("default" if value is None else str(value) for _, value in name)


def _histogram(counts: Ints) -> Frame:
    at = np.flatnonzero(counts)
    at_least, below = edges()
    return {"at_least": at_least[at], "below": below[at], "points": counts[at]}


def _named(answer: Answer, frame: Frame, **columns: str | np.ndarray) -> Frame:
    """Rows with columns before them that say which answer they are of."""
    limits = {name: np.nan if value is None else value for name, value in answer.limits.model_dump().items()}
    named = {"group": answer.group, "ttft_limit": limits["ttft"], "tpot_limit": limits["tpot"], **columns}
    rows = frames.length(frame)
    return frames.build(list(named), named, rows, decimals=None) | frame
