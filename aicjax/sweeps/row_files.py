# SPDX-License-Identifier: Apache-2.0
"""The parquet files of all points of a sweep: one a chunk, and one that is there is whole."""

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from aicjax._results import InputError
from aicjax._units import GB

BYTES_PER_POINT = 16  # four numbers; compressed they take 9 to 11, all other columns next to nothing
NOTICE_BYTES = 2 * GB  # above which it is told
DIRECTORY = "rows"
_COMPRESSION = "zstd"
_ASCENDING = "point"


class RowFiles:
    """The files in the directory `rows` of another."""

    def __init__(self, out: Path):
        """Makes the directory if it is not there.

        Raises:
            InputError: It cannot be written.
        """
        self.directory = out / DIRECTORY
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError("out", str(out), f"a directory that can be written ({error.strerror})") from None

    def path(self, chunk: int) -> Path:
        """The file of a chunk."""
        return self.directory / f"{chunk:06d}.parquet"

    def has(self, chunk: int) -> bool:
        """Whether the file of a chunk is there."""
        return self.path(chunk).exists()

    def check_room(self, points: int) -> str | None:
        """What to tell before that many points are written, if they are many.

        Raises:
            InputError: The disk has no room for them.
        """
        expected, free = points * BYTES_PER_POINT, shutil.disk_usage(self.directory).free
        text = f"the rows of {points:,} points take up to {expected / GB:.3g} GB of {free / GB:.3g} GB free"
        if expected > free:
            raise InputError("rows", True, f"left out: {text}")
        return text if expected > NOTICE_BYTES else None

    def write(self, chunk: int, tables: Iterator[pa.Table]) -> None:
        """Writes the file of a chunk, one row group a table.

        Args:
            chunk: Number of the chunk.
            tables: At least one.

        Raises:
            InputError: It cannot be written.
        """
        path = self.path(chunk)
        unfinished = path.with_suffix(".unfinished")
        table = next(tables)
        try:
            with unfinished.open("wb") as file:
                with _writer(file, table.schema) as writer:
                    for part in itertools.chain([table], tables):
                        writer.write_table(part, row_group_size=max(part.num_rows, 1))
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except OSError as error:
            raise InputError("out", str(self.directory), f"on a disk that can be written ({error.strerror})") from None


def _writer(file: IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    encodings = {field.name: "BYTE_STREAM_SPLIT" for field in schema if field.type == pa.float32()}
    encodings[_ASCENDING] = "DELTA_BINARY_PACKED"
    repeating: Any = [name for name in schema.names if name not in encodings]
    settings: Any = {"compression": _COMPRESSION, "column_encoding": encodings}
    return pq.ParquetWriter(file, schema, use_dictionary=repeating, **settings)
