# SPDX-License-Identifier: Apache-2.0
"""How a file of single operators is asked: every row is one operator at one coordinate."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from aicjax._results import AicjaxError, Provenance
from aicjax.compat import REFERENCE
from aicjax.hardware import System, load_system
from aicjax.ops.query import operator_latency
from aicjax.ops.records import Op
from benchmarks.parity_cases.comparison import NO_DATA, OK, REFUSED, Comparison, outcome_of, stored_outcome
from benchmarks.parity_cases.stored import StoredRows
from benchmarks.parity_cases.workers import TABLES

TOKENS = {"tokens": "num_tokens"}

Record = Callable[[dict[str, Any]], Op]
Where = tuple[System, str, str]
_ESTIMATES = ("HYBRID", "EMPIRICAL")
_POLICY = "transfer_policy"
_TIERS = {int(code): code.name.lower() for code in Provenance if Provenance.EMPIRICAL <= code <= Provenance.XOP}


class _Answers(NamedTuple):
    """Latency, provenance and outcome of each row [row]."""

    latency_ms: np.ndarray
    provenance: np.ndarray
    outcome: np.ndarray


@dataclass(frozen=True)
class OperatorFile:
    """How the rows of one file are asked.

    Attributes:
        record: Operator of a row.
        points: Coordinates: argument of `operator_latency` -> column.
        refusable: Columns of which a value may be refused, such as a format that the system states no peak for.
        group: Columns beyond the tables that rows of one call share.
        share: Whether rows of other versions and backends were used in every mode; by the mode when None.
        refusal: Outcome of rows whose error is stored without its class.
    """

    record: Record
    points: Mapping[str, str]
    refusable: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    share: bool | None = None
    refusal: str = REFUSED

    def __call__(self, rows: StoredRows) -> Comparison:
        """Our answers, one call for each (system, backend, version, mode) and policy of estimates."""
        comparison = Comparison(self._wanted(rows))
        for (system, backend, version, mode, *shared), group in rows.groups(*TABLES, "mode", *self.group):
            lanes = dict(zip(self.group, shared, strict=True)).get("lane_order")
            where = (load_system(system), backend, version)
            for policy, at in _policies(rows, group, mode):
                options = {"mode": mode, "transfer_policy": policy, "lanes": lanes.split("|") if lanes else None}
                answers = self._answers(rows.take(at), where, {**options, "share": self.share})
                comparison.found[at] = answers.outcome
                comparison.number(at, "latency_ms", rows["latency_ms"][at], answers.latency_ms)
                _compare_provenance(rows, at, answers.provenance, comparison)
        return comparison

    def _wanted(self, rows: StoredRows) -> np.ndarray:
        if "status" in rows:
            wanted = stored_outcome(rows["status"])
            return np.where(wanted == REFUSED, self.refusal, wanted)
        return stored_outcome(rows["error"])

    def _answers(self, rows: StoredRows, where: Where, options: dict[str, Any]) -> _Answers:
        """Our answers; where the call is refused, those of each combination of `refusable` columns."""
        try:
            return self._ask(rows, where, options)
        except AicjaxError as error:
            parts = list(rows.groups(*self.refusable))
            if len(parts) == 1:
                nothing = np.full(len(rows), np.nan)
                return _Answers(nothing, np.zeros(len(rows), int), np.full(len(rows), outcome_of(error), object))
        found = [(at, self._answers(rows.take(at), where, options)) for _, at in parts]
        order = np.argsort(np.concatenate([at for at, _ in found]))
        return _Answers(*(np.concatenate(column)[order] for column in zip(*[part for _, part in found], strict=True)))

    def _ask(self, rows: StoredRows, where: Where, options: dict[str, Any]) -> _Answers:
        ops = [self.record(row) for row in rows.records(np.arange(len(rows)))]
        points = {argument: rows[column] for argument, column in self.points.items() if column in rows}
        times = operator_latency(*where, ops, **points, **options, compat=REFERENCE)
        outcome = np.where(np.isnan(times.latency_ms), NO_DATA, np.array(OK, object))
        return _Answers(times.latency_ms, times.provenance, outcome)


def _compare_provenance(rows: StoredRows, at: np.ndarray, provenance: np.ndarray, comparison: Comparison) -> None:
    """Whose points an estimate rests on, and whether a roofline answered, where that was stored."""
    if "provenance" in rows:
        tiers = [_TIERS.get(code, "") for code in provenance.tolist()]
        comparison.same(at, "provenance", rows["provenance"][at], np.array(tiers, object))
        comparison.same(at, "roofline", rows["source"][at] == "sol", provenance == Provenance.SOL)


def _policies(rows: StoredRows, group: np.ndarray, mode: str) -> Iterator[tuple[str | None, np.ndarray]]:
    """What estimates may borrow from, None for anything, and the rows of the group under that policy."""
    if mode not in _ESTIMATES or _POLICY not in rows:
        yield None, group
        return
    for (policy,), members in rows.take(group).groups(_POLICY):
        yield None if policy == "default" else policy.replace("+", ","), group[members]
