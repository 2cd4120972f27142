# SPDX-License-Identifier: Apache-2.0
"""The page of a sweep: the best point, the fronts of all groups, the best points as tables, the axes."""

from typing import Any

from aicjax._names import counted
from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame
from aicjax.report import manifest, phrases, sweep_text
from aicjax.report.html import inputs, palette, printed
from aicjax.report.html.commands import folded
from aicjax.report.html.figures import axis, plain
from aicjax.report.html.parts import Cell, Chart, Column, Command, Page, Panel, Table, number
from aicjax.report.rows import workers
from aicjax.sweeps.result import OVERALL, Answer, SweepResult

NAME = "fronts-chart"
HEIGHT = 480  # of the chart [px]
MOST_GROUPS = 24  # fronts that are drawn
TABLE_ROWS = 200
DASHES = ("solid", "dash", "dot", "dashdot")


def page(result: SweepResult, *, command: str | None = None) -> Page:
    """The page.

    Args:
        result: What was found.
        command: The command line that ran; None where it was asked for in Python.
    """
    spec = result.spec
    pairs = len(spec.limits)
    overall = [line.strip() for answer in result.answers[:pairs] for line in sweep_text.counts(answer)]
    shown = printed.tables(lambda console: sweep_text.print_sweep(result, console))
    again = None if command is None else Command("Run this again", folded(command))
    panels = [
        _fronts(result),
        Panel("best", "The best points", shown, short="Best") if shown else None,
        inputs.panel(manifest.versions(), _axes(result), again=again),
    ]
    return Page(
        title=f"Best: {sweep_text.headline(result)}" if result.found else sweep_text.nothing_found(result),
        kicker="; ".join(sweep_text.question(spec)),
        lead=sweep_text.progress(result),
        tone="good" if result.found else "bad",
        tiles=[],
        reasons=[("What became of the points", overall)],
        commands=[],
        panels=[panel for panel in panels if panel is not None],
        picture=NAME,
    )


def _axes(result: SweepResult) -> dict[str, Any]:
    stated = result.spec.model_dump(mode="json", exclude_defaults=True)
    return {name: value for name, value in stated.items() if not isinstance(value, dict)}


def _fronts(result: SweepResult) -> Panel | None:
    """The front of every group within the first limits; of all points together where there are no groups."""
    answers = result.answers[:: len(result.spec.limits)]
    filled = [answer for answer in answers if frames.length(answer.front)]
    groups = [answer for answer in filled if answer.group != OVERALL] or filled
    if not groups:
        return None
    drawn = groups[:MOST_GROUPS]
    rows = [row for answer in drawn for row in _lines(answer)]
    columns = [Column("group", False), Column("replica", False)]
    columns += map(Column, ("tokens/s/user", "tokens/s/GPU", "TTFT, ms", "TPOT, ms"))
    thinned = f", the first {TABLE_ROWS} of {len(rows)} points" if len(rows) > TABLE_ROWS else ""
    chart = Chart(
        name=NAME,
        title="What one user sees against what a GPU yields",
        summary=f"The fronts of {counted(len(drawn), 'group')}",
        traces=[_trace(answer, position) for position, answer in enumerate(drawn)],
        layout={"xaxis": axis("tokens/s per user"), "yaxis": axis("tokens/s per GPU")},
        height=HEIGHT,
        table=Table(f"The fronts{thinned}", columns, rows[:TABLE_ROWS]),
        note="Point at the chart to read it; arrow keys walk along a front. Drag to zoom, double-click to return, "
        "click a name to hide it."
        + (f" {len(groups) - len(drawn)} more groups are not drawn." if len(groups) > len(drawn) else ""),
    )
    title = f"Fronts within {sweep_text.limits_text(drawn[0].limits)}"
    return Panel("fronts", title, [chart], short="Fronts")


def _replicas(front: Frame) -> list[str]:
    return [phrases.composition(workers(row)) for row in frames.rows(front)]


def _trace(answer: Answer, position: int) -> dict[str, Any]:
    """A front; beyond the colours there are, with another dash."""
    front, colour = answer.front, palette.series(position)
    dash = DASHES[position // palette.SERIES % len(DASHES)]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": answer.group,
        "x": plain(front["tokens/s/user"]),
        "y": plain(front["tokens/s/gpu"]),
        "columns": [_replicas(front), plain(front["ttft"]), plain(front["tpot"])],
        "line": {"color": colour, "width": 2, "dash": dash},
        "marker": {"color": colour, "size": 4},
        "hovertemplate": "<b>%{customdata[0]}</b><br>TTFT %{customdata[1]} ms, TPOT %{customdata[2]} ms<br>"
        "%{y:.2f} tokens/s/GPU at %{x:.2f} tokens/s/user",
    }


def _lines(answer: Answer) -> list[list[Cell]]:
    front = answer.front
    return [
        [
            Cell(answer.group),
            Cell(replica),
            number(row["tokens/s/user"]),
            number(row["tokens/s/gpu"]),
            number(row["ttft"], ",.1f"),
            number(row["tpot"]),
        ]
        for replica, row in zip(_replicas(front), frames.rows(front), strict=True)
    ]
