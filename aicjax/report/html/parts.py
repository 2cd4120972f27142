# SPDX-License-Identifier: Apache-2.0
"""What a page consists of, as plain records: the template makes HTML of them, the page's script draws the charts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Tone = Literal["good", "fair", "bad", "plain"]


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        title: Its header, with the unit.
        number: Whether its cells are numbers, set to the right.
    """

    title: str
    number: bool = True


class Cell(NamedTuple):
    """One cell of a table.

    Attributes:
        text: What is shown.
        order: What the table is sorted by; the text where it is None.
        swatch: A colour of the palette to show before the text.
    """

    text: str
    order: float | None = None
    swatch: str | None = None


@dataclass(frozen=True)
class Table:
    """A table that can be sorted by every column.

    Attributes:
        caption: What it shows.
        columns: Its columns; cells of the first one head their rows.
        rows: Its rows, as many cells as there are columns.
        marked: Position of the row that stands out.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    marked: int | None = None
    kind: str = field(default="table", init=False)


@dataclass(frozen=True)
class Chart:
    """A chart, in words, as a figure of plotly, and as a table.

    Attributes:
        name: Its identifier in the page.
        title: Its title.
        summary: What it shows, in a sentence, for those who do not see it.
        traces: Traces of plotly; a colour is a name of the palette, such as `--series-1`.
        layout: Layout of plotly, without what all charts share.
        height: Height [px].
        table: The same as a table.
        note: How to read it.
    """

    name: str
    title: str
    summary: str
    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    height: int
    table: Table
    note: str = ""
    kind: str = field(default="chart", init=False)


@dataclass(frozen=True)
class Tile:
    """One figure of the answer.

    Attributes:
        label: What it is.
        value: Its value.
        unit: Its unit.
        scale: Where its range, its prediction and its limit lie on a line from 0 to 1; None without a range.
        note: Its range and its limit in words.
        tone: How well it keeps its limit.
    """

    label: str
    value: str
    unit: str
    scale: "Scale | None" = None
    note: str = ""
    tone: Tone = "plain"


class Scale(NamedTuple):
    """Places on a line, 0 to 1; `limit` is None where there is none."""

    low: float
    predicted: float
    high: float
    limit: float | None


@dataclass(frozen=True)
class Facts:
    """Names and values, in two columns."""

    title: str
    pairs: Sequence[tuple[str, str]]
    kind: str = field(default="facts", init=False)


@dataclass(frozen=True)
class Text:
    """Paragraphs."""

    lines: Sequence[str]
    kind: str = field(default="text", init=False)


@dataclass(frozen=True)
class Command:
    """Something to run, with a button that copies it."""

    label: str
    text: str
    kind: str = field(default="command", init=False)


@dataclass(frozen=True)
class Folded:
    """Parts behind a line that unfolds them."""

    title: str
    parts: Sequence["Part"]
    kind: str = field(default="folded", init=False)


Part = Table | Chart | Facts | Text | Command | Folded


@dataclass(frozen=True)
class Panel:
    """One section of a page.

    Attributes:
        name: Its identifier, for links to it.
        title: Its title.
        parts: What is in it.
        short: Its name in the list of sections.
        paired: Whether charts stand side by side where there is room.
    """

    name: str
    title: str
    parts: Sequence[Part]
    short: str = ""
    paired: bool = False


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: Its title, in the window too.
        kicker: What was asked, above the title.
        lead: What is under the title.
        tone: Whether the answer keeps its limits.
        tiles: Figures of the answer.
        reasons: Headed lists of sentences: why, how sure, what next.
        commands: What to run.
        panels: Its sections.
        saved: What the button of the page saves as `manifest.json`; None without.
        picture: Name of the chart that stands for the page.
    """

    title: str
    kicker: str
    lead: Sequence[str]
    tone: Tone
    tiles: Sequence[Tile]
    reasons: Sequence[tuple[str, Sequence[str]]]
    commands: Sequence[Command]
    panels: Sequence[Panel]
    saved: Mapping[str, Any] | None = None
    picture: str | None = None

    @property
    def charts(self) -> list[Chart]:
        """All charts, in order."""
        return [chart for panel in self.panels for chart in _charts(panel.parts)]


def _charts(parts: Sequence[Part]) -> list[Chart]:
    found: list[Chart] = []
    for part in parts:
        if isinstance(part, Chart):
            found.append(part)
        elif isinstance(part, Folded):
            found += _charts(part.parts)
    return found


def number(value: float | None, form: str = ",.2f") -> Cell:
    """A cell with a number in a format, or a dash."""
    return Cell("–", None) if value is None else Cell(format(value, form), float(value))
