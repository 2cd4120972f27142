# SPDX-License-Identifier: Apache-2.0
"""Attention of a vision encoder as a kind of operator: the answers of its module, whatever the prefix."""

import equinox as eqx
import jax
import numpy as np
import pytest

from aicjax.constants import load_constants, traced
from aicjax.hardware import load_system
from aicjax.interp.grid import answer
from aicjax.ops.database import Database
from aicjax.ops.encoder import (
    ask_encoder_attention,
    bind_encoder_attention,
    encoder_attention_sol,
    encoder_available,
)
from aicjax.ops.query import operator_latency
from aicjax.ops.records import EncoderAttention
from aicjax.ops.roofline import hardware_arrays

DATABASE = Database(load_system("h200_sxm"), "trtllm", "1.3.0rc20")
OPS = [EncoderAttention("attention", 1.0, 16, 72), EncoderAttention("attention", 1.0, 5, 80, partial_rotary_factor=0.5)]
BATCH, LENGTH = np.array([1, 3, 40], np.int32), np.array([64, 1000, 300_000], np.int32)


@eqx.filter_jit
def _times(rows, batch, length, prefix, hardware, constants):
    question = ask_encoder_attention(rows, batch, length, prefix, hardware, constants)
    return answer([question])[0], encoder_attention_sol(rows, batch, length, prefix, hardware, constants)


@pytest.mark.parametrize("prefix", [0, 77])
def test_points_that_all_operators_share_are_answered_as_single_queries(prefix):
    rows = bind_encoder_attention(DATABASE, OPS, rows=len(OPS))
    constants = traced(load_constants(DATABASE.backend).op)
    times = _times(rows, BATCH, LENGTH, np.full(3, prefix, np.int32), hardware_arrays(DATABASE.system), constants)
    (latency, code), sol = jax.device_get(times)
    for row, op in enumerate(OPS):
        single = operator_latency(
            DATABASE.system, DATABASE.backend, DATABASE.version, [op] * 3, batch=BATCH, length=LENGTH
        )
        np.testing.assert_allclose(latency[row], single.latency_ms, rtol=1e-6)
        np.testing.assert_allclose(sol[row], single.sol_ms, rtol=1e-6)
        assert code[row].tolist() == single.provenance.tolist()


def test_availability_follows_format_and_head_size():
    sizes = [encoder_available(DATABASE, EncoderAttention("attention", 1.0, 16, size)) for size in (64, 72, 80, 96)]
    assert sizes == [True, True, True, False]
    assert not encoder_available(DATABASE, EncoderAttention("attention", 1.0, 16, 72, "fp8"))
