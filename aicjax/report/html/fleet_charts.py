# SPDX-License-Identifier: Apache-2.0
"""The chart of each kind of answer about fleets."""

import dataclasses
from collections.abc import Callable
from typing import Any

from aicjax.fleet.answer_parts import ParetoAnswer, SizeAnswer, WhatIfAnswer
from aicjax.fleet.forecast_answers import ForecastAnswer
from aicjax.fleet.phase_answers import DisaggAnswer, FlexAnswer, WattAnswer
from aicjax.fleet.plan_answers import PlanAnswer
from aicjax.fleet.run_answers import RoutersAnswer, SimulateAnswer
from aicjax.report.html import palette
from aicjax.report.html.figures import axis
from aicjax.report.html.parts import Cell, Chart, Column, Table

NAME = "curve-chart"
HEIGHT = 440  # of the chart [px]
Series = tuple[str, list[Any], list[Any]]  # name, x, y
_Plot = tuple[str, str, str, list[Series]]  # kind, x label, y label, series


def charts(answer: Any) -> list[Chart]:
    """The chart of an answer; none for those that follow the rules of vllm-sr-sim."""
    if type(answer) not in _PLOTS:
        return []
    kind, x_label, y_label, series = _PLOTS[type(answer)](answer)
    traces = [
        _trace(
            "points" if kind == "front" and not position else kind,
            name,
            x,
            y,
            palette.series(position),
            (x_label, y_label),
        )
        for position, (name, x, y) in enumerate(series)
        if len(x)
    ]
    if not traces:
        return []
    bars_of_words = kind == "bars" and any(isinstance(each, str) for trace in traces for each in trace["x"])
    rows = [[Cell(name), _cell(each), _cell(value)] for name, x, y in series for each, value in zip(x, y, strict=True)]
    title = f"{y_label.split(',')[0]} by {x_label.split(',')[0]}"
    return [
        Chart(
            name=NAME,
            title=title[:1].upper() + title[1:],
            summary=f"{len(rows)} points of {', '.join(dict.fromkeys(name for name, _, _ in series))}",
            traces=traces,
            layout={
                "xaxis": {"title": {"text": x_label}, **({"type": "category"} if bars_of_words else {})},
                "yaxis": axis(y_label),
                "legend": {"traceorder": "normal"},
                "barmode": "stack" if len(series) > 1 else "group",
            },
            height=HEIGHT,
            table=Table(title, [Column("series", False), Column(x_label), Column(y_label)], rows),
            note="Point at the chart to read it; arrow keys walk along a series. Drag to zoom, double-click to return.",
        )
    ]


def facts(asked: Any) -> dict[str, Any]:
    """What was asked, by name; what has parts of its own is part by part."""
    found = dataclasses.asdict(asked) if dataclasses.is_dataclass(asked) and not isinstance(asked, type) else {}
    parts = {name: value for name, value in found.items() if isinstance(value, dict)}
    plain = {name: value for name, value in found.items() if name not in parts}
    return {
        **plain,
        **{f"{part} {name}": value for part, of in parts.items() for name, value in of.items() if _is_short(value)},
    }


def _is_short(value: Any) -> bool:
    return isinstance(value, str | int | float | bool) or value is None


def _trace(kind: str, name: str, x: list[Any], y: list[Any], colour: str, labels: tuple[str, str]) -> dict[str, Any]:
    told = f"<b>{name}</b><br>{labels[0]} %{{x}}<br>{labels[1]} %{{y:,.4~g}}<extra></extra>"
    shared = {"name": name, "x": x, "y": y, "hovertemplate": told}
    if kind == "bars":
        return {**shared, "type": "bar", "marker": {"color": colour, "line": {"color": "--paper", "width": 1}}}
    line = {"color": colour, "width": 2.5}
    return {
        **shared,
        "type": "scatter",
        "mode": "markers" if kind == "points" else "lines+markers",
        "line": line,
        "marker": {"color": colour, "size": 8},
    }


def _cell(value: Any) -> Cell:
    if isinstance(value, str):
        return Cell(value)
    return Cell("–") if value is None else Cell(f"{value:,.6g}", float(value))


