# SPDX-License-Identifier: Apache-2.0
"""Prefill workers beside decode pools: the loop over options and counts that defines the choice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.constants import load_constants
from aicjax.serving.afd_prefill import DecodePools, PrefillLimits, PrefillWorkers, match_prefill

CONSTANTS = load_constants("trtllm", "reference").disagg
OPTIONS = st.lists(
    st.tuples(st.floats(0.1, 20), st.sampled_from([1, 2, 4, 8]), st.floats(10, 2000)), min_size=1, max_size=5
)
POOLS = st.lists(st.tuples(st.floats(0.5, 60), st.sampled_from([16, 24]), st.floats(100, 9000)), min_size=1, max_size=4)


def best_by_loop(pool, options, limits: PrefillLimits):
    """Option, count and rate of the highest score; None where none is within the limits."""
    best_key, best = None, None
    decode = pool[0] * CONSTANTS.pool_degradation
    for at, (rate, gpus, ttft) in enumerate(options):
        rate, ttft = rate * CONSTANTS.prefill_degradation, ttft * CONSTANTS.ttft_correction
        if ttft > limits.ttft_ms:
            continue
        if limits.request_latency_ms is not None and ttft + pool[2] > limits.request_latency_ms:
            continue
        most = min(max(1, int(np.ceil(decode / rate))), (limits.gpus - pool[1]) // gpus)
        most = min(most, limits.prefill_workers or most, (limits.prefill_gpus or most * gpus) // gpus)
        for count in range(1, most + 1):
            total = pool[1] + count * gpus
            sustained = min(decode, count * rate)
            key = (sustained / total, -total, -count * gpus, -ttft)
            if best_key is None or key > best_key:
                best_key, best = key, (at, count, sustained)
    return best


@given(POOLS, OPTIONS, st.sampled_from([None, 1, 3]), st.sampled_from([None, 4, 8]), st.sampled_from([None, 4000.0]))
def test_choice_is_that_of_the_loop(pools, options, workers, prefill_gpus, request_latency):
    limits = PrefillLimits(32, prefill_gpus, workers, 2500.0, request_latency)
    rates, sizes, times = (np.array(values) for values in zip(*pools, strict=True))
    prefill = PrefillWorkers(*(np.array(values) for values in zip(*options, strict=True)))
    got = match_prefill(DecodePools(rates, sizes, times), prefill, limits, CONSTANTS)
    for row, pool in enumerate(pools):
        wanted = best_by_loop(pool, options, limits)
        if wanted is None:
            assert got.option[row] == -1
            continue
        assert (got.option[row], got.workers[row]) == wanted[:2]
        assert got.seq_per_s[row] == pytest.approx(wanted[2])


def test_prefill_that_cannot_keep_up_holds_the_pools_back():
    pools = DecodePools(np.array([50.0]), np.array([16]), np.array([1000.0]))
    prefill = PrefillWorkers(np.array([2.0]), np.array([1]), np.array([100.0]))
    got = match_prefill(pools, prefill, PrefillLimits(20, None, None, 1000.0, None), CONSTANTS)
    assert got.workers[0] == 4
    assert got.seq_per_s[0] == pytest.approx(4 * 2.0 * CONSTANTS.prefill_degradation)
