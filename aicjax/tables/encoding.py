# SPDX-License-Identifier: Apache-2.0
"""Tables of the database to and from parquet bytes, small and always the same."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aicjax._results import DataError

_LEVEL = 19  # of zstd: 15 is 0.2 % larger, 22 is no smaller
_PAGE_BYTES = 1 << 23  # one page a column in nearly every file
_PLAIN, _SPLIT = "PLAIN", "BYTE_STREAM_SPLIT"


def encode(rows: pa.Table) -> bytes:
    """Parquet bytes of a table: dictionaries for what identifies a measurement, the smaller of two forms for values.

    Latencies are multiples of a timer's tick: few distinct ones compress best as they are, many by splitting the
    bytes of each number.
    """
    return min((_write(rows, encoding) for encoding in (_SPLIT, _PLAIN)), key=len)


def _write(rows: pa.Table, encoding: str) -> bytes:
    values = [field.name for field in rows.schema if pa.types.is_floating(field.type)]
    options: dict[str, Any] = {
        "row_group_size": max(1, rows.num_rows),
        "compression": "zstd",
        "compression_level": _LEVEL,
        "use_dictionary": [name for name in rows.column_names if name not in values],
        "column_encoding": dict.fromkeys(values, encoding),
        "data_page_size": _PAGE_BYTES,
        "write_statistics": False,
        "store_schema": False,
    }
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    return sink.getvalue().to_pybytes()


def decode(content: bytes, place: str) -> pa.Table:
    """Rows of a parquet file from its bytes.

    Args:
        content: The bytes.
        place: Name of the file, for messages.

    Raises:
        DataError: They are not parquet.
    """
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:  # `pq.read_table` would import pyarrow.dataset, 0.2 s
            return file.read(use_threads=False)
    except pa.ArrowException as error:
        raise DataError(f"{place}: cannot be read as parquet: {error}") from None
