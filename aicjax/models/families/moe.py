# SPDX-License-Identifier: Apache-2.0
"""Grouped-query attention with experts in every layer: Mixtral, Qwen2/3-MoE, gpt-oss, MiniMax-M2."""

from aicjax.models.families.base import Family, mixture

MOE = Family("MOE", mixture, context_parallel_backends=("sglang",))
