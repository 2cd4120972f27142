# SPDX-License-Identifier: Apache-2.0
"""Rows of one measured table as numpy columns, over all of its sources."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from aicjax._results import DataError

if TYPE_CHECKING:
    from aicjax.tables.sources import Source

EMPTY = -1  # code of a cell with an empty text or of a source without the column


class Rows:
    """Rows of a table, those of the first source first, each source in the order it was measured.

    Whoever builds keys from rows keeps the first row of each key: earlier sources win.

    Attributes:
        sources: Every source of the table in order, also those whose file does not exist.
        source: Index into `sources` of each row, int32 [row].
        columns: Names of the columns that at least one source has.
    """

    def __init__(
        self,
        sources: "Sequence[Source]",
        source: np.ndarray,
        file_row: np.ndarray,
        numbers: dict[str, tuple[np.ndarray, np.ndarray | None]],
        texts: dict[str, tuple[np.ndarray, tuple[str, ...]]],
    ):
        """Columns as they were read.

        Args:
            sources: All sources of the table.
            source: Which source each row is of, int32 [row].
            file_row: Place of each row in the file of its source, int32 [row]; names a row in messages.
            numbers: Values int64 or float64 [row], and which cells are empty, bool [row] or None when none is.
            texts: Codes int32 [row], `EMPTY` or an index into the vocabulary beside them.
        """
        self.sources = tuple(sources)
        self.source = source
        self._file_row = file_row
        self._numbers = numbers
        self._texts = texts

    def __len__(self) -> int:
        return len(self.source)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that at least one source has."""
        return (*self._numbers, *self._texts)

    def has(self, column: str) -> bool:
        """Whether at least one source has the column."""
        return column in self._numbers or column in self._texts

    def number(self, column: str, missing: float | None = None) -> np.ndarray:
        """Values of a column of numbers, int64 or float64 [row]; read-only, since rows are shared.

        Args:
            column: Its name.
            missing: Value of empty cells, and of every cell when no source has the column.

        Raises:
            DataError: A cell is empty and `missing` is None; the message gives file, row and column.
        """
        if column not in self._numbers:
            self._require(column, missing, "numbers")
            return np.full(len(self), missing)
        values, empty = self._numbers[column]
        if empty is not None:
            if missing is None:
                raise self._empty_cell(column, empty)
            return np.where(empty, missing, values)
        shared = values.view()
        shared.flags.writeable = False
        return shared

    def text(self, column: str, missing: str | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
        """Codes int32 [row] of a column of text and the vocabulary they index, in the order of first appearance.

        Args:
            column: Its name.
            missing: Text of empty cells, and of every cell when no source has the column.

        Raises:
            DataError: A cell is empty and `missing` is None; the message gives file, row and column.
        """
        if column not in self._texts:
            self._require(column, missing, "text")
            codes, vocabulary = np.full(len(self), EMPTY, np.int32), ()
        else:
            codes, vocabulary = self._texts[column]
        empty = codes == EMPTY
        if empty.any():
            if missing is None:
                raise self._empty_cell(column, empty)
            if missing not in vocabulary:
                vocabulary = (*vocabulary, missing)
            codes = np.where(empty, np.int32(vocabulary.index(missing)), codes)
        return first_seen(codes, vocabulary)

    def is_in(self, column: str, texts: Collection[str]) -> np.ndarray:
        """Whether the cell of each row is one of `texts`, bool [row]; never for an empty cell or an absent column."""
        if column not in self._texts:
            return np.zeros(len(self), bool)
        codes, vocabulary = self._texts[column]
        wanted = np.array([*(word in texts for word in vocabulary), False])  # the last one is EMPTY's
        return wanted[codes]

    def select(self, rows: np.ndarray) -> "Rows":
        """The rows of a mask, bool [row], or of indices, int [selected], in their order."""
        return Rows(
            self.sources,
            self.source[rows],
            self._file_row[rows],
            {name: (values[rows], _some(empty, rows)) for name, (values, empty) in self._numbers.items()},
            {name: (codes[rows], vocabulary) for name, (codes, vocabulary) in self._texts.items()},
        )

    def with_number(self, column: str, values: np.ndarray) -> "Rows":
        """The same rows with a column of numbers added or replaced [row]."""
        numbers = {**self._numbers, column: (values, None)}
        return Rows(self.sources, self.source, self._file_row, numbers, self._texts)

    @classmethod
    def concatenate(cls, parts: "Sequence[Rows]") -> "Rows":
        """Rows of several sources of one table; a column that a source lacks is empty there."""
        numbers = {name: _joined_numbers(parts, name) for name in _union(part._numbers for part in parts)}
        texts = {name: _joined_texts(parts, name) for name in _union(part._texts for part in parts)}
        source = np.concatenate([part.source for part in parts])
        file_row = np.concatenate([part._file_row for part in parts])
        return cls(parts[0].sources, source, file_row, numbers, texts)

    def place(self, row: int) -> str:
        """File and row a row was read from, for messages."""
        return f"{self.sources[self.source[row]].path}: row {self._file_row[row]}"

    def _require(self, column: str, missing: object, kind: str) -> None:
        paths = ", ".join(str(source.path) for source in self.sources if source.exists)
        if self.has(column):
            raise DataError(f"{paths}: column {column} does not hold {kind}")
        if missing is None:
            raise DataError(f"{paths}: column {column} is missing")

    def _empty_cell(self, column: str, empty: np.ndarray) -> DataError:
        return DataError(f"{self.place(int(np.argmax(empty)))}, column {column}: is empty")


def _some(empty: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    if empty is None:
        return None
    kept = empty[rows]
    return kept if kept.any() else None


def _union(columns: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in columns for name in names))


def _joined_numbers(parts: Sequence[Rows], name: str) -> tuple[np.ndarray, np.ndarray | None]:
    values, empty = [], []
    for part in parts:
        absent = (np.zeros(len(part), np.int64), np.ones(len(part), bool))
        cells, holes = part._numbers.get(name, absent)
        values.append(cells)
        empty.append(np.zeros(len(part), bool) if holes is None else holes)
    holes = np.concatenate(empty)
    return np.concatenate(values), holes if holes.any() else None


def _joined_texts(parts: Sequence[Rows], name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    words: dict[str, int] = {}
    codes = []
    for part in parts:
        own, vocabulary = part._texts.get(name, (np.full(len(part), EMPTY, np.int32), ()))
        place = [words.setdefault(word, len(words)) for word in vocabulary]
        codes.append(np.array([*place, EMPTY], np.int32)[own])  # the last one is EMPTY's
    return np.concatenate(codes), tuple(words)


def first_seen(codes: np.ndarray, vocabulary: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The same text with the vocabulary in the order of first appearance, unused words dropped."""
    first = np.full(len(vocabulary), len(codes))
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the last write, that of the first row, stands
    order = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(codes))]
    place = np.empty(len(vocabulary), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return place[codes], tuple(vocabulary[int(word)] for word in order)


def first_rows(*keys: np.ndarray) -> np.ndarray:
    """Indices of the first row of each distinct key, ascending.

    Args:
        keys: Parts of the key, integers [row] each.

    Examples:
        >>> first_rows(np.array([1, 1, 2, 1]), np.array([5, 6, 5, 5]))
        array([0, 1, 2])
    """
    combined, size = np.zeros(len(keys[0]), np.int64), 1
    for key in keys:
        low, high = (int(key.min()), int(key.max())) if len(key) else (0, 0)
        width = high - low + 1
        if size * width >= 2**63:  # renumber what is there so far, and the key if that is not enough
            words, combined = np.unique(combined, return_inverse=True)
            size = len(words)
        if size * width >= 2**63:
            words, key = np.unique(key, return_inverse=True)
            low, width = 0, len(words)
        combined, size = combined * width + (key - low), size * width
    return np.sort(np.unique(combined, return_index=True)[1])
