# SPDX-License-Identifier: Apache-2.0
"""The panel of all configurations: what one request sees against what the GPUs yield, fronts, picks and limits."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aicjax._units import MS_PER_S
from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER
from aicjax.explore.frame import Frame
from aicjax.report import phrases
from aicjax.report.html.figures import axis
from aicjax.report.html.front_traces import cloud, front, picked
from aicjax.report.html.parts import Cell, Chart, Column, Panel, Table, Text, number
from aicjax.report.html.shown import Shown, kept_rows
from aicjax.report.rows import workers

MOST_POINTS = 60_000  # of a page; beyond, it would be slow and large
MOST_DRAWN_AS_SHAPES = 5_000  # of all; beyond, they are drawn by WebGL
TABLE_ROWS = 200


def panel(shown: Sequence[Shown], chosen: str | None) -> Panel | None:
    """The panel; None where no experiment kept a configuration.

    Args:
        shown: The experiments.
        chosen: Name of the one that won.
    """
    kept = {each.name: kept_rows(each.task, each.request) for each in shown}
    filled = [each for each in shown if frames.length(kept[each.name])]
    if not filled:
        return None
    by_latency = any(each.request.request_latency is not None or each.request.osl == 1 for each in filled)
    x_name = "request_latency" if by_latency else "tokens/s/user"
    share = max(1, MOST_POINTS // len(filled))
    thinned = {name: _thinned(frame, x_name, share) for name, frame in kept.items()}
    points = sum(frames.length(frame) for frame in thinned.values())
    kind = "scatter" if points <= MOST_DRAWN_AS_SHAPES else "scattergl"
    traces: list[dict[str, Any]] = []
    traces += [cloud(each, thinned[each.name], x_name, kind, frames.length(kept[each.name])) for each in filled]
    traces += [front(each, x_name) for each in filled]
    traces += [trace for each in filled for trace in picked(each, x_name, each.name == chosen)]
    everything = sum(frames.length(frame) for frame in kept.values())
    chart = Chart(
        name="front",
        title="Every configuration that was kept",
        summary=_summary(filled, everything, chosen),
        traces=traces,
        layout=_layout(filled, x_name, by_latency),
        height=520,
        table=_table(filled, x_name, by_latency),
        note="Point at a configuration to read it; arrow keys walk along a series. Drag to zoom, double-click to "
        "return, click a name to hide it.",
    )
    lines = [
        f"Each point is one configuration: {'how long a request takes' if by_latency else 'how fast one user reads'} "
        "against what every GPU of the budget yields. Lines are the fronts, rings the picks of each experiment"
        + ("; the star is the answer, and its bars held 8 of 10 servers. " if chosen is not None else ". ")
        + "The shaded side keeps the limit."
    ]
    if points < everything:
        lines.append(
            f"{points:,} of {everything:,} configurations are drawn: those on fronts, an even choice of the others."
        )
    return Panel("configurations", "All configurations", [Text(lines), chart], short="Configurations")


def _thinned(frame: Frame, x_name: str, most: int) -> Frame:
    """At most so many rows, evenly chosen along the axis."""
    rows = frames.length(frame)
    if rows <= most:
        return frame
    order = np.argsort(frame[x_name], kind="stable")
    return frames.take(frame, order[np.linspace(0, rows - 1, most).astype(int)])


def _layout(filled: Sequence[Shown], x_name: str, by_latency: bool) -> dict[str, Any]:
    request = filled[0].request
    limit = request.request_latency if by_latency else MS_PER_S / request.tpot
    end = 1.05 * max(float(each.task.pareto[x_name].max()) for each in filled if frames.length(each.task.pareto))
    if by_latency:
        high = [each.rows[0].ranges.request_latency_ms[2] for each in filled if each.rows and each.rows[0].ranges]
        end = max(end, limit or 0.0, *high)
    x_title = "request latency, ms" if by_latency else "tokens/s per user"
    layout: dict[str, Any] = {
        "xaxis": axis(x_title, range=[0, end]),
        "yaxis": axis("tokens/s per GPU of the budget" if request.total_gpus is not None else "tokens/s per GPU"),
        "margin": {"l": 8, "r": 16, "t": 30, "b": 8},
    }
    alike = len({(each.request.tpot, each.request.request_latency) for each in filled}) == 1
    if limit is None or not alike:
        return layout
    ends = (0, limit) if by_latency else (limit, max(limit, end))
    region = {
        "type": "rect",
        "layer": "below",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "x0": ends[0],
        "x1": max(ends),
        "line": {"width": 0},
    }
    edge = {"type": "line", "layer": "below", "yref": "paper", "y0": 0, "y1": 1, "x0": limit, "x1": limit}
    words = f"request ≤ {limit:g} ms" if by_latency else f"TPOT ≤ {request.tpot:g} ms"
    layout["shapes"] = [
        {**region, "fillcolor": "--region"},
        {**edge, "line": {"color": "--good", "width": 1.5, "dash": "dash"}},
    ]
    layout["annotations"] = [
        {
            "text": f"keeps {words}",
            "x": limit,
            "y": 1,
            "yref": "paper",
            "xanchor": "right" if by_latency else "left",
            "yanchor": "top",
            "xshift": -6 if by_latency else 6,
            "showarrow": False,
            "font": {"color": "--good", "size": 12},
        }
    ]
    return layout


def _summary(filled: Sequence[Shown], everything: int, chosen: str | None) -> str:
    names = ", ".join(each.name for each in filled)
    text = f"{everything:,} configurations of {names}"
    first = next((each.rows[0] for each in filled if each.name == chosen and each.rows), None)
    if first is None:
        return text
    return f"{text}; the answer yields {first.tokens_per_s_per_gpu:.0f} tokens per second and GPU"


def _table(filled: Sequence[Shown], x_name: str, by_latency: bool) -> Table:
    """The fronts as a table, evenly thinned where they are long."""
    rows: list[Sequence[Cell]] = []
    total = 0
    for each in filled:
        rows_of_front = each.task.pareto
        length = frames.length(rows_of_front)
        total += length
        share = max(1, TABLE_ROWS // len(filled))
        at = np.unique(np.linspace(0, length - 1, min(length, share)).astype(int))
        rows += [_line(each, record, x_name) for record in frames.rows(frames.take(rows_of_front, at))]
    thinned = f", {len(rows)} of {total} configurations" if len(rows) < total else ""
    head = "request, ms" if by_latency else "tokens/s/user"
    columns = [
        Column("experiment", False),
        Column("replica", False),
        *map(Column, (head, "tokens/s/GPU", "TTFT, ms", "TPOT, ms", "GPUs a replica")),
    ]
    return Table(f"The fronts{thinned}", columns, rows)


def _line(each: Shown, record: Mapping[str, Any], x_name: str) -> list[Cell]:
    return [
        Cell(each.name, swatch=each.colour),
        Cell(phrases.composition(workers(dict(record)))),
        number(record[x_name]),
        number(record[CLUSTER]),
        number(record["ttft"], ",.1f"),
        number(record["tpot"]),
        number(record["num_total_gpus"], "d"),
    ]
