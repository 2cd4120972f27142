# SPDX-License-Identifier: Apache-2.0
"""The main chart of a page as a picture; needs kaleido and an installed Chrome or Chromium."""

import importlib.util
from typing import Any

from aicjax.report.html import palette
from aicjax.report.html.parts import Chart, Page

WIDTH, HEIGHT, SCALE = 1280, 720, 2
FONT = "Helvetica, Arial, sans-serif"


def lacking() -> str | None:
    """What a picture needs and is not there, as what must be done; None where nothing lacks."""
    if importlib.util.find_spec("kaleido") is None or importlib.util.find_spec("plotly") is None:
        return "a page or text (.html, .txt), or kaleido installed: pip install 'aicjax[report]'"
    from choreographer.browsers.chromium import Chromium

    if Chromium.find_browser(skip_local=False) is None:
        return (
            "a page or text (.html, .txt), or Chrome installed: apt-get install chromium, kaleido_get_chrome, "
            "or its path in BROWSER_PATH"
        )
    return None


def png(page: Page) -> bytes:
    """The chart that stands for a page, under its title, in light colours."""
    import kaleido

    chart = next((each for each in page.charts if each.name == page.picture), None)
    figure = drawn(page, chart or (page.charts[0] if page.charts else None))
    size = {"format": "png", "width": WIDTH, "height": HEIGHT, "scale": SCALE}
    return kaleido.calc_fig_sync(figure, opts=size, kopts={"mathjax": False})  # which it would load from elsewhere


def drawn(page: Page, chart: Chart | None) -> dict[str, Any]:
    """The figure of a picture; the title alone where a page has no chart."""
    axis = {"gridcolor": "--grid", "linecolor": "--edge", "zerolinecolor": "--edge", "automargin": True}
    of_chart = dict(chart.layout) if chart is not None else {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
    layout: dict[str, Any] = {
        **of_chart,
        "title": {
            "text": f"<b>{escaped(page.title)}</b><br><span style='font-size:14px'>{escaped(page.kicker)}</span>",
            "x": 0.02,
            "y": 0.97,
            "yanchor": "top",
            "font": {"size": 24, "color": "--text"},
        },
        "font": {"family": FONT, "size": 14, "color": "--text"},
        "paper_bgcolor": "--paper",
        "plot_bgcolor": "--paper",
        "margin": {"l": 70, "r": 30, "t": 140, "b": 60},
        "legend": {"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
    }
    for name in [key for key in of_chart if key.startswith(("xaxis", "yaxis"))]:
        layout[name] = {**axis, **of_chart[name]}
    traces = [] if chart is None else [_without_columns(trace) for trace in chart.traces]
    return palette.resolved({"data": traces, "layout": layout}, palette.colours()["light"])


def escaped(text: str) -> str:
    """Text in which plotly finds no markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _without_columns(trace: Any) -> dict[str, Any]:
    return {name: value for name, value in trace.items() if name not in ("columns", "hovertemplate")}
