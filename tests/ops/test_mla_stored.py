# SPDX-License-Identifier: Apache-2.0
"""Latent attention against a sample of stored answers of AIConfigurator 0.12.0, in every mode.

Estimates whose nearest points are equally near but for the last bit of float64 are left out of the sample, and those
of tables that only other versions fill: estimates rest on a version's own rows.
"""

import pytest

from aicjax.ops.records import (
    ContextMla,
    GenerationMla,
    MlaModuleContext,
    MlaModuleGeneration,
    WideEpContextMla,
    WideEpGenerationMla,
)
from tests.ops import mla_cases

STORED = {
    "ops_mla_context": lambda r: ContextMla(
        "a", 1.0, r["num_heads"], r["kv_cache_dtype"], r["fmha_quant_mode"], r["cp_size"]
    ),
    "ops_mla_generation": lambda r: GenerationMla("a", 1.0, r["num_heads"], r["kv_cache_dtype"]),
    "ops_mla_module_context": lambda r: MlaModuleContext(
        "a", 1.0, r["num_heads"], 128, r["kv_cache_dtype"], r["fmha_quant_mode"], r["gemm_quant_mode"]
    ),
    "ops_mla_module_generation": lambda r: MlaModuleGeneration(
        "a", 1.0, r["num_heads"], 128, r["kv_cache_dtype"], "bfloat16", r["gemm_quant_mode"]
    ),
    "ops_wideep_mla_context": lambda r: WideEpContextMla(
        "a", 1.0, 128 // r["tp_size"], r["kv_cache_dtype"], r["fmha_quant_mode"], r["attn_backend"], r["cp_size"]
    ),
    "ops_wideep_mla_generation": lambda r: WideEpGenerationMla(
        "a", 1.0, 128 // r["tp_size"], r["kv_cache_dtype"], "bfloat16", r["attn_backend"]
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_operators_agree_with_stored_answers(name):
    mla_cases.check_stored(name, STORED[name])
