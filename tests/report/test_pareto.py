# SPDX-License-Identifier: Apache-2.0
"""The text plot: size, axes, and points in the cells where they belong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.report.pareto import Curve, plot

POSITIVE = st.floats(1e-3, 1e6)


def _plot(curves: list[Curve], width: int = 60, height: int = 10, **more: float) -> list[str]:
    return plot(curves, width=width, height=height, x_label="x", y_label="y", **more)


def test_nothing_to_draw_gives_no_lines():
    assert _plot([Curve("empty", "e", np.array([]), np.array([]))]) == []


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=20), st.integers(40, 160), st.integers(4, 30))
def test_plot_fits_and_shows_every_curve(points: list[tuple[float, float]], width: int, height: int):
    x, y = np.array(points).T
    lines = _plot([Curve("front", "#", x, y)], width, height)
    assert len(lines) == height + 4
    assert max(map(len, lines)) <= width
    assert any("#" in line for line in lines[1 : height + 1])


def test_corner_points_are_in_the_corners():
    lines = _plot([Curve("front", "#", np.array([0.0, 100.0]), np.array([100.0, 0.0]), joined=False)])
    top, bottom = lines[1], lines[10]
    assert top.startswith("100 ┤#")
    assert bottom.rstrip().endswith("#")
    assert len(bottom) == 60


def test_a_front_has_one_mark_per_column():
    lines = _plot([Curve("front", "#", np.linspace(0, 100, 5), np.linspace(100, 0, 5))])
    columns = [{i for i, char in enumerate(line) if char == "#"} for line in lines[1:11]]
    assert sum(map(len, columns)) == len(set.union(*columns)) == 55


def test_later_curves_are_on_top():
    point = np.array([50.0])
    lines = _plot([Curve("a", "a", point, point, False), Curve("b", "b", point, point, False)])
    body = "".join(lines[1:11])
    assert "b" in body
    assert "a" not in body


@pytest.mark.parametrize(("target", "shown"), [(50.0, True), (1000.0, False)])
def test_target_line_is_drawn_inside_the_axes(target: float, shown: bool):
    lines = _plot([Curve("front", "#", np.array([100.0]), np.array([1.0]))], x_target=target)
    assert any("┊" in line for line in lines) is shown
