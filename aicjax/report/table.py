# SPDX-License-Identifier: Apache-2.0
"""Top lists as tables for a terminal."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from aicjax.report.phrases import describe
from aicjax.report.ranges import cell
from aicjax.report.rows import Row


class Column(NamedTuple):
    """One column of a table: its header, the text of a row in it, and the side it is set to."""

    header: str
    text: Callable[[Any], str]
    side: Literal["left", "right"] = "right"


def optional(value: float | None, form: str) -> str:
    """A number in a format, or a dash where there is none."""
    return "-" if value is None else format(value, form)


_COMMON = (
    Column("#", lambda row: str(row.rank)),
    Column("tok/s\n/gpu", lambda row: f"{row.tokens_per_s_per_gpu:.2f}"),
    Column("tok/s\n/user", lambda row: optional(row.tokens_per_s_per_user, ".2f")),
    Column("req/s", lambda row: f"{row.requests_per_s:.2f}"),
    Column("TTFT\nms", lambda row: f"{row.ttft_ms:.1f}"),
    Column("TPOT\nms", lambda row: optional(row.tpot_ms, ".2f")),
    Column("total\nms", lambda row: f"{row.request_latency_ms:.0f}"),
    Column("in\nflight", lambda row: str(row.concurrency)),
    Column("replica\nx GPUs", lambda row: f"{row.replicas} x {row.gpus // row.replicas if row.replicas else 0}"),
)
_RANGES = {  # what a column gets beside it where rows have ranges
    "TTFT\nms": Column("TTFT\n80 %", lambda row: cell(row.ranges and row.ranges.ttft_ms)),
    "TPOT\nms": Column("TPOT\n80 %", lambda row: cell(row.ranges and row.ranges.tpot_ms)),
    "total\nms": Column("meets\nlimits", lambda row: optional(row.ranges and row.ranges.limits_met, ".0%")),
}
_MEMORY = Column("GiB\n/GPU", lambda row: ", ".join(optional(worker.memory_gib, ".1f") for worker in row.workers))
_BINDING = Column("held back\nby", lambda row: row.binding or "-", "left")
_PROVENANCE = Column("least sure\nsource", lambda row: row.provenance or "-", "left")
_DROPPED_FIRST = (
    *("least sure\nsource", "held back\nby", "total\nms", "GiB\n/GPU", "in\nflight", "req/s"),
    *("meets\nlimits", "TTFT\n80 %", "TPOT\n80 %"),
)
_UNLIMITED = 10_000


def print_top(console: Console, title: str, rows: Sequence[Row], *, with_backend: bool = False) -> None:
    """Prints the best configurations of one experiment, without the least needed columns if the console is narrow.

    Args:
        console: Where to.
        title: Line above the table.
        rows: In rank order, at least one; all of one serving mode.
        with_backend: Whether the engine has a column of its own.
    """
    print_fitted(console, title, rows, _columns(rows[0], with_backend), _DROPPED_FIRST)


def print_fitted(
    console: Console,
    title: str,
    rows: Sequence[Any],
    columns: Sequence[Column],
    dropped_first: Sequence[str] = (),
    *,
    bold_first: bool = True,
) -> None:
    """Prints a table, the first row bold, without the least needed columns if the console is narrow.

    Args:
        console: Where to.
        title: Line above the table.
        rows: What the columns make text of.
        columns: The columns.
        dropped_first: Headers of columns that may be left out, in that order.
        bold_first: Whether the first row stands out.
    """
    table = _table(title, rows, columns, bold_first)
    for header in dropped_first:
        if Measurement.get(console, console.options.update(width=_UNLIMITED), table).maximum <= console.width:
            break
        columns = [column for column in columns if column.header != header]
        table = _table(title, rows, columns, bold_first)
    console.print(table)


def _columns(first: Row, with_backend: bool) -> list[Column]:
    known = _RANGES if first.ranges else {}
    columns = [each for column in _COMMON for each in (column, known.get(column.header)) if each]
    if with_backend:
        columns.append(Column("engine", lambda row: row.backend, "left"))
    for position, worker in enumerate(first.workers):
        name = "worker" if worker.role == "agg" else worker.role
        columns.append(Column(f"{name}\n(b: batch)", lambda row, at=position: describe(row.workers[at]), "left"))
    return [*columns, _MEMORY, *([_BINDING, _PROVENANCE] if first.binding else [])]


def _table(title: str, rows: Sequence[Any], columns: Sequence[Column], bold_first: bool) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for column in columns:
        table.add_column(column.header, justify=column.side, no_wrap=True)
    for place, row in enumerate(rows):
        table.add_row(*(column.text(row) for column in columns), style="bold" if bold_first and not place else None)
    return table
