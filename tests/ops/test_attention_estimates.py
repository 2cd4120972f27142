# SPDX-License-Identifier: Apache-2.0
"""Estimates of attention: stored answers, and which slice lends to which on made-up tables."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from aicjax._results import Provenance
from aicjax.constants import load_constants
from aicjax.ops.attention_estimate import find_lender
from aicjax.ops.attention_tables import AttentionTable, SliceKey, load_attention
from aicjax.ops.database import KINDS
from aicjax.ops.query import operator_latency
from aicjax.ops.records import ContextAttention, GenerationAttention
from aicjax.tables.rows import Rows
from tests.ops import made_up
from tests.ops.stored_estimates import TOLERANCE, check
from tests.oracles import rooflines

KEY = SliceKey("fp8", "fp8", 8, 96, 0)


@pytest.mark.parametrize("name", ["context_attention", "generation_attention", "encoder_attention"])
def test_estimates_agree_with_stored_answers(name: str):
    check(name)


def context_rows(slices: Sequence[tuple[str, int, int]]) -> Rows:
    """Prefill rows of one point in each slice `(lane, head size, window)`, in this order."""
    lanes, sizes, windows = zip(*slices, strict=True)
    count = len(slices)
    numbers = {"num_heads": 32, "num_key_value_heads": 8, "isl": 64, "batch_size": 1, "latency": 1.0}
    columns = {name: [value] * count for name, value in numbers.items()}
    formats = {"attn_dtype": ["fp8"] * count, "kv_cache_dtype": ["fp8"] * count, "kernel_source": lanes}
    return made_up.rows(**formats, **columns, head_dim=sizes, window_size=windows)


def table(*slices: tuple[str, int, int]) -> AttentionTable:
    with made_up.database(context_attention_perf=context_rows(slices)):
        loaded = load_attention(made_up.system(), *made_up.WHERE, True, "context")
    assert loaded is not None
    return loaded


def lender(slices: list[tuple[str, int, int]], key: SliceKey = KEY, lanes=("first",), transfers=KINDS):
    """Lane, head size and window of the lender, and how near it is."""
    measured = table(*slices)
    found = find_lender(measured, lanes, key, transfers)
    if found is None:
        return None
    lane, other = measured.slices[found[0]]
    return lane, other.head_size, other.window, found[1]


def test_own_slice_lends_before_another_head_size():
    assert lender([("first", 128, 0), ("last", 96, 0)]) == ("last", 96, 0, Provenance.EMPIRICAL)


def test_usual_head_size_lends_before_the_nearest():
    assert lender([("first", 64, 0), ("first", 80, 0), ("first", 128, 0)]) == ("first", 128, 0, Provenance.XSHAPE)
    assert lender([("first", 64, 0), ("first", 80, 0), ("first", 256, 0)]) == ("first", 80, 0, Provenance.XSHAPE)


def test_of_equally_near_head_sizes_the_smaller_lends():
    key = replace(KEY, head_size=64)
    assert lender([("first", 256, 0), ("first", 16, 0)], key) == ("first", 16, 0, Provenance.XSHAPE)


def test_another_head_size_at_the_same_window_lends_before_the_own_one_without():
    key = replace(KEY, window=512)
    slices = [("first", 96, 0), ("last", 128, 512)]
    assert lender(slices, key) == ("last", 128, 512, Provenance.XSHAPE)
    assert lender(slices, key, transfers=()) == ("first", 96, 0, Provenance.EMPIRICAL)


def test_lane_whose_lending_head_size_lacks_the_window_is_passed_over():
    key = replace(KEY, window=512)
    slices = [("first", 128, 0), ("first", 64, 512), ("last", 256, 512)]
    assert lender(slices, key) == ("last", 256, 512, Provenance.XSHAPE)


def test_lanes_beyond_the_order_lend_by_name():
    slices = [("zeta", 128, 0), ("alpha", 128, 0)]
    assert lender(slices) == ("alpha", 128, 0, Provenance.XSHAPE)
    assert lender(slices, lanes=("zeta",)) == ("zeta", 128, 0, Provenance.XSHAPE)


@pytest.mark.parametrize(
    "key",
    [replace(KEY, fmha="bfloat16"), replace(KEY, kv="bfloat16"), replace(KEY, kv_heads=0), replace(KEY, kv_heads=4)],
)
def test_formats_and_kv_heads_never_lend(key: SliceKey):
    assert lender([("first", 96, 0), ("first", 128, 0)], key) is None


def test_nothing_lends_between_head_sizes_where_it_may_not():
    others = tuple(kind for kind in KINDS if kind != "xshape")
    assert lender([("first", 128, 0)], transfers=others) is None


def test_prefill_is_scaled_by_the_efficiency_of_its_head_size():
    """Utilisation lent by heads of 128, on the measured point: the roofline's share, and the sizes' efficiency."""
    system, constants = made_up.system(), load_constants("trtllm").op
    known = constants.context_head_size_efficiency
    rows = context_rows([("default", 128, 0)])
    sizes = (64, 90, 192, 1024)
    ops = [ContextAttention("attention", 1.0, 32, 8, size, "fp8", "fp8") for size in sizes]
    with made_up.database(context_attention_perf=rows):
        times = operator_latency(system, *made_up.WHERE, ops, mode="HYBRID", batch=1, length=64, lanes=("default",))
    between = math.log2(90 / 64) / math.log2(128 / 64)
    efficiency = [known[64], known[64] + (known[128] - known[64]) * between, known[192], known[512]]
    for size, latency, share in zip(sizes, times.latency_ms, efficiency, strict=True):
        extra = operator_extra(system, size, constants.context_attention_extra_factor)
        want = prefill_roof(system, size) / (prefill_roof(system, 128) / 1.0 * share) + extra
        assert latency == pytest.approx(want, rel=TOLERANCE)
    assert set(times.provenance.tolist()) == {Provenance.XSHAPE}


def prefill_roof(system, head_size: int) -> float:
    rates = (system.peak("fp8"), system.mem_bw_bytes_per_s)
    return rooflines.prefill_attention(1, 64, 0, 32, 8, head_size, 0, 1, *rates)


def operator_extra(system, head_size: int, factor: float) -> float:
    """Rotary embedding and cache write of one call, as traffic of one token."""
    queries, keys = 32 * head_size, 8 * head_size

    rates = (system.mem_bw_bytes_per_s, system.mem_bw_scaling, system.mem_latency_s)
    moved = 2 * rooflines.traffic_ms(2 * (queries + keys), *rates) + 2 * rooflines.traffic_ms(keys, *rates)
    return factor * moved


def test_decode_is_not_scaled_between_head_sizes():
    system = made_up.system()
    numbers = {"num_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "isl": 1, "batch_size": 4, "window_size": 0}
    columns = {name: [value] for name, value in numbers.items()}
    rows = made_up.rows(kv_cache_dtype=["fp8"], kernel_source=["default"], step=[255], latency=[2.0], **columns)
    ops = [GenerationAttention("attention", 1.0, 32, 8, 256, "fp8")]
    with made_up.database(generation_attention_perf=rows):
        times = operator_latency(system, *made_up.WHERE, ops, mode="EMPIRICAL", batch=4, length=256, lanes=("default",))
    rates = (system.peak("fp8"), system.mem_bw_bytes_per_s)
    own, lent = (rooflines.decode_attention(4, 256, 32, 8, size, 0, 1, *rates) for size in (256, 128))
    assert times.latency_ms[0] == pytest.approx(2.0 * own / lent, rel=TOLERANCE)
    assert times.provenance.tolist() == [Provenance.XSHAPE]
