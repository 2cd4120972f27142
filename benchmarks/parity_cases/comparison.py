# SPDX-License-Identifier: Apache-2.0
"""Our answers beside stored ones: outcome and largest relative error of every row."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aicjax._results import MissingData, MissingPeak

OK = "ok"
NO_DATA = "no data"
NO_PEAK = "no peak"
REFUSED = "refused"

_STORED_ERRORS = {
    "": OK,
    "ok": OK,
    "no_data": NO_DATA,
    "no_estimate": NO_DATA,
    "PerfDataNotAvailableError": NO_DATA,
    "EmpiricalNotImplementedError": NO_DATA,
    "MissingSystemFlopsError": NO_PEAK,
}


class Comparison:
    """One file's rows, answered twice.

    Attributes:
        wanted, found: Outcome of each row: `ok`, or why there is no number [row].
        error: Largest relative error over the numbers of each row, NaN before any is compared [row].
        column, wanted_value, found_value: Where the largest error lies [row].
        mismatch: The first text or flag that differs, empty when none does [row].
        tied: Which rows are matched by another row that ranks the same [row].
    """

    def __init__(self, wanted: ArrayLike):
        self.wanted = np.asarray(wanted, object)
        rows = len(self.wanted)
        self.found = np.full(rows, OK, object)
        self.error = np.full(rows, np.nan)
        self.column = np.full(rows, "", object)
        self.wanted_value, self.found_value = np.full(rows, np.nan), np.full(rows, np.nan)
        self.mismatch = np.full(rows, "", object)
        self.tied = np.zeros(rows, bool)

    @property
    def answered(self) -> np.ndarray:
        """Which rows we give a number for [row]."""
        return self.found == OK

    @property
    def wrong(self) -> np.ndarray:
        """Which rows have another outcome, text or flag than stored [row]."""
        return (self.wanted != self.found) | (self.mismatch != "")

    @property
    def relative_error(self) -> np.ndarray:
        """Largest relative error of the rows that both answer, NaN elsewhere [row]."""
        return np.where((self.wanted == OK) & self.answered, self.error, np.nan)

    def fail(self, rows: np.ndarray, outcome: str) -> None:
        """Rows that we give no number for, and why."""
        self.found[rows] = outcome

    def number(self, rows: np.ndarray, name: str, wanted: ArrayLike, found: ArrayLike, *, slack: float = 0.0) -> None:
        """Compares a column of numbers; a stored NaN means that the column does not apply.

        Args:
            rows: Positions of the rows.
            name: Column.
            wanted, found: Stored numbers and ours [row].
            slack: Absolute difference that counts as none: rounding of the stored numbers.
        """
        wanted, found = (np.broadcast_to(np.asarray(x, np.float64), len(rows)) for x in (wanted, found))
        gap = np.maximum(np.abs(found - wanted) - slack, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(gap == 0, 0.0, gap / np.abs(wanted))
        error = np.where(np.isnan(wanted), 0.0, np.where(np.isnan(found), np.inf, error))
        larger = ~(error <= self.error[rows])
        at = rows[larger]
        self.error[at], self.column[at] = error[larger], name
        self.wanted_value[at], self.found_value[at] = wanted[larger], found[larger]

    def same(self, rows: np.ndarray, name: str, wanted: ArrayLike, found: ArrayLike) -> None:
        """Compares a column of texts, flags or counts, which must be equal."""
        wanted, found = np.asarray(wanted), np.broadcast_to(np.asarray(found), len(rows))
        for at in np.flatnonzero(wanted != found):
            self.mismatch[rows[at]] = self.mismatch[rows[at]] or f"{name} {wanted[at]} / {found[at]}"


def stored_outcome(errors: Iterable[str]) -> np.ndarray:
    """Outcomes of stored rows from their error classes or their status [row]."""
    return np.array([_STORED_ERRORS.get(error, REFUSED) for error in errors], object)


def outcome_of(error: Exception) -> str:
    """Outcome of an error of ours."""
    kinds: Mapping[type[Any], str] = {MissingPeak: NO_PEAK, MissingData: NO_DATA}
    return kinds.get(type(error), REFUSED)
