# SPDX-License-Identifier: Apache-2.0
"""What charts share: columns of frames as plain values, axes, bars and labels."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicjax.explore.frame import Frame

DIGITS = 3  # after the point, as result frames are rounded
_SIZE = re.compile(r"([a-z]+)(\d+)")
_LAYOUT = re.compile(r"\btp\d+(?:[a-z]+\d+)+")
ROW_HEIGHT = 24  # of one bar [px]
AXIS_HEIGHT = 84  # of an axis with its title, and a legend [px]


def plain(values: Any) -> list[Any]:
    """A column as Python values: numbers rounded, those that are absent None."""
    column = np.asarray(values)
    if column.dtype.kind != "f":
        return column.tolist()
    rounded = np.round(column.astype(float), DIGITS).astype(object)
    rounded[~np.isfinite(column)] = None
    return rounded.tolist()


def labelled(values: Any) -> dict[str, list[Any]]:
    """A column of texts, each text once and where it stands."""
    labels, at = np.unique(np.asarray(values), return_inverse=True)
    return {"labels": labels.tolist(), "at": at.ravel().tolist()}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis from zero with a title."""
    return {"title": {"text": title}, "rangemode": "tozero", **more}


def bars_height(rows: int) -> int:
    """Height of a chart of horizontal bars [px]."""
    return ROW_HEIGHT * rows + AXIS_HEIGHT


def bar(name: str, y: Sequence[str], x: Sequence[Any], colour: str, told: str, **more: Any) -> dict[str, Any]:
    """Horizontal bars of one series; `told` is what is shown of a bar."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": list(x),
        "y": list(y),
        "marker": {"color": colour, "line": {"color": "--paper", "width": 1}},
        "hovertemplate": f"{told}<extra></extra>",
        **more,
    }


def layouts(frame: Frame, column: str) -> dict[str, list[Any]]:
    """A column of layouts in short: `tp4pp1dp1etp1ep1` as `tp4`."""
    found = labelled(frame[column])
    return {**found, "labels": [short_layout(label) for label in found["labels"]]}


def short_layouts(text: str) -> str:
    """A text with the layouts in it in short."""
    return _LAYOUT.sub(lambda found: short_layout(found.group()), text)


def short_layout(label: str) -> str:
    """A layout without what is not split."""
    sizes = [(axis, size) for axis, size in _SIZE.findall(label) if size != "1" or axis == "tp"]
    return " ".join(f"{axis}{size}" for axis, size in sizes) or label
