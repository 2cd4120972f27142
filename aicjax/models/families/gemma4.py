# SPDX-License-Identifier: Apache-2.0
"""Window and global attention, a dense feed-forward beside experts: Gemma 4."""

from collections.abc import Mapping
from typing import Any

from aicjax.models.families.base import Family, mixture
from aicjax.models.model import ConfigFields


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    kv_heads, head_dim = fields.required("num_key_value_heads"), fields.required("head_dim")
    return {
        "layer_types": fields.pattern("layer_types", ("sliding_attention", "full_attention")),
        "window": fields.first("sliding_window"),
        "window_kv_heads": kv_heads,
        "window_head_dim": head_dim,
        "global_kv_heads": fields.first("num_global_key_value_heads", default=kv_heads),
        "global_head_dim": fields.first("global_head_dim", default=head_dim),
        "values_are_keys": bool(fields.first("attention_k_eq_v", default=False)),
    }


GEMMA4MIX = Family("GEMMA4MIX", mixture, _extra, context_parallel_backends=("sglang",))
