# SPDX-License-Identifier: Apache-2.0
"""Whole searches: top rows, fronts and feasible frames, in order.

Ours and the stored rows are matched by what they run: layouts, batches and worker counts. Where several rows tie in
what ranks them, which of them is kept and in which order they come is open: the reference sorts with an algorithm that
does not keep the order of equals. Such a row counts as tied, and only what ranks it is compared. So does a stored row
of a feasible frame whose rounded TPOT is a target, and for each of those one row of ours may be new: one stored frame
holds a row of 5.0004 ms under the target of 5 ms, which AIConfigurator itself leaves out. And so does a row of a front
that another row beats but for rounding. Any other row missing, new or out of place is a wrong verdict; new rows count
once a frame.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from aicjax._results import AicjaxError
from aicjax.explore import SearchResult
from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER, LOAD_MATCH
from aicjax.explore.frame import Frame
from aicjax.explore.task import GROUP
from benchmarks.parity_cases.comparison import NO_DATA, OK, Comparison, outcome_of
from benchmarks.parity_cases.requests import run_search
from benchmarks.parity_cases.serving import ROUNDING, candidates
from benchmarks.parity_cases.stored import StoredRows

RTOL = 1e-3
_EQUAL = 1e-6  # relative: float32 against float64
_IDENTITY = {
    "agg": ("parallel", "bs", "ctx_tokens", "backend"),
    "disagg": ("(p)parallel", "(p)bs", "(p)workers", "(d)parallel", "(d)bs", "(d)workers", "(p)backend"),
}
_CELL = ("(a)workers", "(e)workers", "(e)parallel", "(e)bs")  # where encode workers are apart
_KEPT_BY = {"agg": ("seq/s",), "disagg": ("tokens/s/gpu",)}  # of each target
_NOT_MODELLED = ("power_w",)
_NEEDED = LOAD_MATCH[1]


class Ranking(NamedTuple):
    """What decides which rows a frame keeps, and their order.

    Attributes:
        group: Columns within which rows compete.
        keys: Columns that rank them; rows equal in all of them tie.
        order: Columns that may order the kept rows.
        targets: Whether TPOT targets, whole milliseconds, decide which rows compete.
        front: Whether rows that another one beats in all keys are left out.
    """

    group: tuple[str, ...]
    keys: tuple[str, ...]
    order: tuple[str, ...]
    targets: bool = False
    front: bool = False


def disagg(rows: StoredRows) -> Comparison:
    """Candidate workers and feasible frames of disaggregated searches."""
    comparison = Comparison(np.full(len(rows), OK, object))
    final = rows["table"] == "final"
    candidates(rows, np.flatnonzero(~final), comparison)
    _compare_feasible(rows, np.flatnonzero(final), comparison)
    return comparison


def feasible_agg(rows: StoredRows) -> Comparison:
    """Feasible frames of in-flight batching searches."""
    comparison = Comparison(np.full(len(rows), OK, object))
    _compare_feasible(rows, np.arange(len(rows)), comparison)
    return comparison


def end_to_end(rows: StoredRows) -> Comparison:
    """Top rows and Pareto fronts of searches, and which experiment won."""
    comparison = Comparison(np.full(len(rows), OK, object))
    for (search, kind, experiment), at in rows.groups("search_id", "kind", "exp"):

        def pick(result: SearchResult, kind: str = kind, experiment: str = experiment) -> Frame:
            task = result.tasks[experiment]
            return task.best if kind == "topn" else task.pareto

        result = _compare_search(rows, at, search, pick, experiment, _ranking(rows, at, kind, experiment), comparison)
        if result is not None:
            comparison.same(at, "chosen", rows["chosen"][at], result.chosen == experiment)
    return comparison


def _ranking(rows: StoredRows, at: np.ndarray, kind: str, mode: str) -> Ranking:
    if kind == "pareto":
        return Ranking((), ("tokens/s/user", CLUSTER), ("tokens/s/user", "request_latency"), front=True)
    for_load = _NEEDED in rows and not np.isnan(rows[_NEEDED][at]).any()
    key = _NEEDED if for_load else CLUSTER
    return Ranking(_competing(mode), (key,), (key, "tpot", "request_latency"))


def _competing(mode: str) -> tuple[str, ...]:
    """Columns within which rows compete for a target: the best replicas of all layouts do."""
    return (GROUP[mode],) if mode == "agg" else ()


def _compare_feasible(rows: StoredRows, at: np.ndarray, comparison: Comparison) -> None:
    for (search, task), members in rows.take(at).groups("search_id", "task"):
        mode, backend, _ = task.split("_")

        def pick(result: SearchResult, mode: str = mode, backend: str = backend) -> Frame:
            parts = result.by_backend.values()
            return next(part.feasible for part in parts if (part.serving_mode, part.backend) == (mode, backend))

        ranking = Ranking(_competing(mode), _KEPT_BY[mode], ("tokens/s/gpu",), targets=mode == "agg")
        _compare_search(rows, at[members], search, pick, mode, ranking, comparison)


def _compare_search(
    rows: StoredRows,
    at: np.ndarray,
    search: str,
    pick: Callable[[SearchResult], Frame],
    mode: str,
    ranking: Ranking,
    comparison: Comparison,
) -> SearchResult | None:
    """One frame of one search; None when the search is refused."""
    try:
        result = run_search(rows.directory, search)
        frame = pick(result)
    except (AicjaxError, KeyError, StopIteration) as error:
        comparison.fail(at, outcome_of(error))
        return None
    stored = {name: rows[name][at] for name in rows.names}
    place = _places(stored, frame, mode)
    lost, new = np.flatnonzero(place < 0), np.flatnonzero(_places(frame, stored, mode) < 0)
    ties = np.full(len(place), -1)
    ties[lost] = _tied(frames.take(stored, lost), frame, ranking)
    missing = (place < 0) & (ties < 0)
    at_target, beaten = missing & _at_target(stored, ranking), missing & _beaten(stored, frame, ranking)
    comparison.fail(at[missing & ~at_target & ~beaten], NO_DATA)
    comparison.tied[at[(ties >= 0) | at_target | beaten]] = True
    ours = frames.take(frame, new)
    unknown = int(((_tied(ours, stored, ranking) < 0) & ~_beaten(ours, stored, ranking)).sum())
    comparison.same(at[:1], "rows that are not stored", [0], max(unknown - int(at_target.sum()), 0))
    _compare_order(stored, at, place, ranking, comparison)
    for at_hand, names in ((place, frame.keys()), (ties, ranking.keys)):
        _compare_columns(rows, at[at_hand >= 0], frames.take(frame, at_hand[at_hand >= 0]), names, comparison)
    return result


def _compare_columns(
    rows: StoredRows, at: np.ndarray, frame: Frame, names: Iterable[str], comparison: Comparison
) -> None:
    for name in names:
        if name in rows and name not in _NOT_MODELLED:
            if frame[name].dtype.kind in "iuf":
                comparison.number(at, name, rows[name][at], frame[name], slack=ROUNDING)
            else:
                comparison.same(at, name, rows[name][at], frame[name])


def _compare_order(stored: Frame, at: np.ndarray, place: np.ndarray, ranking: Ranking, comparison: Comparison) -> None:
    """Whether rows come in the stored order, but for those that tie in a column that may order them."""
    found = np.flatnonzero(place >= 0)
    ours = found[np.argsort(place[found], kind="stable")]  # stored positions in our order
    moved = found != ours
    for position, other in zip(found[moved], ours[moved], strict=True):
        pairs = [stored[name][[position, other]].astype(float) for name in ranking.order if name in stored]
        if not any(_equal(*pair) for pair in pairs):
            comparison.same(at[[position]], "order", [int(position)], int(other))


def _places(frame: Frame, other: Frame, mode: str) -> np.ndarray:
    """Position of each row of a frame in the other, -1 when it is not there [row]."""
    names = [*_IDENTITY[mode], *(name for name in _CELL if name in frame and name in other)]
    position = {key: at for at, key in reversed(list(enumerate(_identities(other, names))))}
    return np.array([position.get(key, -1) for key in _identities(frame, names)], int)


def _identities(frame: Frame, names: Sequence[str]) -> list[tuple[str, ...]]:
    """What each row runs."""
    if not frames.length(frame):
        return []
    columns = [[f"{v:g}" if isinstance(v, int | float) else v for v in frame[name].tolist()] for name in names]
    return list(zip(*columns, strict=True))


def _tied(frame: Frame, other: Frame, ranking: Ranking) -> np.ndarray:
    """Position in the other frame of a row that ties with each row of a frame, -1 when there is none [row]."""
    equal = np.ones((frames.length(frame), frames.length(other)), bool)
    for name in ranking.group if equal.size else ():
        equal &= frame[name][:, None] == other[name]
    for name in ranking.keys if equal.size else ():
        equal &= _equal(frame[name][:, None].astype(float), other[name].astype(float))
    if not equal.size:
        return np.full(len(equal), -1)
    return np.where(equal.any(axis=1), equal.argmax(axis=1), -1)


def _beaten(frame: Frame, other: Frame, ranking: Ranking) -> np.ndarray:
    """Rows of a front that a row of the other one beats, but for rounding in one of the keys [row]."""
    if not ranking.front:
        return np.zeros(frames.length(frame), bool)
    beaten = np.ones((frames.length(frame), frames.length(other)), bool)
    level = np.zeros_like(beaten)
    for name in ranking.keys if beaten.size else ():
        own, others = frame[name][:, None].astype(float), other[name].astype(float)
        equal = _equal(own, others)
        beaten &= equal | (others > own)
        level |= equal
    return np.any(beaten & level, axis=1)


def _at_target(frame: Frame, ranking: Ranking) -> np.ndarray:
    """Rows whose TPOT is a target to rounding [row]."""
    return ranking.targets & (frame["tpot"] == np.round(frame["tpot"]))


def _equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a - b) <= ROUNDING + _EQUAL * np.abs(a)
