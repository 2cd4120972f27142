# SPDX-License-Identifier: Apache-2.0
"""Latencies of single operators as a table or as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.table import Table

from aicjax._results import MissingData, Provenance
from aicjax.report.console import stdout_console

if TYPE_CHECKING:
    from aicjax.ops.query import OpTimes


def print_times(title: str, coordinates: Mapping[str, Sequence[float]], times: "OpTimes", *, as_json: bool) -> None:
    """Prints one line per operator: shape, latency, roofline, utilisation and how the latency was obtained.

    Args:
        title: What was asked.
        coordinates: Shapes and coordinates by name [op].
        times: The answers [op].
        as_json: Whether to print JSON instead.

    Raises:
        MissingData: Nothing answers any of the operators; raised after printing.
    """
    names = [Provenance(code).name.lower() for code in times.provenance]
    rows = [
        {
            **{name: _count(values[i]) for name, values in coordinates.items()},
            "latency_ms": _number(times.latency_ms[i]),
            "sol_ms": _number(times.sol_ms[i]),
            "utilization": _number(times.sol_ms[i] / times.latency_ms[i]) if times.latency_ms[i] > 0 else None,
            "provenance": names[i],
        }
        for i in range(len(names))
    ]
    if as_json:
        print(json.dumps({"query": title, "rows": rows}, indent=2))
    else:
        fixed = [name for name in coordinates if len(rows) > 1 and len({row[name] for row in rows}) == 1]
        title = ", ".join([title, *(f"{name} {rows[0][name]}" for name in fixed)])
        stdout_console(plain=False).print(
            _table(title, [{k: v for k, v in row.items() if k not in fixed} for row in rows])
        )
    if set(names) == {"missing"}:
        raise MissingData(f"{title}: nothing measured answers any of these shapes; --database-mode SOL gives bounds.")


def _count(value: float) -> float | int:
    return int(value) if float(value).is_integer() else float(value)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _table(title: str, rows: list[dict]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in rows[0]:
        table.add_column(
            name.replace("_", "\n", 1).replace("_", " "),
            justify="left" if name == "provenance" else "right",
            no_wrap=True,
        )
    for row in rows:
        table.add_row(*(_cell(name, value) for name, value in row.items()))
    return table


def _cell(name: str, value: object) -> str:
    if value is None:
        return "-"
    if name == "utilization":
        return f"{value:.1%}"
    return f"{value:.6f}" if isinstance(value, float) else str(value)
