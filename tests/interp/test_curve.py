# SPDX-License-Identifier: Apache-2.0
"""Curves of message size and of tokens: properties, and equality with oracles written from the definition."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import Provenance
from aicjax.interp.axis import PAD_KNOT, interval
from aicjax.interp.curve import TokenCurves, bind_token_curves, size_latency, stack_size_curves, token_utilization
from tests import strategies
from tests.oracles import curves as oracle
from tests.oracles import rooflines

TOLERANCE = 1e-5  # float32 against float64: a handful of roundings
ROUNDING = 3e-6  # float32 rounding of one value, where an inequality is exact in real numbers
ROWS, CURVES, TOKENS = 3, 4, strategies.TOKENS
SHAPE = (4096, 512)

size_kernel = jax.jit(size_latency)


@st.composite
def size_curves(draw) -> list[tuple[np.ndarray, np.ndarray]]:
    """Curves of one to six points; the last row always has six."""
    lengths = [draw(st.integers(1, strategies.SIZES)) for _ in range(ROWS - 1)] + [strategies.SIZES]
    return [
        (draw(strategies.knots(strategies.SIZES))[:length], draw(strategies.latencies(strategies.SIZES))[:length])
        for length in lengths
    ]


def answers(curves: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes around the knots of each curve, ascending [row, point], with latency and provenance."""
    sizes = np.stack([np.resize(strategies.around(knots), 2 * strategies.SIZES + 1) for knots, _ in curves])
    stacked = stack_size_curves(curves, ROWS, strategies.SIZES + 2)
    latency, code = size_kernel(stacked, sizes.astype(np.float32))
    return sizes, np.asarray(latency, np.float64), np.asarray(code)


@settings(max_examples=40)
@given(size_curves())
def test_size_curves_equal_the_oracle(curves):
    sizes, latency, code = answers(curves)
    for row, (knots, values) in enumerate(curves):
        curve = dict(zip(knots.tolist(), values.tolist(), strict=True))
        for at, size in enumerate(sizes[row].tolist()):
            want, how = oracle.size_curve(curve, size)
            assert code[row, at] == how
            if how == Provenance.EXACT:
                assert latency[row, at] == want
            assert latency[row, at] == pytest.approx(want, rel=TOLERANCE)


@settings(max_examples=20)
@given(size_curves())
def test_monotone_size_curves_stay_monotone_beyond_their_range(curves):
    rising = [(knots, strategies.monotone(values)) for knots, values in curves]
    _, latency, _ = answers(rising)
    full = latency[-1]
    assert (np.diff(full) >= -ROUNDING * full[1:]).all()


def test_latency_beyond_the_range_is_proportional_to_size():
    curves = stack_size_curves([(np.array([256.0, 1024.0]), np.array([2.0, 3.0]))], 1, 4)
    latency, code = size_kernel(curves, np.array([[64.0, 256.0, 640.0, 1024.0, 4096.0]], np.float32))
    assert latency.tolist() == [[0.5, 2.0, 2.5, 3.0, 12.0]]
    names = [Provenance(c).name for c in code[0].tolist()]
    assert names == ["HELD", "EXACT", "INTERPOLATED", "EXACT", "HELD"]


def test_a_straight_curve_goes_on_along_its_last_octave():
    points = (np.array([64.0, 256.0, 384.0, 512.0]), np.array([9.0, 2.0, 7.0, 3.0]))
    falling = (np.array([256.0, 512.0]), np.array([4.0, 2.0]))
    curves = stack_size_curves([points, falling, (np.array([8.0]), np.array([2.0]))], 3, 4, straight=True)
    latency, code = size_kernel(curves, np.array([[512.0, 1024.0, 32.0], [512.0, 1024.0, 128.0], [8.0, 16.0, 4.0]]))
    assert latency.tolist() == [[3.0, 5.0, 4.5], [2.0, 2.0, 2.0], [2.0, 4.0, 1.0]]  # a point alone: in proportion
    assert (code[:, 1:] == Provenance.HELD).all()


def test_size_zero_empty_curve_and_zero_boundary_have_no_answer():
    empty, free = (np.ones(0), np.ones(0)), (np.array([256.0, 1024.0]), np.array([0.0, 0.0]))
    curves = stack_size_curves([(np.array([256.0]), np.array([2.0])), empty, free], 3, 4)
    latency, code = size_kernel(curves, np.array([[0.0], [256.0], [128.0]], np.float32))
    assert np.isnan(np.asarray(latency)).all()
    assert (np.asarray(code) == Provenance.MISSING).all()


