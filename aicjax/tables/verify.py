# SPDX-License-Identifier: Apache-2.0
"""Checks a database against its manifest and its tables against their schema."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa

from aicjax._results import DataError
from aicjax.tables.columns import COLUMNS, Column, Kind
from aicjax.tables.encoding import decode
from aicjax.tables.manifest import MANIFEST, TableEntry, load_manifest, sha256
from aicjax.tables.schema import TABLES, TableSchema

_INTEGERS = (pa.int32(), pa.int64())


@dataclass(frozen=True)
class VerifyReport:
    """What was checked and found in order.

    Attributes:
        tables: Number of tables.
        rows: Number of rows in them.
        documents: Number of YAML files.
    """

    tables: int
    rows: int
    documents: int


def verify_database(database: Path) -> VerifyReport:
    """Checks every file: there, with the manifest's hash, rows and schema, and no table that the manifest lacks.

    Args:
        database: Its folder.

    Raises:
        DataError: The first thing that is off; the message names the file, and the row and column where there is one.
    """
    manifest = load_manifest(database)
    for name, digest in manifest.documents.items():
        _read(database / name, digest)
    for name, entry in manifest.tables.items():
        _verify_table(database / name, entry)
    known = {database / name for name in manifest.tables}
    for path in sorted(database.rglob("*.parquet")):
        if path not in known:
            raise DataError(f"{path}: is not in {MANIFEST}")
    rows = sum(entry.rows for entry in manifest.tables.values())
    return VerifyReport(len(manifest.tables), rows, len(manifest.documents))


def _read(path: Path, digest: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if sha256(content) != digest:
        raise DataError(f"{path}: its hash is not the one in {MANIFEST}: the file or the manifest was changed")
    return content


def _verify_table(path: Path, entry: TableEntry) -> None:
    table = decode(_read(path, entry.sha256), str(path))
    if table.num_rows != entry.rows:
        raise DataError(f"{path}: has {table.num_rows} rows, but {MANIFEST} says {entry.rows}")
    schema = TABLES.get(PurePosixPath(path).stem)
    if schema is None:
        raise DataError(f"{path}: {PurePosixPath(path).stem} is no known kind of table")
    _verify_schema(path, table, schema)


def _verify_schema(path: Path, table: pa.Table, schema: TableSchema) -> None:
    required = [*schema.identity, *(value.name for value in schema.values if not value.optional)]
    allowed = [*schema.identity, *(value.name for value in schema.values)]
    names = table.column_names
    if wrong := [name for name in required if name not in names] + [name for name in names if name not in allowed]:
        raise DataError(f"{path}: column {wrong[0]} is {'missing' if wrong[0] in required else 'unknown'}")
    for name in schema.identity:
        _verify_key(path, name, table[name], COLUMNS[name])
    for value in (value for value in schema.values if value.name in names):
        if table[value.name].type != pa.float32():
            raise DataError(f"{path}: column {value.name} must be float32, but is {table[value.name].type}")
        numbers = table[value.name].to_numpy()
        _refuse(path, value.name, ~np.isfinite(numbers) | (numbers < 0) | ((numbers == 0) & (not value.zero)))


def _verify_key(path: Path, name: str, cells: pa.ChunkedArray, column: Column) -> None:
    if column.kind is Kind.TEXT:
        words = cells.unique().to_pylist() if pa.types.is_string(cells.type) else [None]
        wrong = [word for word in words if word is None or (column.words is not None and word not in column.words)]
        if wrong:
            raise DataError(f"{path}: column {name} must hold known texts, but has {wrong[0]!r}")
        return
    kinds = (pa.float32(),) if column.kind is Kind.RATIO else _INTEGERS
    if cells.type not in kinds or cells.null_count:
        raise DataError(f"{path}: column {name} must be {kinds[0]} without empty cells, but is {cells.type}")
    if column.kind is not Kind.RATIO:
        _refuse(path, name, cells.to_numpy() < column.minimum)


def _refuse(path: Path, name: str, wrong: np.ndarray) -> None:
    if wrong.any():
        raise DataError(f"{path}: row {int(np.argmax(wrong))}, column {name}: the number is outside what is allowed")
