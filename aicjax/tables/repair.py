# SPDX-License-Identifier: Apache-2.0
"""Tables that timed their host, read without that time: `configs/table_repairs.yaml` says which, `faults` finds them.

A point takes the least of what was measured and of what the same operator took on other backends of the same GPU, these
scaled by how much longer large operators take. Points that no sibling measured stay where the kernel outlasts the host
and are left out elsewhere: neighbouring points then answer for them.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from aicjax import _paths
from aicjax._results import DataError
from aicjax.tables.faults import LARGE_EXCESSES, Fault, TableFile, file_of, find_faults, point_codes
from aicjax.tables.rows import Rows, first_rows
from aicjax.tables.store import read_rows

# Operators that a server replays from a graph. Prefills are launched one by one there too, so that times of hosts in
# their tables may be real.
REPAIRED = ("gemm_perf", "generation_mla_perf", "mla_generation_module_perf", "dsa_generation_module_perf")
FLAG = "repaired"  # column of the rows that says which latencies were lowered


@dataclass(frozen=True)
class Repair:
    """How one slice of a table is repaired.

    Attributes:
        file: The table.
        where: Texts that select the slice, by column.
        excess_us: Time of the host.
        levels: How much longer large operators take than those of each sibling; at least 1.
    """

    file: TableFile
    where: Mapping[str, str]
    excess_us: float
    levels: Mapping[TableFile, float]


def read_repaired(
    system: str, backend: str, version: str, table: str, shared: bool = True, repaired: bool = True
) -> Rows | None:
    """Rows of a table as `read_rows` has them; if `repaired`, without the time of hosts and with a column `FLAG`."""
    rows = read_rows(system, backend, version, table, shared)
    if rows is None or not repaired:
        return rows
    latency_ms = rows.number("latency").copy()
    lowered, kept = np.zeros(len(rows), np.int64), np.ones(len(rows), bool)
    for place, source in enumerate(rows.sources):
        for repair in _repairs(_file()).get(file_of(source.path), ()) if source.exists else ():
            at = np.flatnonzero((rows.source == place) & _selected(rows, repair.where))
            expected_ms = _expected_ms(rows.select(at), repair)
            known, host_ms = np.isfinite(expected_ms), repair.excess_us * 1e-3
            kept[at] = known | (latency_ms[at] >= LARGE_EXCESSES * host_ms)
            lowered[at] = known & (expected_ms < latency_ms[at])
            latency_ms[at] = np.fmin(latency_ms[at], expected_ms)
    return rows.with_number("latency", latency_ms).with_number(FLAG, lowered).select(kept)


def is_repaired(rows: Rows) -> np.ndarray:
    """Which latencies were lowered, bool [row]."""
    return rows.number(FLAG, 0) > 0


def _expected_ms(own: Rows, repair: Repair) -> np.ndarray:
    """Geometric mean over the siblings of what they say of each row [row]; NaN where none measured the point."""
    total, count = np.zeros((2, len(own)))
    for sibling, level in repair.levels.items():
        rows = sibling.rows()
        if rows is None:
            continue
        rows = rows.select(_selected(rows, repair.where))
        code, known = point_codes(own, rows, repair.file.table)
        first = first_rows(known)
        first = first[np.argsort(known[first])]
        at = first[np.minimum(np.searchsorted(known[first], code), first.size - 1)]
        same = known[at] == code
        total += np.where(same, np.log(level * rows.number("latency")[at]), 0.0)
        count += same
    return np.exp(np.divide(total, count, out=np.full(len(own), np.nan), where=count > 0))


def _selected(rows: Rows, where: Mapping[str, str]) -> np.ndarray:
    return np.logical_and.reduce([np.ones(len(rows), bool), *(rows.is_in(c, (text,)) for c, text in where.items())])


def _file() -> Path:
    return _paths.configs_dir() / "table_repairs.yaml"


@functools.cache
def _repairs(path: Path) -> Mapping[TableFile, tuple[Repair, ...]]:
    if not path.is_file():
        return {}
    entries = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found: dict[TableFile, tuple[Repair, ...]] = {}
    for entry in entries["repairs"]:
        repair = _repair(path, entry)
        found[repair.file] = (*found.get(repair.file, ()), repair)
    return found


def _repair(path: Path, entry: Mapping[str, Any]) -> Repair:
    try:
        system, table = entry["system"], entry["table"]
        file = TableFile(system, entry["backend"], str(entry["version"]), table)
        siblings = [(*name.split("/", 1), float(level)) for name, level in entry["levels"].items()]
        levels = {TableFile(system, backend, version, table): level for backend, version, level in siblings}
        return Repair(file, entry["where"], float(entry["excess_us"]), levels)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: an entry lacks or misstates {error}") from None


def entry(fault: Fault) -> dict[str, Any]:
    """A fault as an entry of the file."""
    file = fault.comparisons[0].file
    return {
        "table": file.table,
        "system": file.system,
        "backend": file.backend,
        "version": file.version,
        "where": {column: text for column, text in fault.comparisons[0].where if text},
        "excess_us": round(fault.excess_us, 1),
        "levels": {
            f"{c.sibling.backend}/{c.sibling.version}": round(max(c.large_ratio, 1.0), 3) for c in fault.comparisons
        },
    }


def document() -> str:
    """The file, as the database in use has it."""
    entries = [entry(fault) for fault in find_faults(tables=REPAIRED)]
    lines = [yaml.safe_dump(e, default_flow_style=True, sort_keys=False, width=1000).strip() for e in entries]
    return "\n".join([_HEAD, "repairs:", *(f"  - {line}" for line in lines)]) + "\n"


_HEAD = """\
# Slices of measured tables that timed the host of their benchmark, and what repairs them: see docs/tables.md.
# Written by `python -m aicjax.tables.repair`, from the tables alone.
#   excess_us: time of the host, least over the siblings
#   levels: backend/version of each sibling, and how much longer large operators take than its own (at least 1)"""

if __name__ == "__main__":
    print(document(), end="")
