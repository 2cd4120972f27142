# SPDX-License-Identifier: Apache-2.0
"""Measured servers: one row for each serving measurement, read from a parquet or a CSV file."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from aicjax import _paths
from aicjax._results import DataError, InputError

Strings = NDArray[np.str_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_LAYOUT = {
    "tp": "tp_size",
    "dp": "attention_dp_size",
    "moe_tp": "moe_tp_size",
    "moe_ep": "moe_ep_size",
    "batch": "batch_size",
    "count": "num_workers",
}
_RENAMED = {"ttft_ms": "silicon_ttft_ms", "tpot_ms": "silicon_tpot_ms"}


@dataclass(frozen=True)
class WorkerColumns:
    """The workers of one role, corrected; 0 where unknown or where the row has no such role. All shapes [row].

    Expert widths are 0 as well where a model has no experts.

    Attributes:
        tp, dp, moe_tp, moe_ep: Layout of a worker.
        batch: Requests of one attention rank.
        count: Workers.
    """

    tp: Ints
    dp: Ints
    moe_tp: Ints
    moe_ep: Ints
    batch: Ints
    count: Ints

    @property
    def known(self) -> Flags:
        """Rows whose workers are known."""
        return (self.tp > 0) & (self.dp > 0) & (self.batch > 0) & (self.count > 0)

    def take(self, rows: NDArray[Any]) -> "WorkerColumns":
        """The chosen rows: a mask or positions."""
        return WorkerColumns(**{field.name: getattr(self, field.name)[rows] for field in dataclasses.fields(self)})


@dataclass(frozen=True)
class Measurements:
    """Measured servers; all shapes [row]. Unknown words are "", unknown counts 0.

    Attributes:
        row: Number of the row in the source.
        model_path, model_family, system, backend, precision, mode: What was measured; `mode` is `agg` or `disagg`.
        backend_version, image: Release and container of the engine, as recorded.
        gemm_quant_mode, moe_quant_mode: Number formats as recorded.
        isl, osl: Nominal prompt and output tokens.
        concurrency: Requests in flight; where the source states none, those of the batches.
        num_gpus: GPUs of the server.
        ttft_ms, tpot_ms: Means over requests, seen by the client.
        source, harness, split: Origin, kind of load and split of the row.
        measured_at: Day of the run, year first; "" where unknown.
        spec_label, topology_flag: How speculative decoding and the recorded widths were judged.
        duplicate_rank: 0 for the copy of a measurement to keep.
        queue_saturated, non_monotone_tpot, clean: Judgements stored with the row.
        agg, prefill, decode: Workers by role.
    """

    row: Ints
    model_path: Strings
    model_family: Strings
    system: Strings
    backend: Strings
    backend_version: Strings
    image: Strings
    precision: Strings
    mode: Strings
    gemm_quant_mode: Strings
    moe_quant_mode: Strings
    isl: Ints
    osl: Ints
    concurrency: Ints
    num_gpus: Ints
    ttft_ms: Floats
    tpot_ms: Floats
    source: Strings
    harness: Strings
    split: Strings
    measured_at: Strings
    spec_label: Strings
    topology_flag: Strings
    duplicate_rank: Ints
    queue_saturated: Flags
    non_monotone_tpot: Flags
    clean: Flags
    agg: WorkerColumns
    prefill: WorkerColumns
    decode: WorkerColumns

    def __len__(self) -> int:
        return len(self.row)

    @property
    def is_agg(self) -> Flags:
        """Rows of in-flight batching; the others are disaggregated."""
        return self.mode == "agg"

    def workers(self, role: str) -> WorkerColumns:
        """The workers of `agg`, `prefill` or `decode`."""
        return {"agg": self.agg, "prefill": self.prefill, "decode": self.decode}[role]

    def take(self, rows: NDArray[Any]) -> "Measurements":
        """The chosen rows: a mask or positions."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        chosen: dict[str, Any] = {
            n: v.take(rows) if isinstance(v, WorkerColumns) else v[rows] for n, v in values.items()
        }
        return Measurements(**chosen)

    def codes(self, names: Sequence[str]) -> Ints:
        """Number of the group of each row: rows with the same values of the named columns share one."""
        columns = np.stack([np.unique(self._column(name), return_inverse=True)[1] for name in names])
        return np.unique(columns, axis=1, return_inverse=True)[1].ravel()

    def _column(self, name: str) -> NDArray[Any]:
        role, _, part = name.rpartition(".")
        return getattr(self.workers(role), part) if role else getattr(self, name)


LAYOUT_COLUMNS = tuple(
    f"{role}.{part}" for role in ("agg", "prefill", "decode") for part in ("tp", "dp", "moe_tp", "moe_ep", "count")
)


def shipped_path() -> Path:
    """File of the measured servers that come with the program."""
    return _paths.configs_dir() / "silicon" / "measurements.parquet"


def read_measurements(paths: Sequence[Path] = ()) -> Measurements:
    """Rows of one or more files, or the shipped ones.

    Args:
        paths: Parquet or CSV files with the columns of `configs/silicon/README.md`; further columns are left alone.

    Raises:
        InputError: No such file, or neither parquet nor CSV.
        DataError: A column is missing or of another kind.
    """
    parts = [measurements_of(path, read_table(path)) for path in (paths or [shipped_path()])]
    return joined(parts)


def read_table(path: Path) -> pa.Table:
    """A parquet or CSV file as a table; empty fields of a CSV file are unknown.

    Raises:
        InputError: No such file, or neither parquet nor CSV.
    """
    if not path.is_file() or path.suffix not in (".parquet", ".csv"):
        raise InputError("FILE", str(path), "an existing .parquet or .csv file")
    if path.suffix == ".parquet":
        return pq.read_table(path)
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, null_values=["", "nan", "NaN", "<NA>"])
    return pyarrow.csv.read_csv(path, convert_options=options)


