# SPDX-License-Identifier: Apache-2.0
"""What is drawn of an experiment on the chart of all configurations: kept rows, the front, picks with their ranges."""

from typing import Any

import numpy as np

from aicjax._units import MS_PER_S
from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER
from aicjax.explore.frame import Frame
from aicjax.report.html.figures import labelled, layouts, plain
from aicjax.report.html.shown import Shown
from aicjax.report.ranges import Ranges


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
        names = labelled(frame["parallel"]) if "(f)workers" in frame else layouts(frame, "parallel")
        lines.append(f"<b>{put(names)}{batch}</b>")
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


def cloud(each: Shown, frame: Frame, x_name: str, kind: str, count: int) -> dict[str, Any]:
    """Rows that an experiment kept, of `count`; `kind` is that of the trace."""
    return {
        **_points(each, frame, x_name, f"{each.name}: {count:,} kept"),
        "type": kind,
        "mode": "markers",
        "marker": {"color": each.colour, "size": 5, "opacity": 0.35},
    }


def front(each: Shown, x_name: str) -> dict[str, Any]:
    """The front of an experiment, as a line."""
    return {
        **_points(each, each.task.pareto, x_name, f"{each.name}: front"),
        "type": "scatter",
        "mode": "lines",
        "line": {"color": each.colour, "width": 2.5},
    }


def picked(each: Shown, x_name: str, won: bool) -> list[dict[str, Any]]:
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
        bars["error_x"] = _ends(MS_PER_S / ranges.tpot_ms[2], x, MS_PER_S / ranges.tpot_ms[0])
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
