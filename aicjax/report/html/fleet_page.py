# SPDX-License-Identifier: Apache-2.0
"""The page of an answer about fleets: the answer in sentences, its curve, its tables, what was asked."""

import platform
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

import aicjax
from aicjax.report import fleet_text
from aicjax.report.fleet_view import question
from aicjax.report.html import fleet_charts, inputs
from aicjax.report.html.commands import folded
from aicjax.report.html.parts import Cell, Column, Command, Page, Panel, Part, Table


def page(answer: Any, *, command: str | None = None) -> Page:
    """The page.

    Args:
        answer: An answer of a command about fleets, or of `plan`.
        command: The command line that ran; None where it was asked for in Python.
    """
    view = fleet_text.VIEWS[type(answer)]
    first, *others = [line.strip() for line in view.lines(answer)]
    error = view.failure(answer)
    tables = _tables(answer)
    panels = [
        _panel("curve", "The answer as a chart", fleet_charts.charts(answer), short="Chart"),
        _panel("tables", "All rows", tables, short="Rows"),
    ]
    asked = getattr(answer, "asked", None)
    content = {"aicjax": aicjax.__version__, "python": platform.python_version()}
    panels.append(
        inputs.panel(
            content,
            fleet_charts.facts(asked),
            again=None if command is None else Command("Run this again", folded(command)),
        )
    )
    reasons = [("The answer", others)] if others else []
    if error is not None:
        reasons.insert(0, ("What is missed", [str(error)]))
    return Page(
        title=first[:1].upper() + first[1:],
        kicker=question(asked) if asked is not None else "",
        lead=[],
        tone="good" if error is None else "bad",
        tiles=[],
        reasons=reasons,
        commands=[],
        panels=[panel for panel in panels if panel is not None],
        picture=fleet_charts.NAME,
    )


def _panel(name: str, title: str, parts: list[Any], *, short: str) -> Panel | None:
    found: list[Part] = list(parts)
    return Panel(name, title, found, short=short) if found else None


class _Collector(Console):
    """A console that keeps the tables that are printed on it, and shows nothing."""

    def __init__(self) -> None:
        super().__init__(width=10_000, quiet=True)
        self.tables: list[RichTable] = []

    def print(self, *objects: Any, **_: Any) -> None:
        self.tables += [each for each in objects if isinstance(each, RichTable)]


def _tables(answer: Any) -> list[Table]:
    """The tables of an answer, as they are printed on a terminal."""
    collector = _Collector()
    fleet_text.VIEWS[type(answer)].table(answer, collector)
    return [_table(each) for each in collector.tables]


def _table(printed: RichTable) -> Table:
    columns = [
        Column(_plain(column.header).replace("\n", " "), column.justify == "right") for column in printed.columns
    ]
    cells = [[_plain(cell) for cell in column.cells] for column in printed.columns]
    rows = [
        [_cell(text, column) for text, column in zip(row, columns, strict=True)] for row in zip(*cells, strict=True)
    ]
    return Table(_plain(printed.title or "All rows"), columns, rows)


def _plain(text: Any) -> str:
    return text.plain if isinstance(text, RichText) else str(text)


def _cell(text: str, column: Column) -> Cell:
    """A cell that sorts by the number that its text begins with."""
    if not column.number:
        return Cell(text)
    start = text.split(" ", 1)[0].replace(",", "").strip("$%")
    try:
        return Cell(text, float(start))
    except ValueError:
        return Cell(text)
