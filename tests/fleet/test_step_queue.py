# SPDX-License-Identifier: Apache-2.0
"""The step-level simulation equals a plain one, loses nothing, and always ends."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import InputError
from aicjax.fleet.step_queue import simulate_steps
from aicjax.fleet.step_run import RequestState, StepLimits, StepLoad, conserved
from tests.fleet.step_cases import FLEETS, REQUESTS, both, fleets, horizons_s, lengths, tables

TIME_TOLERANCE = {"rtol": 2e-6, "atol": 2e-6}  # float32: rounding of step times, each 6e-8 of itself


@pytest.mark.parametrize("jumps", [True, False])
@settings(max_examples=60)
@given(cases=fleets, seed=st.integers(0, 10**6), overlaps=st.booleans(), horizon_s=horizons_s, load=st.floats(0, 0.2))
def test_equals_the_plain_simulation(jumps, cases, seed, overlaps, horizon_s, load):
    rng = np.random.default_rng(seed)
    times, (isl, osl) = tables(rng, overlaps=overlaps), lengths(rng)
    gaps_s = rng.exponential(load, isl.shape).astype(np.float32)
    run, requests, limits, plain = both(times, cases, isl, osl, gaps_s, horizon_s, jumps=jumps)
    for fleet, expected in enumerate(plain):
        for field, value in {
            "state": [r.state for r in expected.requests],
            "output_tokens": [r.made for r in expected.requests],
            "preemptions": [r.preemptions for r in expected.requests],
            "steps": expected.steps,
            "prompt_tokens": expected.prompt_tokens,
            "kv_peak_blocks": expected.peak,
        }.items():
            np.testing.assert_array_equal(getattr(run, field)[fleet], value, field)
        arrival = np.array([r.arrival for r in expected.requests])
        for field, value in {
            "arrival_s": arrival,
            "ttft_s": np.array([r.first for r in expected.requests]) - arrival,
            "latency_s": np.array([r.end for r in expected.requests]) - arrival,
            "duration_s": expected.now,
            "busy_s": expected.busy,
        }.items():
            np.testing.assert_allclose(getattr(run, field)[fleet], value, err_msg=field, **TIME_TOLERANCE)
    for field, holds in conserved(run, requests, limits)._asdict().items():
        assert holds.all(), field
