# SPDX-License-Identifier: Apache-2.0
"""Pareto fronts drawn with characters, for a terminal of any width."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_NICE_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # an axis ticks at one of these times a power of ten
_TICKS = 5


@dataclass(frozen=True)
class Curve:
    """One front, or one point, of a plot.

    Attributes:
        name: What the legend calls it.
        marker: The one character it is drawn with.
        x, y: Coordinates, in any order.
        joined: Whether the columns between two points are filled by interpolation.
    """

    name: str
    marker: str
    x: np.ndarray
    y: np.ndarray
    joined: bool = True


def plot(
    curves: Sequence[Curve], *, width: int, height: int, x_label: str, y_label: str, x_target: float | None = None
) -> list[str]:
    """Lines of text that show the curves; later curves are drawn over earlier ones.

    Both axes begin at zero and end at a round number.

    Args:
        curves: What to draw; curves without points are left out.
        width: Characters of a line, axis labels included.
        height: Lines of the plotting area.
        x_label: Name of the horizontal axis.
        y_label: Name of the vertical axis.
        x_target: Where to draw a vertical line, or None.

    Returns:
        The lines, no longer than `width`; none when there is nothing to draw.
    """
    curves = [curve for curve in curves if len(curve.x)]
    if not curves:
        return []
    x_step, x_max = _axis(max(float(curve.x.max()) for curve in curves))
    y_step, y_max = _axis(max(float(curve.y.max()) for curve in curves))
    y_texts = [f"{tick:g}" for tick in np.arange(0, y_max + y_step / 2, y_step)]
    margin = max(len(text) for text in y_texts)
    columns = max(width - margin - 2, 10)
    canvas = np.full((height, columns), " ", dtype="<U1")
    if x_target is not None and 0 <= x_target <= x_max:
        canvas[:, _cell(x_target, x_max, columns)] = "┊"
    for curve in curves:
        _draw(canvas, curve, x_max, y_max)
    labels = {height - 1 - _cell(float(text), y_max, height): text for text in y_texts}
    rows = [
        f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}{''.join(canvas[row]).rstrip()}"
        for row in range(height)
    ]
    legend = "   ".join(f"{curve.marker} {curve.name}" for curve in curves)
    lines = [
        f"{y_label}     {legend}",
        *rows,
        *_x_axis(x_step, x_max, columns, margin),
        f"{x_label:>{margin + 2 + columns}}",
    ]
    return [line[:width] for line in lines]


def _axis(largest: float) -> tuple[float, float]:
    """Tick step and end of an axis that covers `largest` with at most `_TICKS` round steps."""
    if largest <= 0:
        return 1.0, 1.0
    rough = largest / _TICKS
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(nice * power for nice in _NICE_STEPS if nice * power >= rough * (1 - 1e-12))
    return step, step * float(np.ceil(largest / step - 1e-12))


def _cell(value: float, largest: float, cells: int) -> int:
    return min(int(value / largest * (cells - 1) + 0.5), cells - 1)


def _draw(canvas: np.ndarray, curve: Curve, x_max: float, y_max: float) -> None:
    height, columns = canvas.shape
    order = np.argsort(curve.x, kind="stable")
    x, y = curve.x[order] / x_max * (columns - 1), curve.y[order] / y_max * (height - 1)
    if curve.joined:
        filled = np.arange(int(np.ceil(x[0])), int(np.floor(x[-1])) + 1)
        x, y = np.concatenate([x, filled]), np.concatenate([y, np.interp(filled, x, y)])
    canvas[height - 1 - (y + 0.5).astype(int), (x + 0.5).astype(int)] = curve.marker


def _x_axis(step: float, x_max: float, columns: int, margin: int) -> tuple[str, str]:
    """The axis line with its ticks, and the numbers under them."""
    line, numbers = np.full(columns, "─", dtype="<U1"), [" "] * (columns + margin + 2)
    for tick in np.arange(0, x_max + step / 2, step):
        cell = _cell(tick, x_max, columns)
        line[cell] = "┬"
        text = f"{tick:g}"
        start = min(margin + 2 + cell - len(text) // 2, len(numbers) - len(text))
        numbers[start : start + len(text)] = text
    return f"{'':>{margin}} └{''.join(line)}", "".join(numbers).rstrip()
