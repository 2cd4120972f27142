# SPDX-License-Identifier: Apache-2.0
"""Modules that a quantised checkpoint leaves in 16 bits."""

from aicjax.models.model import ModelConfig

_WORDS = {
    "q": ("q_a_proj", "q_b_proj", "q_proj"),
    "kv": ("kv_a_proj", "kv_b_proj", "kv_proj", "k_proj", "v_proj"),
    "o": ("o_proj",),
    "indexer": ("indexer",),
}
PROJECTIONS = tuple(_WORDS)  # parts of latent attention whose format a checkpoint may choose apart


def projection_quants(model: ModelConfig, gemm: str) -> dict[str, str]:
    """Format of each of `PROJECTIONS`, where the others run in `gemm`.

    A pattern that means attention and names no projection means all of them.
    """
    kept: set[str] = set()
    for pattern in model.checkpoint.excluded:
        named = {part for part, words in _WORDS.items() if any(word in pattern for word in words)}
        kept |= set(PROJECTIONS) if "self_attn" in pattern and not named else named
    return {part: "bfloat16" if part in kept else gemm for part in PROJECTIONS}


def keeps_shared_expert(model: ModelConfig) -> bool:
    """Whether the shared expert is left in 16 bits."""
    return any("shared_expert" in pattern.lower() for pattern in model.checkpoint.excluded)
