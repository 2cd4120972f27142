# SPDX-License-Identifier: Apache-2.0
"""Tables that timed the host of their benchmark, for a terminal or as JSON."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from aicjax.tables.faults import Fault

_HEADERS = ("backend", "table", "slice", "sibling", "floor, its\nus", "excess\nus", "small, large\nratio", "repaired")
_TEXTS = 4  # columns that are not numbers


def print_faults(faults: Sequence[Fault], repaired: Collection[str], *, as_json: bool) -> None:
    """Prints faults, a row for each sibling.

    Args:
        faults: What was found.
        repaired: Tables that are read without the time of their host.
        as_json: Whether to print JSON instead, one record a row.
    """
    records = [record for fault in faults for record in _records(fault, repaired)]
    if as_json:
        print(json.dumps(records))
        return
    console = Console()
    for system in dict.fromkeys(record["system"] for record in records):
        shown = Table(title=system, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        for at, header in enumerate(_HEADERS):
            shown.add_column(header, justify="left" if at < _TEXTS else "right", overflow="fold")
        for record in (record for record in records if record["system"] == system):
            shown.add_row(*_cells(record))
        console.print(shown)
    count = sum(fault.comparisons[0].file.table in repaired for fault in faults)
    console.print(f"Slices that timed their host: {len(faults)}; read without that time: {count}")


def _records(fault: Fault, repaired: Collection[str]) -> list[dict[str, Any]]:
    return [
        {
            "system": c.file.system,
            "backend": c.file.backend,
            "version": c.file.version,
            "table": c.file.table,
            "slice": {column: text for column, text in c.where if text},
            "sibling": f"{c.sibling.backend} {c.sibling.version}",
            "points": c.points,
            "floor_us": round(c.floor_us, 1),
            "sibling_floor_us": round(c.sibling_floor_us, 1),
            "excess_us": round(c.excess_us, 1),
            "small_ratio": round(c.small_ratio, 2),
            "large_ratio": round(c.large_ratio, 2),
            "repaired": c.file.table in repaired,
        }
        for c in fault.comparisons
    ]


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    return (
        record["backend"],
        record["table"].removesuffix("_perf"),
        " ".join(record["slice"].values()),
        record["sibling"].split()[0],
        f"{record['floor_us']:g}, {record['sibling_floor_us']:g}",
        f"{record['excess_us']:g}",
        f"{record['small_ratio']:g}, {record['large_ratio']:g}",
        "yes" if record["repaired"] else "no",
    )
