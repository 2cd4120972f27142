# SPDX-License-Identifier: Apache-2.0
"""Whole searches: top rows, fronts and feasible frames, in order.

Ours and the stored rows are matched by what they run: layouts, batches and worker counts. Rows whose sort key is equal
to rounding may be in another order; any other row out of place, missing or new is a wrong verdict.
"""

from collections.abc import Callable, Sequence

import numpy as np

from aicjax._results import AicjaxError
from aicjax.search import SearchResult
from aicjax.search import frame as frames
from aicjax.search.columns import CLUSTER
from aicjax.search.frame import Frame
from benchmarks.parity_cases.comparison import NO_DATA, OK, Comparison, outcome_of
from benchmarks.parity_cases.requests import run_search
from benchmarks.parity_cases.serving import ROUNDING, candidates
from benchmarks.parity_cases.stored import StoredRows

RTOL = 1e-3
_IDENTITY = {
    "agg": ("parallel", "bs", "ctx_tokens", "backend"),
    "disagg": ("(p)parallel", "(p)bs", "(p)workers", "(d)parallel", "(d)bs", "(d)workers", "(p)backend"),
}
_NOT_MODELLED = ("power_w",)


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

        result = _compare_search(rows, at, search, pick, experiment, _sort_keys(rows, at, kind), comparison)
        if result is not None:
            comparison.same(at, "chosen", rows["chosen"][at], result.chosen == experiment)
    return comparison


def _compare_feasible(rows: StoredRows, at: np.ndarray, comparison: Comparison) -> None:
    for (search, task), members in rows.take(at).groups("search_id", "task"):
        mode, backend, _ = task.split("_")

        def pick(result: SearchResult, mode: str = mode, backend: str = backend) -> Frame:
            parts = result.by_backend.values()
            return next(part.feasible for part in parts if (part.serving_mode, part.backend) == (mode, backend))

        _compare_search(rows, at[members], search, pick, mode, ("tokens/s/gpu",), comparison)


def _sort_keys(rows: StoredRows, at: np.ndarray, kind: str) -> Sequence[str]:
    """Columns any of which may have ordered the rows."""
    if kind == "pareto":
        return "tokens/s/user", "request_latency"
    return CLUSTER, "total_gpus_needed", "tpot", "request_latency"


def _compare_search(
    rows: StoredRows,
    at: np.ndarray,
    search: str,
    pick: Callable[[SearchResult], Frame],
    mode: str,
    sort_keys: Sequence[str],
    comparison: Comparison,
) -> SearchResult | None:
    """One frame of one search; None when the search is refused."""
    try:
        result = run_search(rows.directory, search)
        frame = pick(result)
    except (AicjaxError, KeyError, StopIteration) as error:
        comparison.fail(at, outcome_of(error))
        return None
    ours = {key: position for position, key in reversed(list(enumerate(_identities(frame, mode))))}
    stored = _identities({name: rows[name][at] for name in rows.names}, mode)
    place = np.array([ours.get(key, -1) for key in stored])
    comparison.fail(at[place < 0], NO_DATA)
    known = place >= 0
    comparison.same(at[known], "rows", np.full(known.sum(), len(at)), frames.length(frame))
    _compare_order(rows, at, place, sort_keys, comparison)
    for name, column in frame.items():
        if name in rows and name not in _NOT_MODELLED:
            wanted, found = rows[name][at[known]], column[place[known]]
            if found.dtype.kind in "iuf":
                comparison.number(at[known], name, wanted, found, slack=ROUNDING)
            else:
                comparison.same(at[known], name, wanted, found)
    return result


def _identities(frame: Frame, mode: str) -> list[tuple[str, ...]]:
    """What each row runs."""
    if not frames.length(frame):
        return []
    columns = [[f"{v:g}" if isinstance(v, int | float) else v for v in frame[n].tolist()] for n in _IDENTITY[mode]]
    return list(zip(*columns, strict=True))


def _compare_order(
    rows: StoredRows, at: np.ndarray, place: np.ndarray, sort_keys: Sequence[str], comparison: Comparison
) -> None:
    """Whether our order is the stored one, but for rows that tie in some sort key."""
    found = np.flatnonzero(place >= 0)
    order = found[np.argsort(place[found], kind="stable")]  # stored positions as we order them
    moved = order != found
    for position, ours in zip(found[moved], order[moved], strict=True):
        pair = [rows[name][at[[position, ours]]].astype(float) for name in sort_keys if name in rows]
        if not any(abs(a - b) <= ROUNDING + RTOL * abs(a) for a, b in pair):
            comparison.same(at[[position]], "order", [int(position)], int(ours))
