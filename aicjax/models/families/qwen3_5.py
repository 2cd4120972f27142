# SPDX-License-Identifier: Apache-2.0
"""Gated delta-rule layers between full-attention layers, dense or with experts: Qwen3.5, Qwen3.6."""

from collections.abc import Mapping
from typing import Any

from aicjax.models.families.base import Family
from aicjax.models.model import ConfigFields

_REQUIRED = (
    "linear_num_key_heads",
    "linear_key_head_dim",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
_STATE_DTYPES = ("float32", "bfloat16", "float16")


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    state = fields.first("mamba_ssm_dtype", default=fields.root.get("mamba_ssm_dtype"))
    return {key: fields.required(key) for key in _REQUIRED} | {
        "layer_types": fields.pattern("layer_types", ("linear_attention", "full_attention")),
        "shared_expert_size": fields.first("shared_expert_intermediate_size"),
        "state_dtype": state if state in _STATE_DTYPES else "float32",
    }


def _is_moe(num_experts: int, extra: Mapping[str, Any]) -> bool:
    return num_experts > 0


QWEN35 = Family("QWEN35", _is_moe, _extra)
