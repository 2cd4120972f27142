# SPDX-License-Identifier: Apache-2.0
"""Stored answers of AIConfigurator 0.12.0: the rows of one file, filtered and grouped."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aicjax.models import load_model

Conditions = Mapping[str, Collection[str]]  # column -> values of which one must hold
FAMILY = "family"


class StoredRows:
    """Rows of one file, column by column.

    Numbers keep their type, those that can be absent are floats with NaN; an absent text is empty.

    Attributes:
        directory: Where the file lies; files that explain it lie beside it.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], directory: Path):
        self._columns = dict(columns)
        self.directory = directory

    @classmethod
    def read(cls, path: Path) -> Self:
        """All rows of a parquet file; the family of the model is added where it is not stored."""
        table = pq.read_table(path)
        columns = {name: _values(table.column(name)) for name in table.column_names}
        if "model" in columns:
            names, stored = columns["model"], columns.get(FAMILY, np.full(table.num_rows, "", object))
            family = {name: load_model(name).family for name in set(names[stored == ""])}
            columns[FAMILY] = np.array([kept or family[name] for name, kept in zip(names, stored, strict=True)], object)
        return cls(columns, path.parent)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Columns in file order."""
        return tuple(self._columns)

    def take(self, rows: np.ndarray) -> Self:
        """Some rows: positions or a mask."""
        return type(self)({name: values[rows] for name, values in self._columns.items()}, self.directory)

    def with_column(self, name: str, values: np.ndarray) -> Self:
        """The rows with one more column."""
        return type(self)({**self._columns, name: values}, self.directory)

    def meets(self, conditions: Conditions) -> np.ndarray:
        """Which rows meet all conditions, bool [row]; a column that is not there excludes nothing."""
        meets = np.ones(len(self), bool)
        for name, allowed in conditions.items():
            if name in self:
                distinct, code = np.unique(_words(self[name]), return_inverse=True)
                wanted = {word.casefold() for word in allowed}
                meets &= np.array([word.casefold() in wanted for word in distinct], bool)[code]
        return meets

    def groups(self, *names: str) -> Iterator[tuple[tuple[Any, ...], np.ndarray]]:
        """Values of `names`, and the positions of the rows that share them, in the order of first appearance."""
        rows: dict[tuple[Any, ...], list[int]] = {}
        for position, key in enumerate(zip(*(self[name].tolist() for name in names), strict=True)):
            rows.setdefault(key, []).append(position)
        for key, positions in rows.items():
            yield key, np.array(positions)

    def records(self, rows: np.ndarray) -> Iterator[dict[str, Any]]:
        """Some rows as Python values by column."""
        values = [column[rows].tolist() for column in self._columns.values()]
        for row in zip(*values, strict=True):
            yield dict(zip(self._columns, row, strict=True))


def read_conditions(texts: Sequence[str]) -> dict[str, set[str]]:
    """Conditions from `column=value|value,column=value` texts, which all must hold.

    Raises:
        ValueError: A text is not of that form.
    """
    conditions: dict[str, set[str]] = {}
    for text in texts:
        for part in text.split(","):
            column, equals, values = part.partition("=")
            if not (column.strip() and equals):
                raise ValueError(f"must be column=value[|value][,column=value], but got {text!r}")
            words = {_plain(word.strip()) for word in values.split("|")}
            column = column.strip()
            conditions[column] = conditions[column] & words if column in conditions else words
    return conditions


def _values(column: pa.ChunkedArray) -> np.ndarray:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or (pa.types.is_boolean(kind) and not column.null_count):
        return column.to_numpy()
    return np.array(["" if value is None else value for value in column.to_pylist()], object)


def _words(values: np.ndarray) -> np.ndarray:
    return np.array([_plain(str(value)) for value in values.tolist()])


def _plain(word: str) -> str:
    """A number without the fraction that its type adds: 1.0 is 1."""
    whole = word.removesuffix(".0")
    return whole if whole.lstrip("-").isdigit() else word