def peer_times(path: Path, rows: Measurements) -> tuple[Floats, Floats]:
    """Another program's TTFT and TPOT of measured rows, joined by `row` [row]; NaN for rows that the file lacks.

    Args:
        path: Parquet or CSV file with the columns `row`, `peer_fixed_ttft_ms` and `peer_fixed_tpot_ms`.
        rows: Measured servers.
    """
    table = read_table(path)
    number = column(path, table, "row", pa.int64(), -1)
    order = np.argsort(number)
    at = np.searchsorted(number[order], rows.row).clip(max=len(number) - 1)
    found = number[order][at] == rows.row
    names = "peer_fixed_ttft_ms", "peer_fixed_tpot_ms"
    ttft_ms, tpot_ms = (column(path, table, name, pa.float64(), float("nan"))[order][at] for name in names)
    return np.where(found, ttft_ms, np.nan), np.where(found, tpot_ms, np.nan)


def merge_sources(measurements: Path, annotations: Path, shipped: Path) -> None:
    """Writes the shipped file: the facts of one table and what was derived about them of another, joined by `row`.

    The file is the same for the same input: rows in ascending order, no metadata.
    """
    facts, derived = pq.read_table(measurements), pq.read_table(annotations)
    derived = derived.drop_columns(
        [name for name in derived.column_names if name in facts.column_names and name != "row"]
    )
    table = facts.join(derived, keys="row", join_type="left outer").sort_by("row")
    schema = pa.schema([_plain(field) for field in table.schema])
    pq.write_table(table.cast(schema).replace_schema_metadata(None), shipped, compression="zstd", compression_level=19)


def column(path: Path, table: pa.Table, name: str, kind: pa.DataType, unknown: Any) -> NDArray[Any]:
    """Values of one column, unknown ones replaced.

    Raises:
        DataError: No such column, or values of another kind.
    """
    if name not in table.column_names:
        raise DataError(f"{path}: column {name} is missing")
    try:
        values = pc.fill_null(pc.cast(table[name], kind), unknown)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: column {name} must hold {kind}: {error}") from None
    return np.array(values.to_pylist(), type(unknown))


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.string() if pa.types.is_large_string(field.type) else field.type)


def measurements_of(path: Path, table: pa.Table) -> Measurements:
    """Rows of a table with all columns of measured servers.

    Args:
        path: Where it is from, for messages.
        table: The table.

    Raises:
        DataError: A column is missing or of another kind, or a value cannot be that of a measurement.
    """
    kinds = {
        Strings: (pa.string(), ""),
        Ints: (pa.int64(), 0),
        Floats: (pa.float64(), float("nan")),
        Flags: (pa.bool_(), False),
    }
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Measurements):
        if field.name == "measured_at":
            values[field.name] = _days(path, table)
        elif field.type is WorkerColumns:
            values[field.name] = _workers(path, table, "" if field.name == "agg" else f"{field.name}_", field.name)
        else:
            kind, unknown = next(value for annotation, value in kinds.items() if annotation == field.type)
            values[field.name] = column(path, table, _RENAMED.get(field.name, field.name), kind, unknown)
    rows = Measurements(**values)
    odd = ~np.isin(rows.mode, ("agg", "disagg")) | ~(rows.ttft_ms > 0) | ~(rows.tpot_ms > 0) | (rows.osl < 2)
    if odd.any():
        raise DataError(f"{path}: row {rows.row[odd][0]}: mode, times or lengths are not those of a measurement")
    role = {name: rows.workers(name) for name in ("agg", "decode")}
    running = np.where(rows.is_agg, *(w.batch * np.maximum(w.dp, 1) * np.maximum(w.count, 1) for w in role.values()))
    return dataclasses.replace(rows, concurrency=np.where(rows.concurrency > 0, rows.concurrency, running))


def _days(path: Path, table: pa.Table) -> Strings:
    """Day of each run: of the column `measured_at`, else of the origin, which may hold `measured=`."""
    absent = {"measured_at", "silicon_data_source"} - set(table.column_names)
    days, origins = (
        np.full(len(table), "") if name in absent else column(path, table, name, pa.string(), "")
        for name in ("measured_at", "silicon_data_source")
    )
    stated = np.char.partition(origins, "measured=")[:, 2] if len(table) else origins
    return np.where(days == "", stated.astype("<U10"), days.astype("<U10"))


def _workers(path: Path, table: pa.Table, prefix: str, role: str) -> WorkerColumns:
    def of(source: str) -> Ints:
        if role == "agg" and source == _LAYOUT["count"]:
            agg = column(path, table, "mode", pa.string(), "") == "agg"
            return agg.astype(np.int64)
        return column(path, table, f"{prefix}{source}_fixed", pa.int64(), 0)

    return WorkerColumns(**{name: of(source) for name, source in _LAYOUT.items()})


def joined(parts: Sequence[Measurements]) -> Measurements:
    """The rows of one or more tables in one."""
    if len(parts) == 1:
        return parts[0]

    def join(values: Sequence[Any]) -> Any:
        if not isinstance(values[0], WorkerColumns):
            return np.concatenate(values)
        names = [field.name for field in dataclasses.fields(WorkerColumns)]
        return WorkerColumns(**{name: np.concatenate([getattr(value, name) for value in values]) for name in names})

    fields: Mapping[str, Any] = {
        f.name: join([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(parts[0])
    }
    return Measurements(**fields)
