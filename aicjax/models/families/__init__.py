# SPDX-License-Identifier: Apache-2.0
"""The model families: one module each, registered here."""

from aicjax.models.families import (
    deepseek,
    deepseek_v4,
    deepseek_v32,
    gemma4,
    generic,
    hybrid_moe,
    kimi_k3,
    llama,
    minimax_m3,
    moe,
    nemotron_h,
    nemotron_nas,
    qwen3_5,
    qwen3_vl,
    step3,
)
from aicjax.models.families.base import Family as Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        llama.LLAMA,
        qwen3_vl.QWEN3VL,
        qwen3_vl.QWEN3VL_MOE,
        moe.MOE,
        deepseek.DEEPSEEK,
        deepseek.KIMIK25,
        deepseek_v32.DEEPSEEKV32,
        deepseek_v4.DEEPSEEKV4,
        hybrid_moe.HYBRIDMOE,
        step3.STEP3P7,
        gemma4.GEMMA4MIX,
        qwen3_5.QWEN35,
        nemotron_h.NEMOTRONH,
        nemotron_nas.NEMOTRONNAS,
        minimax_m3.MINIMAXM3,
        kimi_k3.KIMIK3,
        generic.GENERIC,
    )
}
