# SPDX-License-Identifier: Apache-2.0
"""Tables that a terminal shows, as tables of a page."""

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from aicjax.report.html.parts import Cell, Column, Table

WIDTH = 10_000  # no column is left out


class _Collector(Console):
    """A console that keeps the tables that are printed on it, and shows nothing."""

    def __init__(self) -> None:
        super().__init__(width=WIDTH, quiet=True)
        self.tables: list[RichTable] = []

    def print(self, *objects: Any, **_: Any) -> None:
        self.tables += [each for each in objects if isinstance(each, RichTable)]


def tables(print_on: Callable[[Console], None]) -> list[Table]:
    """The tables that a function prints on a console."""
    collector = _Collector()
    print_on(collector)
    return [_table(each) for each in collector.tables]


def _table(printed: RichTable) -> Table:
    columns = [
        Column(_plain(column.header).replace("\n", " "), column.justify == "right") for column in printed.columns
    ]
    cells = [[_plain(cell) for cell in column.cells] for column in printed.columns]
    rows = [[_cell(*pair) for pair in zip(row, columns, strict=True)] for row in zip(*cells, strict=True)]
    return Table(_plain(printed.title or "All rows"), columns, rows)


def _plain(text: Any) -> str:
    return text.plain if isinstance(text, Text) else str(text)


def _cell(text: str, column: Column) -> Cell:
    """A cell that sorts by the number that its text begins with."""
    if not column.number:
        return Cell(text)
    start = text.split(" ", 1)[0].replace(",", "").strip("$%")
    try:
        return Cell(text, float(start))
    except ValueError:
        return Cell(text)
