# SPDX-License-Identifier: Apache-2.0
"""DSA operators: stored answers of AIConfigurator 0.12.0, the blend of layers, context parallelism, misses."""

import numpy as np
import pytest

from aicjax._results import MissingPeak, Provenance
from aicjax.hardware import load_system
from aicjax.ops import dsa
from aicjax.ops.database import Database
from aicjax.ops.records import DsaContext
from tests.ops.sparse_cases import Module, answers, dsa_record, evaluate, stored

GLM, DEEPSEEK = "GlmMoeDsaForCausalLM", "DeepseekV32ForCausalLM"
MODULES = {
    "context": Module(dsa.bind_dsa_context, dsa.ask_dsa_context, dsa.dsa_context_sol),
    "generation": Module(dsa.bind_dsa_generation, dsa.ask_dsa_generation, dsa.dsa_generation_sol),
}


def record(row):
    ranks = {"cp": row.cp} if row.phase == "context" else {}
    formats = (row.num_heads, row.kv_cache_dtype, row.gemm_quant_mode, row.architecture)
    return dsa_record(row.phase, *formats, full_fraction=row.full_fraction, **ranks)


@pytest.fixture(scope="module")
def database() -> Database:
    return Database(load_system("h200_sxm"), "sglang", "0.5.14")


def test_operators_agree_with_stored_answers():
    rows = answers(stored("ops_dsa"), MODULES, record)
    np.testing.assert_allclose(rows.got_ms, rows.latency_ms, rtol=1e-5)
    missing = np.isnan(rows.latency_ms)
    assert ((rows.code == Provenance.MISSING) == missing)[rows.measured].all()
    assert (rows.code[(rows.cp > 1) & ~missing] >= Provenance.ESTIMATED).all()


def test_layers_blend_between_those_with_and_without_indexer(database: Database):
    fractions = [1.0, 0.75, 0.5, 0.25]
    ops = [dsa_record("context", 16, "fp8", "fp8_block", GLM, full_fraction=f) for f in fractions]
    latency, _, sol = evaluate(MODULES["context"], database, ops, [4] * 4, [4096] * 4, [0] * 4)
    for times in (latency, sol):
        assert abs(times[-1] - times[0]) > 0.1
        np.testing.assert_allclose(np.diff(times), np.diff(times)[0], rtol=1e-4)


def test_an_architecture_without_skipping_layers_misses_their_share(database: Database):
    ops = [dsa_record("context", 16, "fp8", "fp8_block", DEEPSEEK, full_fraction=f) for f in (1.0, 0.5)]
    latency, code, _ = evaluate(MODULES["context"], database, ops, [4] * 2, [4096] * 2, [0] * 2)
    assert np.isfinite(latency).tolist() == [True, False]
    assert code[1] == Provenance.MISSING


def test_formats_without_a_peak_are_refused(database: Database):
    refused = dsa_record("context", 16, "fp8", "nvfp4", GLM)
    assert isinstance(refused, DsaContext)
    with pytest.raises(MissingPeak):
        dsa.bind_dsa_context(database, [refused], rows=1)


def test_available_tells_which_shapes_were_measured(database: Database):
    for phase in MODULES:
        assert dsa.dsa_available(database, dsa_record(phase, 16, "fp8", "fp8_block", GLM))
        assert not dsa.dsa_available(database, dsa_record(phase, 16, "int8", "fp8_block", GLM))


def test_weights_of_a_layer():
    record = dsa_record("context", 2, "fp8", "bfloat16", DEEPSEEK)
    down = 7168 * (1536 + 512 + 64)
    up = 1536 * 2 * 192 + 512 * 2 * 256
    indexer = (1536 * 128 + 7168) * 64
    assert record.weight_bytes == 2 * (down + up + 2 * 128 * 7168 + indexer)
