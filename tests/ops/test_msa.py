# SPDX-License-Identifier: Apache-2.0
"""MSA operators: stored answers of AIConfigurator 0.12.0, and what stands in where nothing was measured."""

import numpy as np

from aicjax._results import Provenance
from aicjax.hardware import load_system
from aicjax.ops import msa
from aicjax.ops.database import Database
from aicjax.ops.records import DsaStandIn, MsaContext, MsaGeneration, MsaShape
from tests.ops.sparse_cases import DSA_SHAPES, Module, answers, evaluate, stored

GLM = "GlmMoeDsaForCausalLM"
SHAPE = MsaShape(4, 6144, 128, 128, 4, 128, 2048, 128)
MODULES = {
    "context": Module(msa.bind_msa_context, msa.ask_msa_context, msa.msa_context_sol),
    "generation": Module(msa.bind_msa_generation, msa.ask_msa_generation, msa.msa_generation_sol),
}


def operator(phase: str, heads: int, kv: str, gemm: str, scale: float = 1.0):
    kind = MsaContext if phase == "context" else MsaGeneration
    other = DsaStandIn(GLM, DSA_SHAPES[GLM], scale)
    return kind("attention", 1.0, heads, kv, "bfloat16", gemm, "MiniMaxM3ForCausalLM", SHAPE, other)


def test_operators_agree_with_stored_answers():
    rows = answers(
        stored("ops_msa"),
        MODULES,
        lambda r: operator(r.phase, r.num_heads, r.kv_cache_dtype, r.gemm_quant_mode, r.dsa_scale_k),
    )
    np.testing.assert_allclose(rows.got_ms, rows.latency_ms, rtol=3e-5)  # 3e-5: a hold at a million cached tokens
    assert ((rows.code == Provenance.XOP) == (rows.provenance == "xop"))[rows.measured].all()


def test_another_operator_stands_in_only_where_it_may():
    system, version = load_system("h200_sxm"), "0.5.14"  # that version measured DSA and no MSA
    records = [operator("context", 16, "fp8", "fp8_block", scale) for scale in (1.0, 1.25)]
    hybrid = Database(system, "sglang", version, "HYBRID")
    assert not msa.msa_available(hybrid, records[0])
    latency, code, _ = evaluate(MODULES["context"], hybrid, records, [2, 2], [3000, 3000], [512, 512])
    np.testing.assert_allclose(latency[0], latency[1] * 1.25, rtol=1e-6)
    assert (code == Provenance.XOP).all()
    for refused in (Database(system, "sglang", version), Database(system, "sglang", version, "HYBRID", ("xshape",))):
        bound = MODULES["context"].bind(refused, records, rows=2)
        assert not np.asarray(bound.slices.branch_inside).any()
