# SPDX-License-Identifier: Apache-2.0
"""Hyper-connections, compressed sparse attention and experts: DeepSeek-V4."""

from collections.abc import Mapping
from typing import Any

from aicjax.models.families.base import Family, mixture
from aicjax.models.model import ConfigFields

RATIOS = (0, 4, 128)  # compression of a layer's cache: none (window only), light, heavy
_REQUIRED = (
    "q_lora_rank",
    "o_lora_rank",
    "o_groups",
    "head_dim",
    "qk_rope_head_dim",
    "index_head_dim",
    "index_n_heads",
    "index_topk",
    "sliding_window",
    "compress_rope_theta",
    "num_hash_layers",
    "hc_mult",
    "hc_sinkhorn_iters",
    "hc_eps",
    "n_shared_experts",
)


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    ratios = fields.required("compress_ratios")[: fields.layers]
    return {key: fields.required(key) for key in _REQUIRED} | {
        "compress_ratios": fields.pattern("compress_ratios", RATIOS, ratios)
    }


_MODULES = (("dsv4_csa_context_module_perf", "mla_dtype"), ("dsv4_hca_context_module_perf", "mla_dtype"))
DEEPSEEKV4 = Family(
    "DEEPSEEKV4",
    mixture,
    _extra,
    context_parallel_backends=("sglang",),
    prefill_tables=dict.fromkeys(("trtllm", "vllm", "sglang"), _MODULES),
)
