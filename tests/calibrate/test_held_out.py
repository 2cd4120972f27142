# SPDX-License-Identifier: Apache-2.0
"""Points left out of lines: closed forms against the same line without the point, and against hand-made answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import PchipInterpolator

from aicjax.calibrate.held_out import RULES, between, held_ends, neighbours, straight_ends
from aicjax.interp.curve import last_slope
from tests import strategies
from tests.oracles import curves as oracle

EXACT = 1e-12  # relative, float64 against float64
LINES, KNOTS = 3, 8


def left_out(rule: str, knots, latency_ms, sol_ms) -> np.ndarray:
    near = neighbours(np.isfinite(latency_ms))
    return between(RULES[rule], np.asarray(knots, float), latency_ms, sol_ms, near)


@st.composite
def lines(draw) -> tuple[np.ndarray, np.ndarray]:
    """Knots and latency [line, knot] with holes."""
    latency = draw(strategies.latencies(LINES, KNOTS))
    kept = np.array(draw(st.lists(st.booleans(), min_size=latency.size, max_size=latency.size)))
    return draw(strategies.knots(KNOTS, 4096)), np.where(kept.reshape(latency.shape), latency, np.nan)


def others(knots, latency_ms, at: int) -> dict[float, float]:
    """A line without one point."""
    return {x: y for x, y in zip(knots.tolist(), latency_ms.tolist(), strict=True) if np.isfinite(y) and x != knots[at]}


def test_errors_of_a_hand_made_line():
    knots, latency = np.array([1.0, 2.0, 4.0, 8.0]), np.array([[1.0, 4.0, 3.0, np.nan]])
    sol = np.array([[0.5, 1.0, 2.0, 4.0]])
    expected = {
        "latency": 1 + 2 / 3,  # a third of the way from 1 to 3
        "sqrt_latency": (1 + (np.sqrt(3) - 1) / 3) ** 2,
        "utilization": 1.0 / (0.5 + (2 / 3 - 0.5) / 3),
        "log_utilization": 1.0 / np.sqrt(0.5 * 2 / 3),  # half way in the logarithm of tokens
        "log_latency": np.sqrt(3.0),
        "tiles": 3.0,  # all within one tile
    }
    for rule, value in expected.items():
        predicted = left_out(rule, knots, latency, sol)[0]
        assert predicted[1] == pytest.approx(value, rel=EXACT), rule
        assert np.isnan(predicted[[0, 2]]).all()


@settings(max_examples=30)
@given(lines())
def test_every_point_equals_the_line_without_it(table):
    knots, latency = table
    predicted = left_out("latency", knots, latency, np.ones_like(latency))
    for line, at in np.argwhere(np.isfinite(latency)):
        want = oracle.between(others(knots, latency[line], at), float(knots[at]))
        got = predicted[line, at]
        assert np.isnan(got) if want is None else got == pytest.approx(want[0], rel=EXACT)


@settings(max_examples=30)
@given(lines(), strategies.roofs())
@pytest.mark.parametrize("tail", [1, 3])
def test_ends_keep_the_utilisation_of_the_rest(tail, table, roof):
    knots, latency = table
    sol = 1 + knots / roof.mem_bw * 1e9
    predicted = held_ends(latency, np.broadcast_to(sol, latency.shape), tail)
    for line, measured in enumerate(np.isfinite(latency)):
        ends = np.flatnonzero(measured)[[0, -1]] if measured.sum() > 1 else []
        assert set(np.flatnonzero(np.isfinite(predicted[line]))) == set(ends)
        for at in ends:
            rest = others(knots, latency[line], at)
            near = sorted(rest, reverse=bool(at == ends[-1]))[:tail]
            utilization = np.median([sol[knots.tolist().index(x)] / rest[x] for x in near])
            assert predicted[line, at] == pytest.approx(sol[at] / utilization, rel=EXACT)


@settings(max_examples=30)
@given(lines(), st.booleans())
def test_straight_ends_follow_the_line_of_the_rest(table, bounded):
    knots, latency = table
    sol = np.broadcast_to(knots**0.5, latency.shape)
    predicted = straight_ends(knots, latency, sol if bounded else None)
    for line, measured in enumerate(np.isfinite(latency)):
        at = np.flatnonzero(measured)
        if at.size < 3:
            assert np.isnan(predicted[line]).all()
            continue
        rest, last = at[:-1], at[-1]
        slope = last_slope(knots[rest], latency[line, rest])
        slope = max(slope, last_slope(knots[rest], sol[line, rest])) if bounded else slope
        want = latency[line, rest[-1]] + slope * (knots[last] - knots[rest[-1]])
        assert predicted[line, last] == pytest.approx(want, rel=EXACT)
        assert np.isnan(np.delete(predicted[line], last)).all()


@settings(max_examples=20)
@given(strategies.knots(KNOTS, 4096), strategies.latencies(1, KNOTS))
def test_monotone_cubic_equals_another_implementation(knots, latency):
    predicted = left_out("pchip", knots, latency, np.ones_like(latency))[0]
    for at in range(2, KNOTS - 2):  # at the ends slopes are chosen in another way
        if at < 3 or at > KNOTS - 4:
            continue
        rest = np.delete(np.arange(KNOTS), at)
        cubic = PchipInterpolator(np.log(knots[rest]), np.log(latency[0, rest]))
        assert predicted[at] == pytest.approx(np.exp(float(cubic(np.log(knots[at])))), rel=1e-9)
