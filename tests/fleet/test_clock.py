# SPDX-License-Identifier: Apache-2.0
"""Clocks in float32 against float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.fleet.clock import Clock, arrival_clocks, clock_at, later, seconds, since_s

ULP_S = 2.0**-24  # rounding of a part of a second


def _real(clock: Clock) -> np.ndarray:
    return np.asarray(clock.whole, float) + np.asarray(clock.part, float)


def test_a_million_steps_add_up():
    """A sum in float32 alone is off by hours of 1e5 s; this is off by the rounding of one addition."""
    step_s = np.float32(0.1003)
    end, _ = jax.lax.scan(
        lambda clock, _: (later(clock, jnp.asarray(step_s)), None), clock_at(jnp.float32(0)), length=10**6
    )
    assert abs(_real(end) - 1e6 * float(step_s)) < 2 * ULP_S
    assert 0 <= float(end.part) <= 1


def test_differences_are_exact_far_from_the_beginning():
    start = later(clock_at(jnp.float32(10**7)), jnp.float32(0.25))
    assert float(since_s(later(start, jnp.float32(0.0625)), start)) == 0.0625
    assert float(since_s(start, later(start, jnp.float32(2.5)))) == -2.5
    assert float(seconds(start)) == 10**7


@pytest.mark.parametrize("scale_s", [1e-3, 1.0, 1e3])
def test_arrivals_are_sums_of_gaps(scale_s: float):
    gaps_s = np.random.default_rng(1).exponential(scale_s, (3, 5000)).astype(np.float32)
    arrivals = arrival_clocks(jnp.asarray(gaps_s))
    expected = np.cumsum(gaps_s.astype(float), axis=1)
    np.testing.assert_allclose(_real(arrivals), expected, rtol=0, atol=2 * ULP_S)
    assert ((np.asarray(arrivals.part) >= 0) & (np.asarray(arrivals.part) <= 1)).all()
