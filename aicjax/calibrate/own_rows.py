# SPDX-License-Identifier: Apache-2.0
"""A user's own measurements: a short table of servers, read as measured rows."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aicjax._results import DataError
from aicjax.calibrate.data_rules import saturated
from aicjax.calibrate.measurements import Ints, Measurements, joined, measurements_of, read_table, shipped_path

NEEDED = ("model", "system", "backend", "isl", "osl", "concurrency", "ttft_ms", "tpot_ms")
_ROLES = {"agg": "", "prefill": "prefill_", "decode": "decode_"}
_SIZES = {"tp": "tp_size", "dp": "attention_dp_size", "moe_tp": "moe_tp_size", "moe_ep": "moe_ep_size"}
_ASSUMED = {  # of columns that need not be stated
    **dict.fromkeys(("precision", "backend_version", "image", "gemm_quant_mode", "moe_quant_mode", "split"), ""),
    **dict.fromkeys(("queue_saturated", "non_monotone_tpot"), False),
    "mode": "agg",
    "harness": "inferencex-like",
    "source": "own",
    "spec_label": "none:own",
    "topology_flag": "ok",
    "duplicate_rank": 0,
    "clean": True,
}


def read_servers(paths: Sequence[Path] = ()) -> Measurements:
    """Rows of one or more files, or the shipped ones; tables with a column `model` are a user's own.

    Raises:
        InputError: No such file, or neither parquet nor CSV.
        DataError: A column is missing or of another kind.
    """
    return joined([_rows(path) for path in paths or [shipped_path()]])


def read_own(path: Path) -> Measurements:
    """A user's measurements: a CSV or parquet file with at least the columns `NEEDED`.

    `tp`, `dp`, `moe_ep` and `moe_tp` are the layout: 1 where not stated, and what the others leave of the GPUs for
    `moe_tp`. Disaggregated rows have `mode` `disagg` and the same columns with `prefill_` and `decode_` in front, with
    `prefill_workers` and `decode_workers`. Times are means over requests. Loads are those of published benchmarks
    unless the column `harness` says otherwise.

    Raises:
        InputError: No such file, or neither parquet nor CSV.
        DataError: A column is missing or of another kind.
    """
    table = read_table(path)
    if missing := [name for name in NEEDED if name not in table.column_names]:
        raise DataError(f"{path}: column {missing[0]} is missing; needed are {', '.join(NEEDED)}")
    if not len(table):
        raise DataError(f"{path}: no rows")
    given = {name: table[name].to_pylist() for name in table.column_names}
    rows = len(table)
    columns = {name: [value] * rows for name, value in _ASSUMED.items()} | {
        "row": list(range(rows)),
        "model_path": given["model"],
        "model_family": given["model"],
        "silicon_ttft_ms": given["ttft_ms"],
        "silicon_tpot_ms": given["tpot_ms"],
        **{name: given[name] for name in given if name in _ASSUMED or name in NEEDED},
    }
    modes, concurrency = np.array(columns["mode"]), _counts(path, given, "concurrency", 1, rows)
    gpus = np.zeros(rows, int)
    for role, prefix in _ROLES.items():
        present = (modes == "agg") == (role == "agg")
        size = {name: _counts(path, given, f"{prefix}{name}", 1, rows) for name in ("tp", "dp", "moe_ep")}
        rest = np.maximum(size["tp"] * size["dp"] // size["moe_ep"], 1)
        size["moe_tp"] = _counts(path, given, f"{prefix}moe_tp", rest, rows)
        size = {name: values * present for name, values in size.items()}
        workers = _counts(path, given, f"{prefix}workers", 1, rows) * present
        ranks = np.maximum(size["dp"] * (workers if role != "prefill" else 1), 1)
        busy = concurrency if role != "prefill" else np.ones(rows, int)
        columns |= {f"{prefix}{column}_fixed": size[name].tolist() for name, column in _SIZES.items()}
        columns[f"{prefix}num_workers_fixed"] = workers.tolist()
        columns[f"{prefix}batch_size_fixed"] = (-(-busy // ranks) * present).tolist()
        gpus += workers * size["tp"] * size["dp"]
    columns["num_gpus"] = gpus.tolist()
    found = measurements_of(path, pa.table(columns))
    return dataclasses.replace(found, queue_saturated=saturated(found))


def _rows(path: Path) -> Measurements:
    table = read_table(path)
    return read_own(path) if "model" in table.column_names else measurements_of(path, table)


def _counts(path: Path, given: Mapping[str, list[Any]], name: str, otherwise: Ints | int, rows: int) -> Ints:
    """A column of counts, with others where it has none [row]."""
    stated = given.get(name, [None] * rows)
    if not all(value is None or (isinstance(value, int) and value >= 1) for value in stated):
        raise DataError(f"{path}: column {name} must hold counts of at least 1")
    known = np.array([value is not None for value in stated])
    return np.where(known, [value or 1 for value in stated], otherwise)
