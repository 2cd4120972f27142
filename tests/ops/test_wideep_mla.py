# SPDX-License-Identifier: Apache-2.0
"""Latent-attention blocks of large expert parallelism: an oracle, and which kernels are accepted."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax._results import InputError, Provenance
from aicjax.ops.mla_roofline import nearest_sharded_heads, sharded_heads
from aicjax.ops.records import WideEpContextMla, WideEpGenerationMla
from aicjax.ops.wideep_mla import wideep_mla_available
from aicjax.tables.rows import Rows
from tests import strategies
from tests.ops import made_up, mla_cases
from tests.ops.mla_cases import ROWS, made_up_database
from tests.ops.test_mla import check, measured, rows
from tests.oracles import latent
from tests.oracles.grid import grid

PREFILL = WideEpContextMla("block", 1.0, 16, "fp8", "fp8_block")
DECODE = WideEpGenerationMla("block", 1.0, 16, "fp8", "fp8_block")


def kernel_rows(kernel: str, *points: tuple) -> Rows:
    return rows(*points, mla_dtype="fp8_block", kernel_source=kernel)


def of_whole_ranks(heads: float) -> float:
    return math.floor(128 / math.floor(128 / heads))


@pytest.mark.parametrize("decode", [False, True], ids=["prefill", "decode"])
@settings(max_examples=5)
@given(strategies.grids(beyond=False), st.data())
def test_blocks_equal_the_oracle(decode, table, data):
    """Rooflines of measured points and of what is held are those of a whole number of ranks."""
    listed = measured(table, decode=decode, kernel_source="flashinfer", mla_dtype="fp8_block")
    if listed is None:
        return
    asked = data.draw(st.lists(st.sampled_from(table.queries().T.astype(int).tolist()), min_size=ROWS, max_size=ROWS))
    op = dataclasses.replace(DECODE if decode else PREFILL, num_heads=int(table.head))
    name = f"wideep_{'generation' if decode else 'context'}_mla_perf"
    with made_up.database(**{name: listed}):
        database = made_up_database()
        outer, inner = zip(*asked, strict=True)
        times = mla_cases.ask(database, [op] * ROWS, *((outer, inner) if decode else (inner, outer)))
    system = database.system
    rates = (1, system.peak("fp8"), system.peak("bfloat16"), system.mem_bw_bytes_per_s)

    def roof(heads, outer, inner):
        heads = of_whole_ranks(heads)
        if decode:
            return latent.large_ep_decode(heads, outer, inner, *rates)
        return latent.large_ep_prefill(heads, outer, 0, inner, *rates)

    axes = () if decode else {1}
    check(times, [grid(table.points, (table.head, *point), roof, sqrt_axes=axes) for point in asked])


@pytest.mark.parametrize("mode", ["SILICON", "HYBRID"])
@pytest.mark.parametrize("op", [PREFILL, DECODE], ids=["prefill", "decode"])
def test_other_kernels_are_refused_where_tables_answer(mode, op):
    op = dataclasses.replace(op, kernel="trtllm_mla")
    listed = kernel_rows("trtllm_mla", (16, 64, 1, 2.0))
    tables = {"wideep_context_mla_perf": listed, "wideep_generation_mla_perf": listed}
    with made_up.database(**tables), pytest.raises(InputError, match="one of flashinfer, fa3"):
        mla_cases.ask(made_up_database(mode=mode), [op], 1, 64)


def test_availability_is_that_of_accepted_kernels():
    other = dataclasses.replace(PREFILL, kernel="trtllm_mla")
    listed = made_up.rows(
        num_heads=[16, 16], batch_size=[1, 1], isl=[64, 64], latency=[1.0, 2.0], mla_dtype=["fp8_block"] * 2,
        kv_cache_dtype=["fp8"] * 2, kernel_source=["flashinfer", "trtllm_mla"],
    )  # fmt: skip
    with made_up.database(wideep_context_mla_perf=listed):
        found = [
            wideep_mla_available(made_up_database(mode=m), op)
            for m in ("HYBRID", "EMPIRICAL")
            for op in (PREFILL, other)
        ]
        missing = wideep_mla_available(made_up_database(), DECODE)
    assert found == [True, False, True, True] and not missing


@pytest.mark.parametrize("op", [PREFILL, DECODE], ids=["prefill", "decode"])
def test_another_kernel_answers_for_one_that_was_not_measured(op):
    listed = kernel_rows("trtllm_mla", (16, 64, 1, 2.0))
    tables = {"wideep_context_mla_perf": listed, "wideep_generation_mla_perf": listed}
    with made_up.database(**tables):
        times, others = (
            mla_cases.ask(made_up_database(), [dataclasses.replace(op, kv_quant=kv)], 1, 64) for kv in ("fp8", "int8")
        )
    assert times.latency_ms == pytest.approx([2.0], rel=mla_cases.TOLERANCE)
    assert others.provenance.tolist() == [Provenance.MISSING]


def test_the_preferred_kernel_answers_where_it_is_one_of_these():
    listed = made_up.rows(
        num_heads=[16, 16], batch_size=[1, 1], isl=[64, 64], latency=[1.0, 2.0], mla_dtype=["fp8_block"] * 2,
        kv_cache_dtype=["fp8"] * 2, kernel_source=["flashinfer", "fa3"],
    )  # fmt: skip
    with made_up.database(wideep_context_mla_perf=listed):
        found = [
            mla_cases.ask(made_up_database(attention_backend=kernel), [PREFILL], 1, 64).latency_ms
            for kernel in (None, "fa3", "triton")
        ]
    assert np.concatenate(found) == pytest.approx([1.0, 2.0, 1.0], rel=mla_cases.TOLERANCE)


def test_without_a_table_other_kernels_are_missing():
    with made_up.database():
        times = mla_cases.ask(made_up_database(), [dataclasses.replace(PREFILL, kernel="trtllm_mla")], 1, 64)
    assert times.provenance.tolist() == [Provenance.MISSING]


def test_estimates_take_any_kernel_and_know_the_prefix():
    """On a measured length a prefix saves what the roofline says, which counts more than the triangle."""
    op = dataclasses.replace(PREFILL, kernel="trtllm_mla")
    listed = kernel_rows("trtllm_mla", (16, 4096, 1, 2.0), (16, 8192, 1, 5.0))
    with made_up.database(wideep_context_mla_perf=listed):
        times = mla_cases.ask(made_up_database(mode="EMPIRICAL"), [op] * 2, 1, [4096, 1024], [0, 3072])
    assert times.provenance.tolist() == [Provenance.EMPIRICAL] * 2
    ratio = times.sol_ms[1] / times.sol_ms[0]
    assert times.latency_ms == pytest.approx([2.0, 2.0 * ratio], rel=mla_cases.TOLERANCE)
    assert 0 < ratio < 1 and not np.isclose(ratio, 1 - (3072 / 4096) ** 2)


@pytest.mark.parametrize(("heads", "below", "nearest"), [(16, 16, 16), (3, 3, 2), (48, 64, 42), (96, 128, 128)])
def test_heads_are_those_of_a_whole_number_of_ranks(heads, below, nearest):
    assert sharded_heads(heads, xp=np) == below == of_whole_ranks(heads)
    assert nearest_sharded_heads(heads, xp=np) == nearest