@jax.jit
def token_kernel(curves: TokenCurves, knots, tokens, sol_ms):
    return token_utilization(curves, knots, tokens, interval(knots, tokens), sol_ms)


@st.composite
def token_tables(draw) -> tuple[np.ndarray, np.ndarray]:
    """Knots and latency [curve, knot] with holes; a curve may lack its ends, most of its points or all of them."""
    knots = draw(strategies.knots(TOKENS, 4096))
    latency = draw(strategies.latencies(CURVES, TOKENS))
    measured = np.array(draw(st.lists(st.booleans(), min_size=latency.size, max_size=latency.size)))
    return knots, np.where(measured.reshape(latency.shape), latency, np.nan)


def sol(roof: strategies.Roof, tokens: float) -> float:
    return rooflines.product(tokens, *SHAPE, 2, roof.peak, roof.mem_bw)


def token_answers(knots, latency_ms, roof) -> list[tuple[float, int, float, int]]:
    """`(utilisation, provenance, tokens, curve)` of every curve at all counts around the knots."""
    roofs = np.broadcast_to([sol(roof, m) for m in knots], latency_ms.shape)
    curves = bind_token_curves(knots, latency_ms, roofs, width=TOKENS + 2)
    tokens = np.tile(strategies.around(knots), (CURVES, 1))
    sols = np.array([[sol(roof, m) for m in row] for row in tokens])
    padded = np.append(knots, [PAD_KNOT, PAD_KNOT]).astype(np.float32)
    out = token_kernel(curves, padded, tokens.astype(np.float32), sols.astype(np.float32))
    utilization, code = (np.asarray(x).ravel().tolist() for x in out)
    curve = np.repeat(np.arange(CURVES), tokens.shape[1]).tolist()
    return list(zip(utilization, code, tokens.ravel().tolist(), curve, strict=True))


@settings(max_examples=40)
@given(token_tables(), strategies.roofs())
def test_token_curves_equal_the_oracle(table, roof):
    knots, latency_ms = table
    for utilization, code, tokens, curve in token_answers(knots, latency_ms, roof):
        points = {m: v for m, v in zip(knots.tolist(), latency_ms[curve].tolist(), strict=True) if np.isfinite(v)}
        want, how = oracle.token_curve(points, tokens, lambda m: sol(roof, m))
        if how == Provenance.MISSING:
            assert np.isnan(utilization)
            continue
        assert code == how
        tolerance = ROUNDING if how == Provenance.EXACT else TOLERANCE
        assert utilization == pytest.approx(sol(roof, tokens) / want, rel=tolerance)


@settings(max_examples=20)
@given(token_tables(), strategies.roofs())
def test_clamped_token_curve_is_never_below_its_roofline(table, roof):
    knots, latency_ms = table
    clamped = np.maximum(latency_ms, [sol(roof, m) for m in knots])
    for utilization, _, _, _ in token_answers(knots, clamped, roof):
        assert np.isnan(utilization) or utilization <= 1 + ROUNDING


@pytest.mark.parametrize(
    ("measured", "ends"),
    [
        ({0: 1.0, 1: 2.0, 2: 8.0, 3: 4.0}, (2.0, 4.0)),  # the middle one of three at each end
        ({0: 1.0, 1: 2.0}, (1.5, 1.5)),  # the mean of two
        ({2: 3.0}, (3.0, 3.0)),  # a single point counts at both ends
    ],
)
def test_median_utilisation_of_the_end_holds(measured, ends):
    """Utilisations by knot in the table; the first and last three of a curve decide."""
    knots, roof = 2.0 ** np.arange(1, 9), strategies.Roof(1e12, 1e10)
    latency_ms = np.full((CURVES, TOKENS), np.nan)
    for at, utilization in measured.items():
        latency_ms[0, at] = sol(roof, float(knots[at])) / utilization
    held = [x for x in token_answers(knots, latency_ms, roof) if x[3] == 0 and x[1] == Provenance.HELD]
    assert held[0][0] == pytest.approx(ends[0], rel=TOLERANCE)
    assert held[-1][0] == pytest.approx(ends[1], rel=TOLERANCE)
