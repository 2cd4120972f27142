# SPDX-License-Identifier: Apache-2.0
"""Delta-rule linear attention between latent-attention layers, with latent experts: Kimi K3."""

from collections.abc import Mapping
from typing import Any

from aicjax._results import DataError
from aicjax.models.families.base import MLA_TABLES, Family, mixture
from aicjax.models.model import ConfigFields

_REQUIRED = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_DEFAULT_CONV_KERNEL = 4


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    linear = fields.first("linear_attn_config", default={})
    if missing := [key for key in ("kda_layers", "num_heads", "head_dim") if not linear.get(key)]:
        raise DataError(
            f"{fields.source}: key `linear_attn_config.{missing[0]}` is missing, needed by architecture "
            f"{fields.architecture}."
        )
    layers = set(linear["kda_layers"])  # counted from 1
    if odd := sorted(layer for layer in layers if not 1 <= layer <= fields.layers):
        raise DataError(
            f"{fields.source}: key `linear_attn_config.kda_layers` must hold 1 to {fields.layers}, but has {odd}."
        )
    return {key: fields.required(key) for key in _REQUIRED} | {
        "linear_layers": len(layers),
        "linear_heads": linear["num_heads"],
        "linear_head_dim": linear["head_dim"],
        "linear_conv_kernel": linear.get("short_conv_kernel_size", _DEFAULT_CONV_KERNEL),
        "latent_size": fields.first("routed_expert_hidden_size"),
        "shared_experts": fields.first("num_shared_experts"),
        "dense_layers": fields.first("first_k_dense_replace"),
        "residual_block": fields.first("attn_res_block_size"),
    }


KIMIK3 = Family("KIMIK3", mixture, _extra, prefill_tables={"trtllm": MLA_TABLES, "sglang": MLA_TABLES})
