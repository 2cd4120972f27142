# SPDX-License-Identifier: Apache-2.0
"""Runs and the deployment they were measured on, as the table of measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from aicjax._results import DataError, InputError
from aicjax.measure.run import Run, check_units

HARNESS = "closed-loop"  # a load whose requests have the mean lengths, unlike those of published benchmarks
MOST_LENGTH_RATIO = 1.1  # a nominal length over the mean, or the other way round


@dataclass(frozen=True)
class Deployment:
    """The server that was measured.

    Attributes:
        model: Model; "" for the one that the files name.
        system, backend, mode: GPU system, engine, and `agg` or `disagg`.
        layout: Sizes by column of the table: `tp`, `dp`, `moe_tp`, `moe_ep`, for disaggregated servers with `prefill_`
            and `decode_` in front, and `prefill_workers`, `decode_workers`.
    """

    model: str
    system: str
    backend: str
    mode: str
    layout: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Lengths:
    """What result files do not say of the load; None for what they do.

    Attributes:
        isl, osl: Nominal prompt and output tokens; the means of each run where None.
        concurrency: Requests in flight.
    """

    isl: int | None = None
    osl: int | None = None
    concurrency: int | None = None


def measured_table(runs: Sequence[Run], deployment: Deployment, lengths: Lengths | None = None) -> pa.Table:
    """One row for each run, with the columns of the table of measurements and what the files say beside.

    Args:
        runs: The runs.
        deployment: The server.
        lengths: What the files do not say.

    Raises:
        InputError: Neither the file nor the deployment names the model, or neither file nor `lengths` the concurrency.
        DataError: A run contradicts what is stated, or its units cannot be right.
    """
    rows = [_row(run, deployment, lengths or Lengths()) for run in runs]
    return pa.Table.from_pylist(rows)


def write_table(table: pa.Table, path: Path) -> None:
    """Writes a table to a `.parquet` or `.csv` file.

    Raises:
        InputError: Another ending.
    """
    check_out(path)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        pyarrow.csv.write_csv(table, path)


def check_out(path: Path) -> None:
    """Refuses a path that ends in neither `.parquet` nor `.csv`.

    Raises:
        InputError: Naming it.
    """
    if path.suffix not in (".parquet", ".csv"):
        raise InputError("out", str(path), "a path that ends in .parquet or .csv")


def _row(run: Run, deployment: Deployment, lengths: Lengths) -> dict[str, object]:
    model = deployment.model or run.model
    if not model:
        raise InputError("model", "", f"stated, since {run.file} names none")
    concurrency = _concurrency(run, lengths.concurrency)
    check_units(run, concurrency)
    return {
        "model": model,
        "system": deployment.system,
        "backend": deployment.backend,
        "mode": deployment.mode,
        **deployment.layout,
        "isl": _length(run, "isl", lengths.isl),
        "osl": _length(run, "osl", lengths.osl),
        "concurrency": concurrency,
        "ttft_ms": run.ttft_ms,
        "tpot_ms": run.tpot_ms,
        "harness": HARNESS,
        "requests": run.requests,
        "failed_requests": run.failed_requests,
        "requests_per_s": run.requests_per_s,
        "output_tokens_per_s": run.output_tokens_per_s,
        "tool": " ".join(filter(None, (run.tool, run.version))),
        "file": run.file.name,
    }


def _concurrency(run: Run, stated: int | None) -> int:
    if run.concurrency is None and stated is None:
        raise InputError("concurrency", "", f"stated, since {run.file} does not say it")
    if None not in (run.concurrency, stated) and run.concurrency != stated:
        raise DataError(f"{run.file}: concurrency is {run.concurrency}, but {stated} was stated")
    return run.concurrency or stated or 0


def _length(run: Run, name: str, nominal: int | None) -> int:
    mean: float = getattr(run, name)
    if nominal is None:
        return round(mean)
    if not 1 / MOST_LENGTH_RATIO <= nominal / mean <= MOST_LENGTH_RATIO:
        raise DataError(f"{run.file}: mean {name} is {mean:.1f}, too far from the {nominal} stated")
    return nominal
