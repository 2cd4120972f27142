# SPDX-License-Identifier: Apache-2.0
"""A published table checked against its schema and brought into the form the database stores."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aicjax._names import one_of
from aicjax._results import DataError
from aicjax.tables.columns import COLUMNS, Column, Kind
from aicjax.tables.row_order import kept_rows, key_ids, storage_order
from aicjax.tables.schema import Order, TableSchema, Value, Winner

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class CanonicalTable:
    """Rows as the database stores them.

    Attributes:
        rows: The table: text as dictionaries, counts as integers, values as float32.
        source_rows: Number of published rows; those that repeat another in every kept column are left out.
        order: How the rows are ordered.
        stated_versions: Versions the rows give themselves, where that is not the version of their directory.
    """

    rows: pa.Table
    source_rows: int
    order: Order
    stated_versions: tuple[str, ...]


def canonical_table(published: pa.Table, schema: TableSchema, version: str, place: str) -> CanonicalTable:
    """The rows of a published table that the database keeps, checked.

    Args:
        published: The table as read from its file.
        schema: What it must hold.
        version: Version of the directory it lies in.
        place: Name of the file, for messages.

    Raises:
        DataError: A column is unknown or missing, a cell is empty, of the wrong kind, not a known number format, or a
            duration is not finite and positive; the message gives file, row (counted from 0) and column.
    """
    _check_names(published, schema, place)
    keys = {name: _key_column(published, name, place) for name in schema.identity}
    values = {value.name: _values(published, value, place) for value in schema.values if _has(published, value)}
    codes = {name: _codes(column) for name, column in keys.items()}
    source_rows = published.num_rows

    kept = kept_rows(key_ids(list(codes.values()), source_rows), schema.winner)
    if schema.winner is Winner.NONE and len(kept) < source_rows:
        row = int(np.setdiff1d(np.arange(source_rows), kept)[0])
        raise DataError(f"{place}: row {row} repeats the {', '.join(schema.key)} of an earlier row")
    taken, order = storage_order(
        schema.order,
        key_ids([codes[name] for name in schema.key], source_rows)[kept],
        [codes[name][kept] for name in codes if COLUMNS[name].kind is Kind.TEXT],
        [codes[name][kept] for name in codes if COLUMNS[name].kind is not Kind.TEXT],
        [codes[name][kept] for name in schema.key],
    )
    picked = pa.array(kept[order])
    rows = pa.table({**keys, **{name: pa.array(column) for name, column in values.items()}}).take(picked)
    return CanonicalTable(rows, source_rows, taken, _stated_versions(published, version))


def _has(published: pa.Table, value: Value) -> bool:
    return not value.optional or value.source in published.column_names


def _check_names(published: pa.Table, schema: TableSchema, place: str) -> None:
    known = {*schema.identity, *(value.source for value in schema.values), *schema.ignored}
    for name in published.column_names:
        if name not in known:
            raise DataError(f"{place}: column {name} is unknown: aicjax/tables/schema.py must say what it means")
    needed = {
        *(name for name in schema.identity if COLUMNS[name].absent is None),
        *(value.source for value in schema.values if not value.optional),
    }
    for name in sorted(needed - set(published.column_names)):
        raise DataError(f"{place}: column {name} is missing")


def _key_column(published: pa.Table, name: str, place: str) -> pa.Array:
    """A column of the key, as stored."""
    column = COLUMNS[name]
    cells = published[name].combine_chunks() if name in published.column_names else pa.nulls(published.num_rows)
    if column.absent is not None:
        filling = pa.scalar(column.absent)
        cells = cells.cast(filling.type) if pa.types.is_null(cells.type) else cells
        cells = cells.fill_null(filling.cast(cells.type))
    _refuse(cells.is_null().to_numpy(zero_copy_only=False), cells, "must not be empty", place, name)
    convert = {Kind.TEXT: _text, Kind.COUNT: _count, Kind.FLAG: _flag, Kind.RATIO: _ratio}[column.kind]
    return convert(cells, column, place, name)


def _text(cells: pa.Array, column: Column, place: str, name: str) -> pa.Array:
    kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    _require(pa.types.is_string(kind) or pa.types.is_large_string(kind), "text", cells, place, name)
    coded = cells.cast(pa.string()).dictionary_encode()
    for code, word in enumerate(coded.dictionary.to_pylist()):
        if column.words is not None and word not in column.words:
            rule = f"must be {one_of(word, sorted(column.words))}"
            _refuse(_codes(coded) == code, cells, rule, place, name)
    return coded


def _count(cells: pa.Array, column: Column, place: str, name: str) -> pa.Array:
    numbers = _numbers(cells, place, name)
    whole = np.isfinite(numbers) & (numbers == np.trunc(numbers)) & (numbers >= column.minimum)
    _refuse(~whole, cells, f"must be a whole number of at least {column.minimum}", place, name)
    wide = len(numbers) > 0 and numbers.max() > _INT32_MAX
    return pa.array(numbers.astype(np.int64 if wide else np.int32))


def _flag(cells: pa.Array, column: Column, place: str, name: str) -> pa.Array:
    _require(pa.types.is_boolean(cells.type), "true or false", cells, place, name)
    return cells.cast(pa.int32())


def _ratio(cells: pa.Array, column: Column, place: str, name: str) -> pa.Array:
    numbers = _numbers(cells, place, name)
    _refuse(~(np.isfinite(numbers) & (numbers > 0)), cells, "must be finite and positive", place, name)
    return pa.array(numbers.astype(np.float32))


def _values(published: pa.Table, value: Value, place: str) -> np.ndarray:
    """Measured numbers in stored units, float32 [row]."""
    cells = published[value.source].combine_chunks()
    numbers = _numbers(cells, place, value.source).astype(np.float64)  # an empty cell is NaN
    allowed = np.isfinite(numbers) & ((numbers >= 0) if value.zero else (numbers > 0))
    rule = "must be finite and not negative" if value.zero else "must be finite and positive"
    _refuse(~allowed, cells, rule, place, value.source)
    return (numbers * value.scale).astype(np.float32)


def _numbers(cells: pa.Array, place: str, name: str) -> np.ndarray:
    _require(pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type), "numbers", cells, place, name)
    return cells.to_numpy(zero_copy_only=False)


def _require(right: bool, kind: str, cells: pa.Array, place: str, name: str) -> None:
    if not right:
        raise DataError(f"{place}: column {name} must hold {kind}, but holds {cells.type}")


def _codes(column: pa.Array) -> np.ndarray:
    """Numbers that tell the cells of a key column apart, [row]."""
    return (column.indices if pa.types.is_dictionary(column.type) else column).to_numpy(zero_copy_only=False)


def _stated_versions(published: pa.Table, version: str) -> tuple[str, ...]:
    if "version" not in published.column_names:
        return ()
    stated = {str(word) for word in published["version"].unique().to_pylist()}
    return () if stated == {version} else tuple(sorted(stated))


def _refuse(wrong: np.ndarray, cells: pa.Array, rule: str, place: str, name: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"{place}: row {row}, column {name}: {rule}, but is {cells[row].as_py()!r}")
