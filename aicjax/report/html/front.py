# SPDX-License-Identifier: Apache-2.0
"""The panel of all configurations: what one request sees against what the GPUs yield, fronts, picks and limits."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER
from aicjax.explore.frame import Frame
from aicjax.explore.pick import over_budget
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import TaskResult
from aicjax.report import phrases
from aicjax.report.html.figures import axis, labelled, layouts, plain
from aicjax.report.html.parts import Cell, Chart, Column, Panel, Table, Text, number
from aicjax.report.ranges import Ranges
from aicjax.report.rows import Row, workers

MOST_POINTS = 30_000  # of one experiment; beyond, the page would be slow
MOST_DRAWN_AS_SHAPES = 5_000  # of all; beyond, they are drawn by WebGL
TABLE_ROWS = 200


class Shown(NamedTuple):
    """An experiment on the chart.

    Attributes:
        name: Its name.
        task: The experiment.
        request: What it was asked.
        rows: Its top list.
        colour: Its colour on all charts.
    """

    name: str
    task: TaskResult
    request: SearchRequest
    rows: Sequence[Row]
    colour: str


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
    thinned = {name: _thinned(frame, x_name, by_latency) for name, frame in kept.items()}
    points = sum(frames.length(frame) for frame in thinned.values())
    kind = "scatter" if points <= MOST_DRAWN_AS_SHAPES else "scattergl"
    traces: list[dict[str, Any]] = []
    traces += [_cloud(each, thinned[each.name], x_name, kind) for each in filled]
    traces += [_front(each, x_name) for each in filled]
    traces += [trace for each in filled for trace in _picked(each, x_name, each.name == chosen)]
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
        "against what every GPU of the budget yields. "
        "The star is the answer, rings are the other picks, lines the fronts, and the bars of the star hold 8 of 10 "
        "servers. The shaded side keeps the limit."
    ]
    if points < everything:
        lines.append(
            f"{points:,} of {everything:,} configurations are drawn: those on fronts, an even choice of the others."
        )
    return Panel("configurations", "All configurations", [Text(lines), chart], short="Configurations")


def kept_rows(task: TaskResult, request: SearchRequest) -> Frame:
    """All rows that an experiment kept, with the throughput of the budget."""
    if not frames.length(task.feasible):
        return {}
    if request.total_gpus is None:
        return frames.with_cluster(task.feasible, task.feasible["tokens/s/gpu"])
    return over_budget(task.feasible, request.total_gpus)


def _thinned(frame: Frame, x_name: str, by_latency: bool) -> Frame:
    """At most `MOST_POINTS` rows, evenly chosen along the axis."""
    rows = frames.length(frame)
    if rows <= MOST_POINTS:
        return frame
    order = np.argsort(frame[x_name], kind="stable")
    return frames.take(frame, order[np.linspace(0, rows - 1, MOST_POINTS).astype(int)])


def _told(frame: Frame) -> tuple[list[Any], str]:
    """What is told of each row: columns of values, and how they are worded."""
    columns: list[Any] = []
    lines: list[str] = []

    def put(values: Any) -> str:
        columns.append(values)
        return f"%{{customdata[{len(columns) - 1}]}}"

    if "(d)parallel" in frame:
        for role, prefix in (("prefill", "(p)"), ("decode", "(d)")):
            count, layout = put(plain(frame[f"{prefix}workers"])), put(layouts(frame, f"{prefix}parallel"))
            lines.append(f"<b>{count} × {layout}, batch {put(plain(frame[f'{prefix}bs']))}</b> {role}")
    else:
        batch = f", batch {put(plain(frame['bs']))}" if "bs" in frame else ""
        lines.append(f"<b>{put(layouts(frame, 'parallel'))}{batch}</b>")
        if "ctx_tokens" in frame:
            lines.append(f"{put(plain(frame['ctx_tokens']))} prompt tokens a step")
    if len(set(np.asarray(frame.get("backend", frame.get("(d)backend"))).tolist())) > 1:
        lines[0] += f" {put(labelled(frame['backend' if 'backend' in frame else '(d)backend']))}"
    lines.append(f"TTFT {put(plain(frame['ttft']))} ms, TPOT {put(plain(frame['tpot']))} ms")
    lines.append(f"request {put(plain(frame['request_latency']))} ms")
    lines.append(f"{put(plain(frame['num_total_gpus']))} GPUs a replica, {put(plain(frame['concurrency']))} in flight")
    return columns, "<br>".join(lines)


def _points(each: Shown, frame: Frame, x_name: str, name: str) -> dict[str, Any]:
    columns, told = _told(frame)
    unit = "ms" if x_name == "request_latency" else "tokens/s/user"
    return {
        "name": name,
        "x": plain(frame[x_name]),
        "y": plain(frame[CLUSTER]),
        "columns": columns,
        "hovertemplate": f"{each.name}: {told}<br>%{{y:.2f}} tokens/s/GPU at %{{x:.2f}} {unit}<extra></extra>",
    }


def _cloud(each: Shown, frame: Frame, x_name: str, kind: str) -> dict[str, Any]:
    count = frames.length(frame)
    return {
        **_points(each, frame, x_name, f"{each.name}: {count:,} kept"),
        "type": kind,
        "mode": "markers",
        "marker": {"color": each.colour, "size": 5, "opacity": 0.35},
    }


def _front(each: Shown, x_name: str) -> dict[str, Any]:
    return {
        **_points(each, each.task.pareto, x_name, f"{each.name}: front"),
        "type": "scatter",
        "mode": "lines",
        "line": {"color": each.colour, "width": 2.5},
    }


def _picked(each: Shown, x_name: str, won: bool) -> list[dict[str, Any]]:
    """The top list: the answer as a star with its ranges, the others as rings."""
    best = each.task.best
    if not frames.length(best):
        return []
    first = np.arange(frames.length(best)) == 0
    parts = [(best, "picks", "circle-open", 11)]
    if won:
        parts = [
            (frames.take(best, ~first), "other picks", "circle-open", 11),
            (frames.take(best, first), "", "star", 17),
        ]
    traces = []
    for frame, name, symbol, size in parts:
        if not frames.length(frame):
            continue
        star = symbol == "star"
        trace = {
            **_points(each, frame, x_name, "the answer" if star else f"{each.name}: {name}"),
            "type": "scatter",
            "mode": "markers",
            "marker": {
                "color": each.colour,
                "size": size,
                "symbol": symbol,
                "line": {"color": "--mark", "width": 1.5 if star else 2},
            },
        }
        if not star:
            trace["marker"]["line"] = {"color": each.colour, "width": 2}
        if star and each.rows[0].ranges is not None:
            trace |= _bars(each.rows[0].ranges, trace["x"][0], trace["y"][0], x_name)
        traces.append(trace)
    return traces


def _bars(ranges: Ranges, x: float, y: float, x_name: str) -> dict[str, Any]:
    """Ranges of the answer, as what is added and taken away on both axes."""
    low, _, high = ranges.tokens_per_s_per_gpu
    bars = {"error_y": _ends(low, y, high)}
    if x_name == "request_latency":
        bars["error_x"] = _ends(ranges.request_latency_ms[0], x, ranges.request_latency_ms[2])
    elif ranges.tpot_ms is not None:
        bars["error_x"] = _ends(1000 / ranges.tpot_ms[2], x, 1000 / ranges.tpot_ms[0])
    return bars


def _ends(low: float, value: float, high: float) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": plain([high - value]),
        "arrayminus": plain([value - low]),
        "color": "--mark",
        "thickness": 1.5,
        "width": 5,
    }


def _layout(filled: Sequence[Shown], x_name: str, by_latency: bool) -> dict[str, Any]:
    request = filled[0].request
    limit = request.request_latency if by_latency else 1000 / request.tpot
    end = 1.05 * max(float(each.task.pareto[x_name].max()) for each in filled if frames.length(each.task.pareto))
    end = max(end, limit or 0.0) if by_latency else end
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
        front = each.task.pareto
        length = frames.length(front)
        total += length
        share = max(1, TABLE_ROWS // len(filled))
        at = np.unique(np.linspace(0, length - 1, min(length, share)).astype(int))
        rows += [_line(each, record, x_name) for record in frames.rows(frames.take(front, at))]
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
