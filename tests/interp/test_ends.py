# SPDX-License-Identifier: Apache-2.0
"""Curves that hold the utilisation of their ends: properties on generated curves, and gradients at the ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax._results import Provenance
from aicjax.interp.ends import NO_CURVE, bind_end_curves, end_latency
from tests.oracles.experts import end_curve

TOLERANCE = 1e-5  # float32 against float64
ROWS, POINTS = 4, 8
kernel = jax.jit(end_latency)


def sol(tokens):
    """A roofline with a floor, as of weights that must be read for any tokens."""
    return np.maximum(0.5, np.asarray(tokens) / 64.0)


latencies = st.just(0.0) | st.floats(0.01, 100)
curves = st.dictionaries(st.integers(1, 2**14), latencies, max_size=6)


@given(
    st.lists(curves, min_size=ROWS, max_size=ROWS), st.lists(st.integers(1, 2**15), min_size=POINTS, max_size=POINTS)
)
def test_curves_equal_the_oracle(points, tokens):
    columns = [(np.array(sorted(curve), float), np.array([curve[t] for t in sorted(curve)])) for curve in points]
    bound = bind_end_curves(columns, [sol(t) for t, _ in columns], rows=ROWS)
    asked = np.broadcast_to(np.array(tokens, np.float32), (ROWS, POINTS))
    latency, code = kernel(bound, asked, sol(asked).astype(np.float32))
    for row, curve in enumerate(points):
        for at, count in enumerate(tokens):
            want, how = end_curve(curve, count, lambda t: float(sol(t)))
            assert code[row, at] == how
            assert float(latency[row, at]) == pytest.approx(want, rel=TOLERANCE, nan_ok=True)


def test_gradient_of_the_roofline_is_one_over_the_utilisation_of_the_end():
    curve = (np.array([8.0, 64.0]), np.array([2.0, 4.0]))
    bound = bind_end_curves([curve, NO_CURVE], [np.array([0.5, 2.0]), np.zeros(0)], rows=2)
    tokens = np.array([[4.0, 8.0, 30.0, 64.0, 128.0]] * 2, np.float32)

    def total(roof):
        latency, code = end_latency(bound, tokens, roof)
        return jnp.sum(jnp.where(code == Provenance.MISSING, 0.0, latency))

    gradient = jax.grad(total)(jnp.ones_like(tokens))
    assert gradient.tolist() == [[4.0, 0.0, 0.0, 0.0, 2.0], [0.0] * 5]


def test_straight_ends_follow_the_steeper_of_their_line_and_the_rooflines():
    steep = (np.array([8.0, 64.0, 128.0]), np.array([1.0, 4.0, 12.0]))
    flat = (np.array([8.0, 64.0, 128.0]), np.array([5.0, 5.0, 5.0]))
    alone = (np.array([64.0]), np.array([4.0]))
    columns = [steep, flat, alone]
    bound = bind_end_curves(columns, [sol(t) for t, _ in columns], rows=3, straight=True)
    tokens = np.array([[4.0, 64.0, 256.0]] * 3, np.float32)
    latency, code = kernel(bound, tokens, sol(tokens).astype(np.float32))
    assert latency[0].tolist() == [1.0, 4.0, 28.0]  # 12 and twice the 8 of the last octave
    assert latency[1].tolist() == [5.0, 5.0, 7.0]  # the roofline rises by 2 in as many tokens
    assert latency[2, 1:].tolist() == [4.0, 16.0]  # at the utilisation of the one point
    assert code[:, 2].tolist() == [Provenance.HELD] * 3
    assert code[2, 0] == Provenance.MISSING
