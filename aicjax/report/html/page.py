# SPDX-License-Identifier: Apache-2.0
"""A page as one file of HTML: text, tables, charts, and the library that draws them; nothing else is loaded."""

import base64
import dataclasses
import functools
import gzip
import importlib.util
import json
from pathlib import Path
from typing import Any

import jinja2

from aicjax import __version__, _paths
from aicjax.report.html import palette
from aicjax.report.html.parts import Chart, Page

_LIBRARY = Path("package_data") / "plotly.min.js"


def library() -> Path | None:
    """The file of plotly.js that the Python package brings; None where the package is not installed."""
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / _LIBRARY
    return path if path.is_file() else None


def render(page: Page) -> str:
    """The page as text; the same for the same page."""
    path = library()
    assert path is not None
    return _template().render(
        page=page,
        version=__version__,
        colours=palette.colours(),
        style=_source("page.css"),
        script=_source("page.js"),
        figures=embedded([figure(chart) for chart in page.charts]),
        manifest=None if page.saved is None else embedded(page.saved),
        library=_packed(path),
    )


def figure(chart: Chart) -> dict[str, Any]:
    """What the page's script draws."""
    return {"name": chart.name, "height": chart.height, "data": list(chart.traces), "layout": dict(chart.layout)}


def embedded(value: Any) -> str:
    """A value as JSON that may stand in a script element: nothing in it ends the element, or is not a number."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=_plain)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def _source(name: str) -> str:
    return (_paths.configs_dir() / "report" / name).read_text(encoding="utf-8")


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_paths.configs_dir() / "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")


@functools.cache
def _packed(path: Path) -> str:
    """A file, compressed and as letters; the same for the same file."""
    return base64.b64encode(gzip.compress(path.read_bytes(), 6, mtime=0)).decode("ascii")
