# SPDX-License-Identifier: Apache-2.0
"""What a model is: the facts of its config that decide sizes and operators."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aicjax._results import DataError
from aicjax.compat import DEFAULT, Compat
from aicjax.models.checkpoint import CheckpointQuantisation


@dataclass(frozen=True)
class ModelConfig:
    """One model, as read from its config. Counts and sizes are of the whole model, not per GPU.

    Attributes:
        name: Hub name in its canonical case, or the path it was read from.
        architecture: Hugging Face architecture, of the outer config when nested.
        family: Which operator list it has.
        layers: Decoder layers.
        hidden_size: Width of the residual stream.
        num_heads: Query heads.
        num_kv_heads: Key and value heads; 0 when the config has none.
        head_dim: Size of one head.
        vocab_size: Rows of the embedding.
        context_length: Longest sequence the model accepts [tokens].
        intermediate_size: Width of the dense feed-forward; 0 when absent.
        num_experts: Routed experts; 0 for a dense model.
        topk: Routed experts per token.
        moe_intermediate_size: Width of one routed expert; that of the dense feed-forward when not stated.
        qk_norm: Whether attention normalises queries and keys.
        is_moe: Whether the width rule of experts applies.
        tied_embeddings: Whether the vocabulary projection uses the weights of the embedding.
        draft_layers: Draft layers in the checkpoint, what a speculation depth of `auto` means.
        extra: Further facts of the family.
        checkpoint: Number formats of the checkpoint.
        compat: Defects of AIConfigurator that its prices follow.
    """

    name: str
    architecture: str
    family: str
    layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    intermediate_size: int
    num_experts: int
    topk: int
    moe_intermediate_size: int
    qk_norm: bool
    is_moe: bool
    tied_embeddings: bool
    draft_layers: int
    extra: Mapping[str, Any] = field(hash=False)
    checkpoint: CheckpointQuantisation
    compat: Compat = DEFAULT


@dataclass(frozen=True)
class ConfigFields:
    """The fields of one config, with errors that name the file, the architecture and the key.

    Attributes:
        source: File or name the config was read from.
        architecture: Hugging Face architecture.
        root: The outer config.
        text: The language model's config: the nested one, or the outer.
        layers: Decoder layers.
        compat: Defects of AIConfigurator that reading it follows.
    """

    source: str
    architecture: str
    root: Mapping[str, Any]
    text: Mapping[str, Any]
    layers: int
    compat: Compat = DEFAULT

    @property
    def experts(self) -> int:
        """Routed experts; 0 for a dense model."""
        return self.first_nonzero("num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts")

    @property
    def topk(self) -> int:
        """Routed experts per token; 0 where not stated."""
        return self.first("num_experts_per_tok", "top_k_experts", "moe_top_k", "num_experts_per_token")

    def required(self, key: str) -> Any:
        """The value of a field that must be there."""
        value = self.text.get(key)
        if value is None:
            raise DataError(f"{self.source}: key `{key}` is missing, needed by architecture {self.architecture}.")
        return value

    def first(self, *keys: str, default: Any = 0) -> Any:
        """The first field that is stated (null counts as absent)."""
        return next((self.text[key] for key in keys if self.text.get(key) is not None), default)

    def first_nonzero(self, *keys: str) -> int:
        """The first field that is stated and not 0."""
        return next((self.text[key] for key in keys if self.text.get(key)), 0)

    def pattern(self, key: str, allowed: tuple[Any, ...], values: Any = None) -> tuple[Any, ...]:
        """A per-layer list: as long as there are layers, of allowed values only."""
        pattern = tuple(self.required(key) if values is None else values)
        if len(pattern) != self.layers:
            raise DataError(
                f"{self.source}: key `{key}` must have one entry for each of the {self.layers} layers of "
                f"architecture {self.architecture}, but has {len(pattern)}."
            )
        if odd := sorted({str(value) for value in pattern if value not in allowed}):
            raise DataError(f"{self.source}: key `{key}` must hold only {list(allowed)}, but has {odd}.")
        return pattern
