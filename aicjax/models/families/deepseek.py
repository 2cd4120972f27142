# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention with experts: DeepSeek V3, R1 and V3.1, Kimi K2 and K2.5."""

from collections.abc import Mapping

from aicjax.models.families.base import MLA_TABLES, Family, mixture
from aicjax.models.model import ConfigFields


def _extra(fields: ConfigFields) -> Mapping[str, int]:
    return {key: fields.first(key) for key in ("v_head_dim", "kv_lora_rank", "qk_rope_head_dim")}


_PREFILL_TABLES = {"trtllm": MLA_TABLES, "sglang": MLA_TABLES}
DEEPSEEK = Family("DEEPSEEK", mixture, _extra, context_parallel_backends=("sglang",), prefill_tables=_PREFILL_TABLES)
KIMIK25 = Family("KIMIK25", mixture, _extra, context_parallel_backends=("sglang",), prefill_tables=_PREFILL_TABLES)
