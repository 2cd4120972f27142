# SPDX-License-Identifier: Apache-2.0
"""Plots of answers about fleets as HTML pages; needs plotly."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aicjax._results import InputError
from aicjax.fleet.answer_parts import ParetoAnswer, SizeAnswer, WhatIfAnswer
from aicjax.fleet.forecast_answers import ForecastAnswer
from aicjax.fleet.phase_answers import DisaggAnswer, FlexAnswer, WattAnswer
from aicjax.fleet.plan_answers import PlanAnswer
from aicjax.fleet.run_answers import RoutersAnswer, SimulateAnswer
from aicjax.report.fleet_view import question

Series = tuple[str, list[Any], list[Any]]  # name, x, y
_Plot = tuple[str, str, str, list[Series]]  # kind, x label, y label, series


def write(answer: Any, path: Path) -> None:
    """Writes a page with the plot of an answer.

    Raises:
        InputError: There is no plot of this kind of answer.
    """
    if type(answer) not in _PLOTS:
        raise InputError("plot", str(path), "left out when compat = fleet-reference")
    import plotly.graph_objects as figures

    kind, x_label, y_label, series = _PLOTS[type(answer)](answer)
    figure = figures.Figure()
    for name, x, y in series:
        if kind == "bars":
            figure.add_bar(name=name, x=x, y=y)
        else:
            figure.add_scatter(name=name, x=x, y=y, mode="lines+markers")
    title = question(answer.asked)
    figure.update_layout(title=title, xaxis_title=x_label, yaxis_title=y_label, template="plotly_white")
    figure.write_html(path, include_plotlyjs=True)


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

    return "lines", "USD a year", "TTFT at the percentile, ms", [series("thresholds", rows), series("front", front)]


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
