# SPDX-License-Identifier: Apache-2.0
"""Replicas with encode workers: the triple loop that defines their counts, and rate matching by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.constants import load_constants
from aicjax.serving.disagg import ReplicaLimits, WorkerCounts, Workers, disagg_estimate, match_workers
from aicjax.serving.encoder import Encoders
from tests.oracles import encode_pool as oracle

CONSTANTS = load_constants("sglang", "reference").disagg
SHARES = CONSTANTS.prefill_degradation, CONSTANTS.decode_degradation, CONSTANTS.encoder_degradation
SIDE = st.tuples(st.floats(0.5, 50).map(lambda rate: round(rate, 3)), st.sampled_from([1, 2, 4]))


def encoders(rate: float, gpus: int, latency_ms: float = 0.0) -> Encoders:
    return Encoders(np.array(rate), np.array(gpus), np.array(latency_ms))


@given(
    st.lists(SIDE, min_size=1, max_size=3),
    st.lists(SIDE, min_size=1, max_size=3),
    SIDE,
    st.sets(st.integers(1, 30), min_size=1),
    st.integers(1, 6),
)
def test_counts_are_those_of_the_triple_loop(prefill, decode, encode, sizes, most):
    pools = [Workers(np.array([r for r, _ in side]), np.array([g for _, g in side])) for side in (prefill, decode)]
    limits = ReplicaLimits(tuple(sizes), most, most, most)
    counts = match_workers(pools[0], pools[1], limits, CONSTANTS, encoders(*encode))
    for i, p in enumerate(prefill):
        for j, d in enumerate(decode):
            sides = [oracle.Side(rate, gpus, s) for (rate, gpus), s in zip((p, d, encode), SHARES, strict=True)]
            expected = oracle.counts(sides[0], sides[1], sides[2], sizes, most)
            assert (counts.prefill[i, j], counts.decode[i, j], counts.encode[i, j]) == expected


def test_encode_workers_wait_cap_and_cost():
    prefill, decode = Workers(np.array([10.0]), np.array([2])), Workers(np.array([20.0]), np.array([4]))
    counts = WorkerCounts(np.array([3]), np.array([2]), np.array([2]))
    got = disagg_estimate(
        prefill, decode, counts, np.array([100.0]), np.array([10.0]), 11, CONSTANTS, encoders(7.0, 1, 30.0)
    )
    assert got.seq_per_s == pytest.approx(7.0 * 2 * CONSTANTS.encoder_degradation)
    assert got.tokens_per_s == pytest.approx(11 * got.seq_per_s)
    assert got.gpus == 3 * 2 + 2 * 4 + 2 * 1
    assert got.ttft_ms == pytest.approx((100.0 + 30.0) * CONSTANTS.ttft_correction)
    assert got.request_latency_ms == pytest.approx(got.ttft_ms + 100.0)
