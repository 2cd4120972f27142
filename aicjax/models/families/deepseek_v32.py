# SPDX-License-Identifier: Apache-2.0
"""Sparse attention with an indexer, and experts: DeepSeek-V3.2, GLM-5."""

from collections.abc import Mapping
from typing import Any

from aicjax.models.families.base import Family, mixture
from aicjax.models.model import ConfigFields

_REQUIRED = (
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "index_head_dim",
    "index_n_heads",
    "index_topk",
)


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    return {key: fields.required(key) for key in _REQUIRED} | {"indexer_fraction": _indexer_fraction(fields)}


def _indexer_fraction(fields: ConfigFields) -> float:
    """Share of the layers that run the indexer; the others reuse the tokens an earlier layer chose."""
    frequency = int(fields.root.get("index_topk_freq") or 1)
    pattern, offset = fields.root.get("index_topk_pattern"), fields.root.get("index_skip_topk_offset")
    if frequency <= 1 and not pattern:
        return 1.0
    if pattern is not None:
        skipped = pattern[: fields.layers].count("S")
    else:
        first = 1 if offset is None else offset - 1
        skipped = sum(max(layer - first, 0) % frequency != 0 for layer in range(fields.layers))
    return (fields.layers - skipped) / fields.layers


_MODULE = (("dsa_context_module_perf", "mla_dtype"),)
DEEPSEEKV32 = Family(
    "DEEPSEEKV32",
    mixture,
    _extra,
    context_parallel_backends=("sglang",),
    prefill_tables=dict.fromkeys(("trtllm", "vllm", "sglang"), _MODULE),
)
