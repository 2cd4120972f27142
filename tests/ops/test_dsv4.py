# SPDX-License-Identifier: Apache-2.0
"""Compressed attention: stored answers of AIConfigurator 0.12.0, heads that were not measured, the calibration."""

import numpy as np
import pytest

from aicjax._results import Provenance
from aicjax.hardware import load_system
from aicjax.ops import dsv4
from aicjax.ops.database import Database
from aicjax.ops.dsv4_tables import Dsv4Key, find_dsv4, load_dsv4
from aicjax.ops.module_tables import filled_values
from aicjax.ops.records import Dsv4Context, Dsv4Generation, Dsv4Shape
from tests.ops.sparse_cases import Module, answers, stored

SHAPES = {
    "pro": Dsv4Shape(7168, 1536, 1024, 512, 64, 64, 128, 1024, 128),
    "flash": Dsv4Shape(4096, 1024, 1024, 512, 64, 64, 128, 512, 128),
}
RATIOS = {"csa": 4, "hca": 128}
MODULES = {
    "context": Module(dsv4.bind_dsv4_context, dsv4.ask_dsv4_context, dsv4.dsv4_context_sol),
    "generation": Module(dsv4.bind_dsv4_generation, dsv4.ask_dsv4_generation, dsv4.dsv4_generation_sol),
}


def record(row):
    kind, ranks = (Dsv4Context, {"cp": row.cp}) if row.phase == "context" else (Dsv4Generation, {})
    heads = (RATIOS[row.attn_kind], row.num_heads, row.native_heads, row.tp_size, row.o_groups)
    formats = (row.kv_cache_dtype, "bfloat16", row.gemm_quant_mode, "DeepseekV4ForCausalLM", SHAPES[row.model])
    return kind("attention", 1.0, *heads, *formats, **ranks)


@pytest.fixture(scope="module")
def database() -> Database:
    return Database(load_system("h200_sxm"), "sglang", "0.5.14")


def test_operators_agree_with_stored_answers():
    rows = answers(stored("ops_dsv4"), MODULES, record)
    np.testing.assert_allclose(rows.got_ms, rows.latency_ms, rtol=1e-5)
    missing = np.isnan(rows.latency_ms)
    assert ((rows.code == Provenance.MISSING) == missing)[rows.measured].all()


def test_heads_snap_to_measured_ones(database: Database):
    table = load_dsv4(*database.where, 4, "context")
    assert table is not None
    keys = [key for key in table.slices if isinstance(key, Dsv4Key) and key.gemm == "fp8_block"]
    native = max(key.native for key in keys)
    measured = sorted(key.local for key in keys if key.native == native)
    asked = {measured[0] - 1: measured[0], measured[0] + 1: measured[0], 10**6: measured[-1]}
    for local, found in asked.items():
        assert find_dsv4(table, Dsv4Key("bfloat16", "fp8", "fp8_block", native, local))[1] == found
    assert find_dsv4(table, Dsv4Key("bfloat16", "int8", "fp8_block", native, 8))[0] is None


def test_values_fill_lines_as_numpy_interpolates():
    knots = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    values = np.array([[np.nan, 3.0, np.nan, 9.0, np.nan], [np.nan] * 5, [1.0, np.nan, np.nan, np.nan, np.nan]])
    filled = filled_values(values, knots, 1)
    np.testing.assert_allclose(filled[0], np.interp(knots, [2.0, 8.0], [3.0, 9.0]))
    assert np.isnan(filled[1]).all()
    np.testing.assert_array_equal(filled[2], 1.0)
    np.testing.assert_allclose(filled_values(values.T, knots, 0), filled.T)
