# SPDX-License-Identifier: Apache-2.0
"""Worker counts of disaggregated replicas: the double loop that defines them, and rate matching by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax._results import InputError
from aicjax.constants import load_constants
from aicjax.models import Parallel
from aicjax.serving.backends import load_backend
from aicjax.serving.disagg import ReplicaLimits, WorkerCounts, Workers, disagg_estimate, match_workers
from tests.oracles import serving as oracle

CONSTANTS = load_constants("trtllm", "reference").disagg
RATES = st.floats(0, 50).map(lambda rate: round(rate, 3))
GPUS = st.sampled_from([1, 2, 4, 8, 16])
POOL = st.lists(st.tuples(RATES, GPUS), min_size=1, max_size=5)


def workers(pool) -> Workers:
    return Workers(np.array([rate for rate, _ in pool]), np.array([gpus for _, gpus in pool]))


@given(POOL, POOL, st.sets(st.integers(1, 40), min_size=1), st.integers(1, 12))
def test_counts_are_those_of_the_double_loop(prefill, decode, sizes, most):
    limits = ReplicaLimits(tuple(sizes), most, most)
    counts = match_workers(workers(prefill), workers(decode), limits, CONSTANTS)
    degradation = CONSTANTS.prefill_degradation, CONSTANTS.decode_degradation
    for i, p in enumerate(prefill):
        for j, d in enumerate(decode):
            expected = oracle.worker_counts(p[0], p[1], d[0], d[1], limits.sizes, most, *degradation)
            assert (counts.prefill[i, j], counts.decode[i, j]) == expected


def test_of_equal_scores_the_fewest_workers_win():
    pool = Workers(np.array([10.0]), np.array([1]))
    even = dataclasses.replace(CONSTANTS, prefill_degradation=1.0, decode_degradation=1.0)
    counts = match_workers(pool, pool, ReplicaLimits((2, 4, 8, 16), 32, 32), even)
    assert (counts.prefill[0, 0], counts.decode[0, 0]) == (1, 1)


def test_slower_side_sets_the_rate_and_is_named():
    prefill, decode = (Workers(np.array([rate]), np.array([8])) for rate in (3.391, 19.319))
    counts = WorkerCounts(np.array([4]), np.array([1]), np.array([0]))
    got = disagg_estimate(prefill, decode, counts, np.array([100.0]), np.array([10.0]), 500, CONSTANTS)
    assert got.seq_per_s == pytest.approx(12.2076, abs=1e-4)
    assert got.prefill_bound.all()
    assert got.gpus == 40
    assert got.ttft_ms == pytest.approx(180.0)
    assert got.request_latency_ms == pytest.approx(180.0 + 499 * 10.0)


def test_replicas_stay_within_the_allowed_sizes():
    counts = match_workers(
        Workers(np.array([5.0]), np.array([8])),
        Workers(np.array([9.0]), np.array([2])),
        ReplicaLimits((8, 9), 32, 32),
        CONSTANTS,
    )
    assert counts.prefill.item() == counts.decode.item() == 0


def test_engine_rules():
    assert not load_backend("trtllm").runs(Parallel(tp=2, dp=2, moe_ep=4))
    assert load_backend("sglang").runs(Parallel(tp=2, dp=2, moe_ep=4))
    assert not load_backend("vllm").runs(Parallel(tp=4, moe_tp=2, moe_ep=2))
    with pytest.raises(InputError, match="vllm"):
        load_backend("vlm")


def test_slope_follows_the_slower_side_and_halves_on_a_tie():
    counts = WorkerCounts(np.ones(1, np.int64), np.ones(1, np.int64), np.zeros(1, np.int64))
    even = dataclasses.replace(CONSTANTS, prefill_degradation=1.0, decode_degradation=1.0)

    def rate(prefill, decode):
        one, times_ms = np.ones(1, np.int64), np.ones(1)
        sides = Workers(prefill[None], one), Workers(decode[None], one)
        return disagg_estimate(*sides, counts, times_ms, times_ms, 500, even, xp=jnp).seq_per_s[0]

    with jax.numpy_dtype_promotion("standard"):
        slopes = [jax.grad(rate, (0, 1))(jnp.float32(p), jnp.float32(d)) for p, d in ((2, 3), (3, 2), (2, 2))]
    assert np.array(slopes).tolist() == [[1, 0], [0, 1], [0.5, 0.5]]
