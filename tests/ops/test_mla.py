# SPDX-License-Identifier: Apache-2.0
"""Latent attention: made-up tables against an oracle, and which slice of a table answers."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax import quant
from aicjax._results import DataError, MissingPeak, Provenance
from aicjax.ops.mla_tables import find_slice, mla_available, native_bucket
from aicjax.ops.records import ContextMla, GenerationMla, MlaModuleContext, MlaModuleGeneration
from aicjax.tables.rows import Rows
from aicjax.tables.sources import Source
from tests import strategies
from tests.ops import made_up, mla_cases
from tests.ops.mla_cases import HELD, ROWS, TOLERANCE, made_up_database
from tests.oracles import latent

PREFILL = ContextMla("attention", 1.0, 8, "fp8", "bfloat16")
DECODE = GenerationMla("attention", 1.0, 8, "fp8")
PREFILL_BLOCK = MlaModuleContext("block", 1.0, 8, 128, "fp8", "bfloat16", "fp8_block")
DECODE_BLOCK = MlaModuleGeneration("block", 1.0, 8, 128, "fp8", "bfloat16", "bfloat16")
MODES = ("SILICON", "HYBRID", "EMPIRICAL")


def rows(*points: tuple, decode: bool = False, **columns: Any) -> Rows:
    """Rows `(heads, length, batch, latency)`, or `(heads, batch, length, latency)`, of one slice."""
    heads, outer, inner, latency = zip(*points, strict=True)
    batch, length = (outer, inner) if decode else (inner, outer)
    words = {"mla_dtype": "bfloat16", "kv_cache_dtype": "fp8", "kernel_source": "default"} | columns
    texts = {name: [word] * len(points) if isinstance(word, str) else word for name, word in words.items()}
    step = {"step": [1] * len(points)} if decode else {}
    isl = [x - 1 for x in length] if decode else length
    return made_up.rows(num_heads=heads, batch_size=batch, isl=isl, latency=latency, **step, **texts)


def measured(table: strategies.GridTable, decode: bool = False, **columns: Any) -> Rows | None:
    points = [(int(h), int(o), int(i), t) for (h, o, i), t in table.points.items()]
    return rows(*points, decode=decode, **columns) if points else None


def check(times, answers: Sequence[tuple]) -> None:
    for latency, code, (want, how) in zip(times.latency_ms, times.provenance, answers, strict=True):
        assert code == how
        assert latency == pytest.approx(want, rel=HELD if how == Provenance.HELD else TOLERANCE, nan_ok=True)


@pytest.mark.parametrize("mode", MODES[1:])
@settings(max_examples=6)
@given(strategies.grids(), st.data())
def test_prefill_equals_the_oracle(mode, table, data):
    """Any ragged grid, at, between and beyond its points; cached prefixes and chunks of a shared prompt."""
    listed = measured(table)
    if listed is None:
        return
    asked = data.draw(st.lists(st.sampled_from(table.queries().T.astype(int).tolist()), min_size=ROWS, max_size=ROWS))
    batch, prefix = [b for _, b in asked], [(s - 1) * (row % 3) // 3 for row, (s, _) in enumerate(asked)]
    new = [s - p for (s, _), p in zip(asked, prefix, strict=True)]
    ops = [dataclasses.replace(PREFILL, num_heads=int(table.head), cp=1 + row % 2) for row in range(ROWS)]
    with made_up.database(context_mla_perf=listed):
        database = made_up_database(mode=mode)
        times = mla_cases.ask(database, ops, batch, new, prefix)
    rates = (1, database.system.peak("bfloat16"), database.system.mem_bw_bytes_per_s)
    points = zip(batch, new, prefix, [op.cp for op in ops], strict=True)

    def roof(heads, full, prefix, batch):
        return latent.prefill(heads, full, prefix, batch, *rates)

    check(times, [latent.prompt(table.points, table.head, *point, roof, mode) for point in points])


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("op", [DECODE, DECODE_BLOCK], ids=["kernel", "block"])
@settings(max_examples=4)
@given(strategies.grids(), st.data())
def test_decode_equals_the_oracle(mode, op, table, data):
    block = isinstance(op, MlaModuleGeneration)
    columns = {"gemm_type": "bfloat16", "model": "deepseek-ai/DeepSeek-V3"} if block else {}
    listed = measured(table, decode=True, **columns)
    if listed is None:
        return
    asked = data.draw(st.lists(st.sampled_from(table.queries().T.astype(int).tolist()), min_size=ROWS, max_size=ROWS))
    ops = [dataclasses.replace(op, num_heads=int(table.head))] * ROWS
    with made_up.database(**{"mla_generation_module_perf" if block else "generation_mla_perf": listed}):
        database = made_up_database(mode=mode)
        batch, length = zip(*asked, strict=True)
        times = mla_cases.ask(database, ops, batch, length)
    system = database.system
    rates = (1, system.peak("fp8"), system.mem_bw_bytes_per_s, (2, system.peak("bfloat16")) if block else None)

    def roof(heads, batch, length):
        return latent.decode(heads, batch, length, *rates)

    check(times, [latent.step(table.points, table.head, b, s, roof, mode) for b, s in asked])


def test_first_row_of_a_point_counts_whatever_its_kernel():
    listed = rows((8, 64, 1, 2.0), (8, 64, 1, 9.0), kernel_source=["b", "a"])
    with made_up.database(context_mla_perf=listed):
        times = mla_cases.ask(made_up_database(), [PREFILL], 1, 64)
    assert times.latency_ms.tolist() == [2.0]
    assert times.provenance.tolist() == [Provenance.EXACT]


def test_decode_does_not_tell_formats_of_products_apart():
    listed = rows((8, 1, 64, 2.0), (8, 1, 128, 3.0), decode=True, mla_dtype=["fp8", "bfloat16"])
    with made_up.database(generation_mla_perf=listed):
        times = mla_cases.ask(made_up_database(), [DECODE] * 2, 1, [64, 128])
    assert times.latency_ms.tolist() == [2.0, 3.0]


def test_kernels_and_blocks_are_answered_together_as_alone():
    kernel = rows((8, 64, 1, 2.0), (8, 96, 1, 4.0))
    block = rows((8, 65, 2, 5.0), (8, 97, 2, 7.0), gemm_type="fp8_block", model="deepseek-ai/DeepSeek-R1")
    ops = [PREFILL, PREFILL_BLOCK]
    with made_up.database(context_mla_perf=kernel, mla_context_module_perf=block):
        database = made_up_database()
        times = mla_cases.ask(database, ops * 2, [1, 2] * 2, [64, 65, 200, 200])
        alone = [mla_cases.ask(database, [op], b, s) for op, b, s in zip(ops, [1, 2], [200, 200], strict=True)]
    assert times.latency_ms[:2].tolist() == [2.0, 5.0]
    assert times.latency_ms[2:] == pytest.approx([one.latency_ms[0] for one in alone], rel=TOLERANCE)


@pytest.mark.parametrize(
    ("measured_heads", "asked", "bucket"),
    [
        ((96, 128), 128, 128),
        ((96, 128), 64, 96),
        ((96, 128), 112, 96),
        ((96, 128), 200, 128),
        ((128,), 64, 128),
        ((128,), None, 128),
        ((96, 128), None, None),
        ((), 128, None),
    ],
)
def test_blocks_are_those_of_the_nearest_smaller_model(measured_heads, asked, bucket):
    record = dataclasses.replace(PREFILL_BLOCK, native_heads=asked)
    assert native_bucket(list(measured_heads), record) == bucket


def test_models_of_as_many_heads_share_a_slice():
    models = ["deepseek-ai/DeepSeek-V3", "nvidia/DeepSeek-V3.1-NVFP4", "moonshotai/Kimi-K3"]
    listed = rows((8, 64, 1, 2.0), (8, 128, 1, 3.0), (8, 64, 1, 4.0), gemm_type="fp8_block", model=models)
    smaller = dataclasses.replace(PREFILL_BLOCK, native_heads=100)
    with made_up.database(mla_context_module_perf=listed):
        times = mla_cases.ask(made_up_database(), [PREFILL_BLOCK, PREFILL_BLOCK, smaller], 1, [64, 128, 64])
    assert times.latency_ms.tolist() == [2.0, 3.0, 4.0]


def test_blocks_of_an_unknown_model_are_refused():
    listed = rows((8, 64, 1, 2.0), gemm_type="fp8_block", model="someone/Else")
    listed.sources = (Source("1.0", Path("blocks.parquet"), "primary", True, None),)
    with made_up.database(mla_context_module_perf=listed), pytest.raises(DataError, match=r"row 0.*'someone/Else' is"):
        find_slice(made_up_database(), PREFILL_BLOCK)


def test_availability_is_that_of_the_slice():
    with made_up.database(context_mla_perf=rows((8, 64, 1, 2.0))):
        database = made_up_database()
        assert mla_available(database, PREFILL)
        assert mla_available(database, dataclasses.replace(PREFILL, num_heads=99))
        assert not mla_available(database, dataclasses.replace(PREFILL, kv_quant="bfloat16"))
        assert not mla_available(database, PREFILL_BLOCK)


@pytest.mark.parametrize("mode", MODES)
def test_formats_that_were_not_measured_are_missing(mode):
    with made_up.database(context_mla_perf=rows((8, 64, 1, 2.0))):
        op = dataclasses.replace(PREFILL, kv_quant="bfloat16")
        times = mla_cases.ask(made_up_database(mode=mode), [PREFILL, op], 1, 64)
    assert times.latency_ms[0] == pytest.approx(2.0, rel=TOLERANCE)
    assert np.isnan(times.latency_ms[1])
    assert times.provenance[1] == Provenance.MISSING


@pytest.mark.parametrize("mode", (*MODES, "SOL"))
@pytest.mark.parametrize("op", [dataclasses.replace(PREFILL, fmha_quant="fp8"), DECODE])
def test_formats_without_a_peak_are_refused_in_every_mode(mode, op):
    peaks = {"bfloat16": 1e15}
    assert quant.FMHA["fp8"].dtype not in peaks
    with made_up.database(), pytest.raises(MissingPeak):
        mla_cases.ask(made_up_database(mode=mode, system=made_up.system(peak_flops=peaks)), [op], 1, 64)
