# SPDX-License-Identifier: Apache-2.0
"""Measured data, rooflines and layouts as users of predictors asked for them.

Sources: AIConfigurator, Dynamo, inference-sim and llama.cpp threads.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicjax._results import DataError, InputError, MissingPeak, Provenance
from aicjax.constants import load_constants
from aicjax.explore import estimate
from aicjax.hardware import System, load_system
from aicjax.models import Parallel
from aicjax.ops.expert_work import ExpertLoad, ExpertShape, host_sol_ms
from aicjax.ops.query import OpTimes, operator_latency
from aicjax.ops.records import Gemm
from aicjax.serving.disagg import WorkerCounts, Workers, disagg_estimate
from aicjax.tables import read_rows
from aicjax.tables.importer import import_database
from tests.tables import published

pytestmark = pytest.mark.as_shipped

H200 = load_system("h200_sxm")
WHERE = ("trtllm", "1.3.0rc20")
FLOAT32 = 3e-6


def measured_product() -> tuple[Gemm, np.ndarray, np.ndarray]:
    """A shape of the table, its token counts and its latencies."""
    rows = read_rows("h200_sxm", *WHERE, "gemm_perf")
    assert rows is not None
    rows = rows.select(rows.is_in("gemm_dtype", ("bfloat16",)))
    n, k = int(rows.number("n")[0]), int(rows.number("k")[0])
    rows = rows.select((rows.number("n") == n) & (rows.number("k") == k))
    tokens, first = np.unique(rows.number("m"), return_index=True)
    return Gemm("gemm", 1.0, n, k, "bfloat16"), tokens, rows.number("latency")[first]


def ask(op: Gemm, tokens, system: System = H200, mode: str = "SILICON") -> OpTimes:
    tokens = np.atleast_1d(tokens)
    return operator_latency(system, *WHERE, [op] * len(tokens), tokens=tokens, mode=mode)


def test_stored_points_are_returned_and_others_lie_between_their_neighbours():
    op, tokens, latency = measured_product()
    at, middle = ask(op, tokens), (tokens[:-1] + tokens[1:]) // 2
    bound = at.sol_ms > latency
    np.testing.assert_allclose(at.latency_ms[~bound], latency[~bound], rtol=FLOAT32)
    between, code = ask(op, middle), np.unique(ask(op, middle).provenance)
    assert set(code.tolist()) <= {Provenance.EXACT, Provenance.INTERPOLATED}
    clear = (latency[:-1] > at.sol_ms[:-1]) & (latency[1:] > at.sol_ms[1:])
    assert (between.latency_ms >= np.minimum(latency[:-1], latency[1:]) * (1 - FLOAT32))[clear].all()
    assert (between.latency_ms <= np.maximum(latency[:-1], latency[1:]) * (1 + FLOAT32))[clear].all()
    assert (between.latency_ms >= between.sol_ms * (1 - FLOAT32)).all()


def test_answers_beyond_the_measured_range_say_so():
    op, tokens, _ = measured_product()
    beyond = ask(op, int(tokens[-1]) * 4)
    assert beyond.provenance[0] == Provenance.HELD
    assert beyond.latency_ms[0] >= beyond.sol_ms[0]


def test_each_data_type_has_a_peak_of_its_own():
    """An 8192^3 product at 14e15 operations a second takes 78.54 us at least, not four times 2.25e15's 122.17."""
    peaks = {"bfloat16": 2.25e15, "fp4": 14e15}
    system = dataclasses.replace(load_system("b200_sxm"), peak_flops=peaks)
    op = Gemm("gemm", 1.0, 8192, 8192, "nvfp4")
    assert ask(op, 8192, system, "SOL").latency_ms[0] == pytest.approx(0.07854, abs=5e-6)
    with pytest.raises(MissingPeak):
        ask(dataclasses.replace(op, quant="fp8"), 8192, system, "SOL")


def test_tokens_read_the_distinct_experts_that_they_hit_and_multiply_by_each_choice():
    """128 experts, 8 chosen: 8, 29.12, 82.42 and 125.94 distinct ones for 1, 4, 16 and 64 tokens."""
    load = ExpertLoad(ExpertShape(8, 128, 4096, 1536, 1, 1), "bfloat16", True, expected=True)
    tokens = np.array([1, 4, 16, 64])
    expert_bytes = 3 * 4096 * 1536 * 2
    moved = host_sol_ms(H200, load, tokens) * H200.mem_bw_bytes_per_s / 1e3
    token_bytes = tokens * 8 * (2 * 4096 + 3 * 1536) * 2
    np.testing.assert_allclose((moved - token_bytes) / expert_bytes, [8, 29.12, 82.42, 125.94], atol=0.01)
    many = 1 << 20
    operations = host_sol_ms(H200, load, np.array([many]))[0] * H200.peak("bfloat16") / 1e3
    assert operations == pytest.approx(many * 8 * 2 * 3 * 4096 * 1536)


@pytest.mark.parametrize("latency", [math.nan, 0.0, -1.0])
def test_a_latency_that_is_none_is_refused_with_file_row_and_column(latency: float, tmp_path: Path):
    columns = published.gemm_columns([("fp8", 1, 8, 8, 1.0), ("fp8", 2, 8, 8, latency)])
    release = published.write_release(tmp_path / "release", {published.GEMM: columns})
    with pytest.raises(DataError, match=rf"{published.GEMM}.parquet: row 1, column latency"):
        import_database(release, tmp_path / "perfdb")


def test_context_parallel_ranks_are_gpus():
    """Two prefill workers of 8 context-parallel GPUs and a decode worker of 8: 24 GPUs, by which rates are divided."""
    prefill, decode = Parallel(cp=8), Parallel(tp=8)
    assert (prefill.gpus, decode.gpus) == (8, 8)
    sides = tuple(Workers(np.array([1.0]), np.array([layout.gpus])) for layout in (prefill, decode))
    counts = WorkerCounts(*(np.array([workers]) for workers in (2, 1, 0)))
    constants = load_constants("sglang", "reference").disagg
    replica = disagg_estimate(sides[0], sides[1], counts, np.array([100.0]), np.array([10.0]), 500, constants)
    assert replica.gpus.tolist() == [24]


@pytest.mark.parametrize(
    ("layout", "parts"),
    [
        ({"tp_size": 8, "moe_tp_size": 2, "moe_ep_size": 3}, ["8 x 1 x 1 = 8", "2 x 3 = 6"]),
        ({"tp_size": 3, "moe_ep_size": 3}, ["tp must be", "not 3", "128 query heads"]),
    ],
)
def test_layouts_that_do_not_divide_are_refused_with_both_numbers(layout: dict[str, Any], parts: list[str]):
    with pytest.raises(InputError) as refusal:
        estimate(model_path="deepseek-ai/DeepSeek-V3", system="h200_sxm", **layout)
    assert [part for part in parts if part not in str(refusal.value)] == []


@pytest.mark.parametrize("tp", [3, 128])
def test_heads_must_divide_by_tensor_parallelism(tp: int):
    with pytest.raises(InputError, match=rf"tp must be a divisor of the 64 query heads .*, not {tp}"):
        estimate(model_path="Qwen/Qwen3-32B", system="h200_sxm", tp_size=tp)
