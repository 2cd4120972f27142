# SPDX-License-Identifier: Apache-2.0
"""State-space, attention, expert and feed-forward layers in a written pattern: Nemotron-H, Nemotron-3."""

from collections.abc import Mapping
from typing import Any

from aicjax._results import DataError
from aicjax.models.families.base import Family
from aicjax.models.model import ConfigFields

_LETTERS = {"mamba": "M", "moe": "E", "attention": "*", "mlp": "-", "dense": "-", "ffn": "-"}
_LETTERS |= {letter: letter for letter in "ME*-"}
_REQUIRED = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "conv_kernel", "n_groups", "chunk_size")


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    return {key: fields.required(key) for key in _REQUIRED} | {
        "pattern": _pattern(fields),
        "shared_expert_size": fields.first("moe_shared_expert_intermediate_size"),
        "latent_size": fields.first("moe_latent_size"),
    }


def _pattern(fields: ConfigFields) -> str:
    """One letter a layer: M state space, * attention, E experts, - feed-forward."""
    stated = fields.first("hybrid_override_pattern", default=None)
    if stated is not None:
        return stated
    blocks = [str(block) for block in fields.required("layers_block_type")]
    if odd := sorted(set(blocks) - set(_LETTERS)):
        raise DataError(f"{fields.source}: key `layers_block_type` must hold only {list(_LETTERS)}, but has {odd}.")
    return "".join(_LETTERS[block] for block in blocks)


def _is_moe(num_experts: int, extra: Mapping[str, Any]) -> bool:
    return "E" in extra["pattern"]


NEMOTRONH = Family("NEMOTRONH", _is_moe, _extra)
