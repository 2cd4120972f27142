# SPDX-License-Identifier: Apache-2.0
"""Decoders whose layers were searched one by one: some without attention, some without feed-forward."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aicjax.models.families.base import Family, dense
from aicjax.models.model import ConfigFields

_DEFAULT_FFN_MULT = 3.5


@dataclass(frozen=True)
class Block:
    """A run of equal layers.

    Attributes:
        heads_per_kv_head: Query heads that share one KV head; None without attention.
        no_attention: Whether the layers have no attention.
        ffn_mult: Width of the feed-forward relative to the hidden size, before rounding.
        no_ffn: Whether the layers have no feed-forward.
        count: Layers in the run.
    """

    heads_per_kv_head: int | None
    no_attention: bool
    ffn_mult: float
    no_ffn: bool
    count: int


def _extra(fields: ConfigFields) -> Mapping[str, Any]:
    shapes = (_shape(block) for block in fields.first("block_configs", default=()))
    return {"blocks": tuple(Block(*shape, len(list(run))) for shape, run in itertools.groupby(shapes))}


def _shape(block: Mapping[str, Any]) -> tuple[int | None, bool, float, bool]:
    attention, ffn = block.get("attention", {}), block.get("ffn", {})
    return (
        attention.get("n_heads_in_group"),
        attention.get("no_op", False),
        ffn.get("ffn_mult", _DEFAULT_FFN_MULT),
        ffn.get("no_op", False),
    )


NEMOTRONNAS = Family("NEMOTRONNAS", dense, _extra)
