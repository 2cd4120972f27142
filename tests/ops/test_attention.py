# SPDX-License-Identifier: Apache-2.0
"""Attention on measured tables: any shape at any coordinate against an oracle of the whole operator."""

import functools

import equinox as eqx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import Provenance
from aicjax.constants import load_constants
from aicjax.hardware import load_system
from aicjax.ops.attention import slice_key
from aicjax.ops.attention_tables import AttentionTable, SliceKey, load_attention
from aicjax.ops.query import OpTimes, operator_latency
from aicjax.ops.records import AttentionOp, ContextAttention, EncoderAttention, GenerationAttention
from tests.oracles import grid, operators

SYSTEM = load_system("h200_sxm")
WHERE = ("trtllm", "1.3.0rc20")
LANES = ("default",)
ROWS = 16  # queries of one call: one compiled program a phase
# float32 against float64; the weights of a hold are differences of nearly equal distances
TOLERANCES = {Provenance.HELD: 1e-4}
BLEND = 1e-5
ROUNDING = 3e-6  # float32 rounding, where an inequality is exact in real numbers
CONSTANTS = load_constants("trtllm").op
EXTRA_FACTOR = CONSTANTS.context_attention_extra_factor


@functools.cache
def table(phase: str) -> AttentionTable:
    loaded = load_attention(SYSTEM, *WHERE, True, phase)
    assert loaded is not None
    return loaded


def measured(phase: str, key: SliceKey) -> grid.Table:
    """Points of the slice that answers for `key`."""
    index = table(phase).find(LANES, key)
    mine = table(phase).slice_of == index
    points = zip(*(x[mine].tolist() for x in (table(phase).heads, table(phase).outer, table(phase).inner)), strict=True)
    return dict(zip(points, table(phase).latency_ms[mine].tolist(), strict=True))


def keys(phase: str) -> list[SliceKey]:
    return sorted({key for _, key in table(phase).slices}, key=repr)


log_counts = st.integers(0, 17).flatmap(lambda e: st.integers(2**e, 2 ** (e + 1)))
heads = st.sampled_from([1, 2, 3, 5, 8, 12, 16, 24, 32, 40, 64, 96, 128, 200])


def coordinates(phase: str, draw: st.DrawFn, op: AttentionOp) -> tuple[int, int]:
    """Batch and length, measured ones (of any shape) now and then."""
    one = table(phase)
    knots = [[int(x) for x in axis if x < 1e9] for axis in (one.outer_knots, one.inner_knots)]
    outer, inner = (draw(st.one_of(st.sampled_from(axis), log_counts)) for axis in knots)
    batch, length = (outer, inner) if phase == "generation" else (inner, outer)
    return min(batch, 2**13), length


