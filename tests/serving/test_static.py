# SPDX-License-Identifier: Apache-2.0
"""Static batches: stored answers, the sum that sampling stands for, and what draft tokens change."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.serving.load import Load
from aicjax.serving.static import decode_samples, project, static_estimate
from tests.oracles import serving as oracle

REFERENCES = Path(__file__).parents[1] / "references"
EXACT = 1e-12  # relative, float64 against float64


STORED = pq.read_table(REFERENCES / "serving_static.parquet").to_pylist()[::3]


# A decode worker needs a second token: requests for one refuse it, where AIConfigurator answers 0.
@pytest.mark.parametrize("row", [row for row in STORED if row["mode"] != "static_gen" or row["osl"] > 1])
def test_estimates_are_the_stored_ones(row):
    got = static_estimate(
        row["mode"], row["context_latency"], row["generation_latency"], row["global_bs"], row["osl"], row["pp"]
    )
    columns = {
        "ttft": got.ttft_ms,
        "request_latency": got.request_latency_ms,
        "seq/s": got.seq_per_s,
        "tokens/s": got.tokens_per_s,
    }
    if row["osl"] > 1:
        columns |= {"tpot": got.tpot_ms, "tokens/s/user": got.tokens_per_s_per_user}
    for name, value in columns.items():
        assert value == pytest.approx(row[name], rel=EXACT), name


@given(st.integers(1, 5000), st.integers(1, 700), st.integers(1, 80))
def test_sampled_decode_is_the_sum_over_steps(isl, osl, stride):
    def step_ms(kv_len):
        return 3.0 + 0.001 * kv_len

    load = Load(isl, osl)
    kv_len, weights = decode_samples(load, stride)
    assert weights.sum() == osl - 1
    assert np.dot(step_ms(kv_len), weights) == pytest.approx(oracle.decode_ms(step_ms, load, stride), rel=EXACT)


def test_one_output_token_has_no_tpot_and_counts():
    got = static_estimate("static", 100.0, 0.0, 4, 1)
    assert np.isnan(got.tpot_ms)
    assert got.request_latency_ms == got.ttft_ms == 100.0
    assert got.tokens_per_s == got.seq_per_s == 40.0


def test_accepted_drafts_speed_up_decode_only():
    both = static_estimate("static", 100.0, 900.0, 4, 101)
    fast = project(both, "static", 101, 1.8)
    assert fast.ttft_ms == both.ttft_ms
    assert fast.tpot_ms == pytest.approx(both.tpot_ms / 1.8, rel=EXACT)
    assert fast.seq_per_s * fast.request_latency_ms == pytest.approx(
        both.seq_per_s * both.request_latency_ms, rel=EXACT
    )
    decode = project(static_estimate("static_gen", 0.0, 900.0, 4, 101), "static_gen", 101, 1.8)
    assert decode.seq_per_s * decode.request_latency_ms == pytest.approx(4000, rel=EXACT)
    prefill = static_estimate("static_ctx", 100.0, 0.0, 4, 101)
    assert project(prefill, "static_ctx", 101, 1.8) == prefill
