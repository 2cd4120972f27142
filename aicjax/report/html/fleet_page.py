# SPDX-License-Identifier: Apache-2.0
"""The page of an answer about fleets: the answer in sentences, its curve, its tables, what was asked."""

from typing import Any

from aicjax.report import fleet_text, manifest
from aicjax.report.fleet_view import question
from aicjax.report.html import fleet_charts, inputs, printed
from aicjax.report.html.commands import folded
from aicjax.report.html.parts import Command, Page, Panel, Part


def page(answer: Any, *, command: str | None = None) -> Page:
    """The page.

    Args:
        answer: An answer of a command about fleets, or of `plan`.
        command: The command line that ran; None where it was asked for in Python.
    """
    view = fleet_text.VIEWS[type(answer)]
    first, *others = [line.strip() for line in view.lines(answer)]
    error = view.failure(answer)
    tables = printed.tables(lambda console: view.table(answer, console))
    panels = [
        _panel("curve", "The answer as a chart", fleet_charts.charts(answer), short="Chart"),
        _panel("tables", "All rows", tables, short="Rows"),
    ]
    asked = getattr(answer, "asked", None)
    panels.append(
        inputs.panel(
            manifest.versions(),
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
