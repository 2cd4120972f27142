# SPDX-License-Identifier: Apache-2.0
"""Levels of a user's measurements: factors on the times of closed loops, and what follows for their rates."""

import dataclasses

import jax
import numpy as np
import pytest

from aicjax.constants import load_constants, traced
from aicjax.serving.closed_loop import ClosedLoop, LoopTimes, LoopWork, closed_loop_estimate
from aicjax.serving.closed_loop_disagg import DisaggLoopWork, disagg_loop_estimate

OSL, CONCURRENCY = 100.0, 16.0
NEUTRAL = load_constants("trtllm", "reference").loop
LEVELS = dataclasses.replace(NEUTRAL, ttft_level=1.5, tpot_level=0.8)


def _agg(loop: ClosedLoop, numbers):
    return closed_loop_estimate(loop, LoopWork(OSL), LoopTimes(10.0, 20.0, 25.0, 22.0), numbers)


def _disagg(loop: ClosedLoop, numbers):
    return disagg_loop_estimate(loop, DisaggLoopWork(OSL), 25.0, lambda batch: 10.0 + 0.1 * batch, numbers)


@pytest.mark.parametrize("formula", [_agg, _disagg])
@pytest.mark.parametrize("waves", [10.0, np.inf])
def test_levels_are_factors_and_rates_follow(formula, waves: float):
    loop = ClosedLoop(np.float32(CONCURRENCY), np.float32(waves), np.float32(0.8))
    plain, moved = (jax.device_get(jax.jit(formula)(loop, traced(numbers))) for numbers in (NEUTRAL, LEVELS))
    assert moved.ttft_ms == pytest.approx(1.5 * plain.ttft_ms, rel=1e-5)
    assert moved.tpot_ms == pytest.approx(0.8 * plain.tpot_ms, rel=1e-5)
    latency_ms = moved.ttft_ms + (OSL - 1) * moved.tpot_ms
    assert moved.request_latency_ms == pytest.approx(latency_ms, rel=1e-5)
    idle_ms = 1e3 * CONCURRENCY / plain.seq_per_s - plain.request_latency_ms
    assert moved.seq_per_s == pytest.approx(1e3 * CONCURRENCY / (latency_ms + idle_ms), rel=1e-4)