@st.composite
def context_queries(draw) -> tuple[ContextAttention, int, int, int]:
    key, own, cp = draw(st.sampled_from(keys("context"))), draw(heads), draw(st.sampled_from([1, 1, 2, 8]))
    op = ContextAttention(
        "attention", 1.0, own, key.kv_heads or own, key.head_size, key.kv, key.fmha, key.window,
        draw(st.booleans()), cp, draw(st.sampled_from([1.0, 1.3])),
    )  # fmt: skip
    batch, length = coordinates("context", draw, op)
    prefix = draw(st.sampled_from([0, 0, length // 2, length - 1]))
    return op, batch, length - prefix, prefix


@st.composite
def generation_queries(draw) -> tuple[GenerationAttention, int, int]:
    key, own = draw(st.sampled_from(keys("generation"))), draw(heads)
    imbalance = draw(st.sampled_from([1.0, 1.2]))
    op = GenerationAttention("attention", 1.0, own, key.kv_heads or own, key.head_size, key.kv, key.window, imbalance)
    return op, *coordinates("generation", draw, op)


@st.composite
def encoder_queries(draw) -> tuple[EncoderAttention, int, int]:
    key = draw(st.sampled_from(keys("encoder")))
    rotary = draw(st.sampled_from([0.0, 0.5]))
    op = EncoderAttention("attention", 1.0, draw(heads), key.head_size, key.fmha, rotary)
    return op, *coordinates("encoder", draw, op)


def ask(queries: list[tuple], extra_factor: float = EXTRA_FACTOR) -> OpTimes:
    ops, batch, length, *cached = zip(*queries, strict=True)
    points = {"batch": batch, "length": length, "prefix": cached[0] if cached else 0}
    constants = eqx.tree_at(lambda c: c.context_attention_extra_factor, CONSTANTS, extra_factor)
    return operator_latency(SYSTEM, *WHERE, ops, **points, lanes=LANES, constants=constants)


def check(times: OpTimes, answers: list[grid.Answer]) -> None:
    for latency, code, (want, how) in zip(times.latency_ms, times.provenance, answers, strict=True):
        assert code == how
        assert latency == pytest.approx(want, rel=TOLERANCES.get(how, BLEND), nan_ok=True)


def several(queries: st.SearchStrategy[tuple]) -> st.SearchStrategy[list[tuple]]:
    return st.lists(queries, min_size=ROWS, max_size=ROWS)


@settings(max_examples=4)
@given(several(context_queries()))
def test_prefill_equals_the_oracle(queries):
    answers = [
        operators.context_attention(measured("context", slice_key(op)), op, batch, new, prefix, SYSTEM, EXTRA_FACTOR)
        for op, batch, new, prefix in queries
    ]
    check(ask(queries), answers)


@settings(max_examples=3)
@given(several(generation_queries()))
def test_decode_equals_the_oracle(queries):
    answers = [
        operators.generation_attention(measured("generation", slice_key(op)), op, batch, length, SYSTEM)
        for op, batch, length in queries
    ]
    check(ask(queries), answers)


@settings(max_examples=4)
@given(several(encoder_queries()))
def test_encoder_equals_the_oracle(queries):
    answers = [
        operators.encoder_attention(measured("encoder", slice_key(op)), op, batch, length, SYSTEM, EXTRA_FACTOR)
        for op, batch, length in queries
    ]
    check(ask(queries), answers)


@settings(max_examples=10)
@given(several(generation_queries()))
def test_decode_without_a_window_is_never_below_its_roofline(queries):
    """Its table is clamped and its roofline convex. A mean over lengths may lie a truncation below the middle one."""
    times = ask(queries)
    for (op, _, length), latency, sol in zip(queries, times.latency_ms, times.sol_ms, strict=True):
        shortfall = 1 / max(length, 1)  # each of the five lengths is cut to an integer
        assert op.window or latency >= sol * (1 - shortfall - ROUNDING)


@settings(max_examples=10)
@given(several(encoder_queries()))
def test_answers_beyond_the_measured_range_are_flagged(queries):
    times = ask(queries)
    assert np.isfinite(times.latency_ms).all() and (times.latency_ms > 0).all()
    for (op, batch, length), code in zip(queries, times.provenance, strict=True):
        points = np.array(list(measured("encoder", slice_key(op))))
        query = (op.num_heads, length, batch)
        outside = (query < points.min(0)).any() or (query > points.max(0)).any()
        assert not outside or code == Provenance.HELD


def test_measured_prefill_comes_back_with_its_extras():
    """On a measured point what is left after the memory-bound extras is the measurement."""
    key = SliceKey("bfloat16", "bfloat16", 8, 128, 0)
    points = list(measured("context", key).items())[::97][:ROWS]
    queries = [
        (ContextAttention("attention", 1.0, int(h), 8, 128, "bfloat16", "bfloat16"), int(b), int(s), 0)
        for (h, s, b), _ in points
    ]
    times, move = ask(queries), operators.traffic(SYSTEM)
    assert set(times.provenance.tolist()) == {Provenance.EXACT}
    for ((h, *_), latency), total in zip(points, times.latency_ms, strict=True):
        extras = EXTRA_FACTOR * 2 * (move(2 * 128 * (h + 8)) + move(2 * 128 * 8))
        assert total - extras == pytest.approx(latency, rel=BLEND, abs=BLEND * extras)


@pytest.mark.parametrize(("kv", "fmha"), [("bfloat16", "bfloat16"), ("fp8", "bfloat16"), ("fp8", "fp8")])
def test_extras_move_the_bytes_of_one_token(kv, fmha):
    """Weighed so much that they are nearly all: with and without norm; the cache is written in the products' format."""
    much = 1e6 * EXTRA_FACTOR
    ops = [ContextAttention("attention", 1.0, 128, 128, 128, kv, fmha, qk_norm=norm) for norm in (False, True)]
    times = ask([(op, 1, 512, 0) for op in ops] * 8, much)
    for op, latency in zip(ops, times.latency_ms, strict=False):
        want, _ = operators.context_attention(measured("context", slice_key(op)), op, 1, 512, 0, SYSTEM, much)
        assert latency == pytest.approx(want, rel=BLEND)


def test_cached_prefix_takes_its_share_of_the_triangle_off():
    """A prefix p of f tokens saves (p / f)^2 of the table's part; the extras cancel in differences."""
    op = ContextAttention("attention", 1.0, 32, 8, 128, "bfloat16", "bfloat16")
    cached = [0, 1024, 2048, 3072, 4095]
    whole, *others, last = ask([(op, 2, 4096 - p, p) for p in cached] * 3 + [(op, 2, 4096, 0)]).latency_ms[:5]
    for prefix, latency in zip(cached[1:-1], others, strict=True):
        assert whole - latency == pytest.approx((whole - last) * (prefix / 4095) ** 2, rel=1e-3)


def test_seq_imbalance_scales_the_whole_operator():
    plain = ContextAttention("attention", 1.0, 32, 8, 128, "bfloat16", "bfloat16", qk_norm=True)
    uneven = ContextAttention("attention", 1.0, 32, 8, 128, "bfloat16", "bfloat16", qk_norm=True, seq_imbalance=1.5)
    times = ask([(plain, 4, 1000, 24), (uneven, 4, 1000, 24)] * 8)
    assert times.latency_ms[1] == pytest.approx(1.5 * times.latency_ms[0], rel=BLEND)
