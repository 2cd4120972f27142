# SPDX-License-Identifier: Apache-2.0
"""Token-driven operators of a pass: which share a row, which count each reads, and equality with single queries."""

import dataclasses
import functools

import jax
import numpy as np

from aicjax._results import Provenance
from aicjax.compat import DEFAULT
from aicjax.constants import load_constants, traced
from aicjax.hardware import load_system
from aicjax.ops.database import Database, reading
from aicjax.ops.query import operator_latency
from aicjax.ops.records import P2P, AllReduce, Elementwise, Embedding, Gemm, Nccl
from aicjax.ops.roofline import hardware_arrays
from aicjax.ops.tokens import bind_tokens, distinct, token_times

SYSTEM = load_system("h200_sxm")
WHERE = ("trtllm", "1.3.0rc20")
SAME = 1e-6  # one formula in two compiled programs
OPS = [
    Embedding("embedding", 1.0, 32000, 4096),
    Gemm("qkv_gemm", 32.0, 6144, 4096, "fp8"),
    Gemm("odd_gemm", 32.0, 6000, 4100, "fp8"),
    Gemm("split_gemm", 32.0, 6144, 4096, "fp8", seq_split=4),
    Gemm("logits_gemm", 1.0, 6144, 4096, "fp8"),
    AllReduce("reduce", 64.0, 4096, 8),
    AllReduce("missing", 64.0, 4096, 3),
    Nccl("gather", 1.0, "all_gather", 4096.0, 4),
    Elementwise("norm", 64.0, 16384.0, token_divisor=2),
    P2P("hand-over", 1.0, 4096, 2, seq_split=4),
]
TOKENS = np.array([1, 7, 100, 4096, 50000], np.int32)
LAST = np.array([1, 2, 3, 1, 8], np.int32)
CONSTANTS = traced(load_constants("trtllm").op)
kernels = {mode: jax.jit(functools.partial(token_times, roofline=mode == "SOL")) for mode in ("SILICON", "SOL")}


def test_rows_equal_single_queries_at_their_own_count():
    rows, place = bind_tokens(Database(SYSTEM, *WHERE, **reading(DEFAULT)), OPS)
    for mode, kernel in kernels.items():
        latency, code = kernel(rows, TOKENS, LAST, hardware_arrays(SYSTEM), CONSTANTS)
        for op in OPS:
            counts = LAST if op.name == "logits_gemm" else TOKENS
            alone = operator_latency(
                SYSTEM, *WHERE, [dataclasses.replace(op, scale=1.0)] * len(counts), tokens=counts, mode=mode
            )
            row = place[distinct(op)]
            np.testing.assert_allclose(latency[row], alone.latency_ms, rtol=SAME)
            assert code[row].tolist() == alone.provenance.tolist()


def test_operators_that_differ_in_name_or_scale_alone_share_a_row():
    twin = dataclasses.replace(OPS[1], name="other_gemm", scale=2.0)
    _, place = bind_tokens(Database(SYSTEM, *WHERE), [*OPS, twin, *OPS])
    assert len(place) == len(OPS)
    assert distinct(twin) == distinct(OPS[1])


def test_vocabulary_projection_is_a_row_of_its_own():
    """The same shape as another product, on the last tokens alone."""
    assert distinct(OPS[4]) != distinct(OPS[1])
    _, place = bind_tokens(Database(SYSTEM, *WHERE), OPS)
    assert place[distinct(OPS[4])] != place[distinct(OPS[1])]


def test_rooflines_need_no_tables():
    rows, _ = bind_tokens(Database(dataclasses.replace(SYSTEM, name="nowhere"), *WHERE, "SOL"), OPS)
    latency, code = kernels["SOL"](rows, TOKENS, LAST, hardware_arrays(SYSTEM), CONSTANTS)
    assert np.isfinite(np.asarray(latency)).all()
    assert (np.asarray(code) == Provenance.SOL).all()
