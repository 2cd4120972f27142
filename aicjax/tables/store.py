# SPDX-License-Identifier: Apache-2.0
"""Parquet files to `Rows`: dictionary columns as codes, never as Python objects per row."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aicjax import _paths
from aicjax._results import DataError
from aicjax.tables.rows import EMPTY, Rows
from aicjax.tables.sources import Source, sources

_KERNEL = "kernel_source"


def read_rows(
    system: str, backend: str, version: str, table: str, shared: bool = True, columns: Sequence[str] | None = None
) -> Rows | None:
    """Rows of a table from all of its sources, in source order and the order they were measured in.

    The rows last read are kept: asking again costs nothing.

    Args:
        system: Name of the system.
        backend: Serving framework, or `nccl` or `oneccl` for the tables of these libraries.
        version: Version of the backend.
        table: Name of the table, e.g. `gemm_perf`.
        shared: Whether sources beyond the version's own file count.
        columns: Columns to read; all when None.

    Returns:
        The rows, or None when no source has any.

    Raises:
        DataError: A file cannot be read or holds an impossible number; the message gives file, row and column.
    """
    wanted = None if columns is None else tuple(columns)
    return _read_rows(_paths.perfdb_dir(), system, backend, version, table, shared, wanted)


@functools.lru_cache(maxsize=32)
def _read_rows(
    root: Path, system: str, backend: str, version: str, table: str, shared: bool, columns: tuple[str, ...] | None
) -> Rows | None:
    listed = sources(system, backend, version, table, shared)
    parts = [_read_source(listed, place, columns) for place, source in enumerate(listed) if source.exists]
    rows = Rows.concatenate(parts) if parts else None
    return rows if rows is not None and len(rows) else None


def _read_source(listed: Sequence[Source], place: int, columns: tuple[str, ...] | None) -> Rows:
    """Rows of one source, those it admits."""
    path, kernels = listed[place].path, listed[place].kernel_sources
    names = columns if columns is None or kernels is None else (*columns, _KERNEL)
    data = _read_file(path, names)
    numbers, texts = {}, {}
    for name, column in zip(data.column_names, data.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            texts[name] = _codes(path, name, column)
        else:
            numbers[name] = (_values(path, name, column), None)
    count = data.num_rows
    rows = Rows(listed, np.full(count, place, np.int32), np.arange(count, dtype=np.int32), numbers, texts)
    return rows if kernels is None else rows.select(rows.is_in(_KERNEL, kernels))


def _read_file(path: Path, columns: tuple[str, ...] | None) -> pa.Table:
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            schema = file.schema_arrow
            words = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
            if not words:
                return file.read(None if columns is None else list(columns), use_threads=False)
        with pq.ParquetFile(path, memory_map=True, read_dictionary=words) as file:
            return file.read(None if columns is None else list(columns), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet: {error}") from None


def _codes(path: Path, name: str, column: pa.ChunkedArray) -> tuple[np.ndarray, tuple[str, ...]]:
    whole = column.unify_dictionaries().combine_chunks()
    codes, vocabulary = _array(path, name, whole.indices).astype(np.int32), tuple(whole.dictionary.to_pylist())
    if "" in vocabulary:
        codes[codes == vocabulary.index("")] = EMPTY
    return codes, vocabulary


def _values(path: Path, name: str, column: pa.ChunkedArray) -> np.ndarray:
    values = _array(path, name, column.combine_chunks())
    values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64, copy=False)
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"{path}: row {row}, column {name}: must be finite and not negative, but is {values[row]}")
    return values


def _array(path: Path, name: str, column: pa.Array) -> np.ndarray:
    """The numbers of a column, read-only; not by its `to_numpy`, which imports pandas for 0.1 s."""
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise DataError(f"{path}: row {row}, column {name}: must not be empty")
    return np.from_dlpack(column)