def _size(answer: SizeAnswer) -> _Plot:
    fleets = sorted(answer.fleets, key=lambda fleet: fleet.gamma)
    names = {pool.name: None for fleet in fleets for pool in fleet.pools}

    def counts(name: str) -> list[int]:
        return [sum(pool.replicas for pool in fleet.pools if pool.name == name) for fleet in fleets]

    gammas = [f"{fleet.gamma:g}" for fleet in fleets]
    return "bars", "reach of compression", "replicas", [(name, gammas, counts(name)) for name in names]


def _pareto(answer: ParetoAnswer) -> _Plot:
    rows = [row for row in answer.rows if row.fleet.ttft_ms is not None]
    front = sorted((row for row in rows if row.pareto), key=lambda row: row.fleet.cost.per_year)

    def series(name: str, kept: list[Any]) -> Series:
        return name, [row.fleet.cost.per_year for row in kept], [row.fleet.ttft_ms for row in kept]

    return "front", "USD a year", "TTFT at the percentile, ms", [series("thresholds", rows), series("front", front)]


def _whatif(answer: WhatIfAnswer) -> _Plot:
    kinds = dict.fromkeys(row.replica for row in answer.rows)
    series = [
        (
            kind,
            [row.rate_per_s for row in answer.rows if row.replica == kind],
            [row.fleet.cost.per_year for row in answer.rows if row.replica == kind],
        )
        for kind in kinds
    ]
    return "lines", "requests/s", "USD a year", series


def _simulate(answer: SimulateAnswer) -> _Plot:
    middles = [(each["lo"] + each["hi"]) / 2 for each in answer.histogram]
    return "bars", "TTFT, ms", "requests", [("requests", middles, [each["count"] for each in answer.histogram])]


def _routers(answer: RoutersAnswer) -> _Plot:
    late = [None if row.fleet.ttft_ms is None else row.fleet.ttft_ms.value for row in answer.rows]
    return "bars", "router", "TTFT at the percentile, ms", [("TTFT", [row.router for row in answer.rows], late)]


def _disagg(answer: DisaggAnswer) -> _Plot:
    costs, rates = [row.price_per_year for row in answer.rows], [row.capacity_per_s for row in answer.rows]
    return "lines", "USD a year", "requests/s at most", [("fleets", costs, rates)]


def _flex(answer: FlexAnswer) -> _Plot:
    cuts = [row.cut for row in answer.rows]
    return (
        "lines",
        "share of the power shed",
        "TTFT at the percentile, ms",
        [("TTFT", cuts, [row.ttft_ms for row in answer.rows])],
    )


def _watts(answer: WattAnswer) -> _Plot:
    return (
        "bars",
        "fleet",
        "output tokens per joule",
        [("tokens/J", [row.fleet for row in answer.rows], [row.tokens_per_joule for row in answer.rows])],
    )


def _forecast(answer: ForecastAnswer) -> _Plot:
    numbers = list(range(1, len(answer.rates_per_s) + 1))

    def paid(name: str) -> list[float]:
        return [sum(getattr(kind.quarters[number - 1], name) for kind in answer.kinds) for number in numbers]

    series = [(label, numbers, paid(f"{label}_usd")) for label in ("buy", "own", "rent")]
    return "bars", "quarter", "USD", series


def _plan(answer: PlanAnswer) -> _Plot:
    names = [f"tp{row.tp} on {row.system}" for row in answer.rows]
    return (
        "bars",
        "deployment",
        "USD a year",
        [("cost", names, [row.cost and row.cost.per_year for row in answer.rows])],
    )


_PLOTS: dict[type, Callable[[Any], _Plot]] = {
    SizeAnswer: _size,
    ParetoAnswer: _pareto,
    WhatIfAnswer: _whatif,
    SimulateAnswer: _simulate,
    RoutersAnswer: _routers,
    DisaggAnswer: _disagg,
    FlexAnswer: _flex,
    WattAnswer: _watts,
    ForecastAnswer: _forecast,
    PlanAnswer: _plan,
}
