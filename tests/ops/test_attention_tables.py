# SPDX-License-Identifier: Apache-2.0
"""Attention tables from made-up rows: lanes, slices, first rows, heads of their own, the clamp of decode points."""

import numpy as np
import pytest

from aicjax._results import MissingPeak
from aicjax.interp.axis import PAD_KNOT
from aicjax.ops.attention import bind_attention, slice_key
from aicjax.ops.attention_tables import (
    AttentionTable,
    SliceKey,
    bind_attention_slice,
    decode_fmha,
    load_attention,
    most_leaves,
)
from aicjax.ops.database import Database
from aicjax.ops.records import ContextAttention, EncoderAttention, GenerationAttention
from aicjax.tables.rows import Rows
from tests.ops import made_up
from tests.oracles import rooflines

KEY = SliceKey("bfloat16", "fp8", 0, 128, 0)


def prefill_rows(*rows: tuple) -> Rows:
    """Rows `(lane, heads, kv_heads, length, batch, latency)` of one format, head size and window."""
    lane, heads, kv_heads, length, batch, latency = zip(*rows, strict=True)
    count = len(rows)
    return made_up.rows(
        kernel_source=lane,
        attn_dtype=["bfloat16"] * count,
        kv_cache_dtype=["fp8"] * count,
        num_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=[128] * count,
        window_size=[0] * count,
        isl=length,
        batch_size=batch,
        latency=latency,
    )


def prefill_table(*rows: tuple) -> AttentionTable:
    with made_up.database(context_attention_perf=prefill_rows(*rows)):
        table = load_attention(made_up.system(), *made_up.WHERE, True, "context")
    assert table is not None
    return table


def test_first_row_of_a_point_counts_in_each_lane():
    table = prefill_table(("b", 8, 8, 64, 1, 1.0), ("b", 8, 8, 64, 1, 9.0), ("a", 8, 8, 64, 1, 2.0))
    assert table.lanes == ("b", "a")
    assert table.latency_ms.tolist() == [1.0, 2.0]
    assert [table.slices[at] for at in table.slice_of] == [("b", KEY), ("a", KEY)]


def test_lanes_are_walked_in_the_given_order_then_as_first_met():
    other = SliceKey("bfloat16", "fp8", 2, 128, 0)
    table = prefill_table(
        ("z", 8, 8, 64, 1, 1.0), ("y", 8, 2, 64, 1, 2.0), (None, 8, 8, 64, 1, 3.0), ("a", 8, 2, 64, 1, 4.0)
    )

    def lane(order: list[str], key: SliceKey) -> str | None:
        index = table.find(order, key)
        return None if index is None else table.slices[index][0]

    assert lane(["default"], KEY) == "default", "an empty kernel name is the default lane"
    assert lane(["a", "default"], KEY) == "default", "a lane without the slice is passed over"
    assert lane(["nonsense"], KEY) == "z", "the others as they were first met"
    assert lane([], other) == "y"
    assert lane(["a"], other) == "a"
    assert lane([], SliceKey("bfloat16", "bfloat16", 0, 128, 0)) is None


def test_as_many_key_heads_as_query_heads_share_one_slice():
    table = prefill_table(("a", 8, 8, 64, 1, 1.0), ("a", 16, 16, 64, 1, 2.0), ("a", 16, 8, 64, 1, 3.0))
    index = table.find([], KEY)
    assert index is not None
    assert table.heads[table.slice_of == index].tolist() == [8, 16]
    assert slice_key(ContextAttention("x", 1.0, 16, 16, 128, "fp8", "bfloat16")) == KEY
    assert slice_key(ContextAttention("x", 1.0, 16, 8, 128, "fp8", "bfloat16")).kv_heads == 8
    assert slice_key(GenerationAttention("x", 1.0, 16, 8, 64, "fp8", window=128)) == SliceKey("", "fp8", 8, 64, 128)
    assert slice_key(EncoderAttention("x", 1.0, 16, 72)) == SliceKey("bfloat16", "", 0, 72, 0)


def test_knots_are_padded_beyond_every_coordinate():
    table = prefill_table(*[("a", 8, 8, 2**at, 3, 1.0) for at in range(17)])
    assert table.outer_knots[:17].tolist() == [2.0**at for at in range(17)]
    assert table.outer_knots.size == 32
    assert (table.outer_knots[17:] == PAD_KNOT).all()
    assert table.inner_knots[0] == 3
    assert most_leaves(table) % 512 == 0


def decode_rows(latency: float, kv: str = "bfloat16") -> Rows:
    return made_up.rows(
        kernel_source=["a"], kv_cache_dtype=[kv], num_heads=[8], num_key_value_heads=[2], head_dim=[128],
        window_size=[0], isl=[1023], step=[1], batch_size=[4], latency=[latency],
    )  # fmt: skip


@pytest.mark.parametrize("kv", ["bfloat16", "fp8"])
def test_decode_points_are_raised_to_their_roofline_at_the_cached_length(kv):
    """The length of a decode point is its prompt and the tokens generated since."""
    system = made_up.system()
    with made_up.database(generation_attention_perf=decode_rows(1e-9, kv)):
        table = load_attention(system, *made_up.WHERE, True, "generation")
    assert table is not None and table.inner.tolist() == [1024]
    slice_ = bind_attention_slice(system, table, 0, 8, most_leaves(table))
    peak, size = (system.peak("fp8"), 1) if kv == "fp8" else (system.peak("bfloat16"), 2)
    sol = rooflines.decode_attention(4, 1024, 8, 2, 128, 0, size, peak, system.mem_bw_bytes_per_s)
    assert np.nanmax(slice_.latency_ms) == pytest.approx(sol, rel=1e-6)
    assert slice_.leaf_utilization[0] == pytest.approx(1.0, rel=1e-6)


def test_prefill_points_below_their_roofline_stay_as_measured():
    system = made_up.system()
    table = prefill_table(("a", 8, 8, 4096, 1, 1e-6))
    slice_ = bind_attention_slice(system, table, 0, 8, most_leaves(table))
    assert np.nanmax(slice_.latency_ms) == np.float32(1e-6)
    assert slice_.leaf_utilization[0] > 1


@pytest.mark.parametrize(
    ("kv", "sm_version", "form"), [("fp8", 90, "fp8"), ("fp8", 89, "fp8"), ("fp8", 80, "bfloat16"),
                                   ("fp8", None, "bfloat16"), ("int8", 90, "bfloat16")],
)  # fmt: skip
def test_decode_multiplies_in_fp8_where_hardware_and_cache_do(kv, sm_version, form):
    assert decode_fmha(made_up.system(sm_version=sm_version), kv) == form


def test_peak_is_asked_for_before_any_table():
    system = made_up.system(peak_flops={"bfloat16": 1e15})
    op = ContextAttention("attention", 1.0, 8, 8, 128, "fp8", "fp8")
    with made_up.database(), pytest.raises(MissingPeak, match="no peak for fp8"):
        bind_attention(Database(system, *made_up.WHERE), "context", [op], [], rows=1)
