# SPDX-License-Identifier: Apache-2.0
"""Sizes of a decoder model for computed profiles, from its Hugging Face config or as the fleet reference has them."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aicjax._names import one_of
from aicjax._paths import configs_dir
from aicjax._results import InputError, UnsupportedModel
from aicjax.models.load import config_file, read_config
from aicjax.models.model import ConfigFields

_OTHER_LAYERS = (
    "layers_block_type",
    "hybrid_override_pattern",
    "linear_attn_config",
    "block_configs",
    "mamba_num_heads",
    "compress_ratios",
    "global_head_dim",
    "swa_head_dim",
    "attention_other_setting",
)  # keys of layers that are not attention, compress their context, or are not all alike


@dataclass(frozen=True)
class Attention:
    """One attention layer.

    Attributes:
        params: Weights.
        kv_values: Values cached for a token.
        kv_copies_from: GPUs beyond which tensor parallelism copies the cache instead of dividing it.
        pair_flops: Arithmetic of a query with one key of the sequence.
    """

    params: int
    kv_values: int
    kv_copies_from: int
    pair_flops: int


@dataclass(frozen=True)
class ModelFacts:
    """A model in numbers; every layer attends to its whole context, also where the model limits it to a window.

    Attributes:
        name: What it is called.
        layers: Decoder layers.
        expert_layers: Those with routed experts.
        hidden: Width of the residual stream.
        attention: One attention layer.
        ffn: Width of the feed-forward of layers without experts.
        shared_ffn: Width of what every token takes beside routed experts.
        expert_ffn: Width of one routed expert.
        experts, topk: Routed experts of a layer, and how many a token takes.
        vocab: Rows of the embedding.
        embeddings: Matrices of that size: 1 where input and output share it.
    """

    name: str
    layers: int
    expert_layers: int
    hidden: int
    attention: Attention
    ffn: int
    shared_ffn: int
    expert_ffn: int
    experts: int
    topk: int
    vocab: int
    embeddings: int

    @property
    def attention_params(self) -> int:
        """Weights of attention in all layers."""
        return self.layers * self.attention.params

    @property
    def expert_params(self) -> int:
        """Weights of routed experts in all layers."""
        return self.expert_layers * self.experts * self._matrices(self.expert_ffn)

    @property
    def token_expert_params(self) -> int:
        """Weights of the routed experts that one token takes."""
        return self.expert_layers * self.topk * self._matrices(self.expert_ffn)

    @property
    def dense_params(self) -> int:
        """Weights of feed-forwards that every token takes."""
        dense_layers = self.layers - self.expert_layers
        return dense_layers * self._matrices(self.ffn) + self.expert_layers * self._matrices(self.shared_ffn)

    @property
    def head_params(self) -> int:
        """Weights of the projection to the vocabulary."""
        return self.vocab * self.hidden

    @property
    def params(self) -> int:
        """All weights."""
        return self.attention_params + self.dense_params + self.expert_params + self.embeddings * self.head_params

    @property
    def active_params(self) -> int:
        """Weights that one token takes, one embedding among them."""
        return self.attention_params + self.dense_params + self.token_expert_params + self.head_params

    def kv_bytes_per_token(self, dtype_bytes: float) -> float:
        """KV cache of a token in the whole model."""
        return self.layers * self.attention.kv_values * dtype_bytes

    def kv_share(self, tp: int) -> float:
        """Share of that on each of `tp` GPUs."""
        return 1.0 / min(tp, self.attention.kv_copies_from)

    def _matrices(self, width: int) -> int:
        return 3 * self.hidden * width


def published_model(name_or_dir: str | Path) -> ModelFacts:
    """A model by hub name, directory with a `config.json`, or path of one.

    Raises:
        InputError: No such model.
        DataError: A key is missing.
        UnsupportedModel: Its layers are not all attention of one kind.
    """
    path, name = config_file(name_or_dir)
    return facts_of_config(read_config(path)[0], name=name, source=str(path))


def facts_of_config(config: Mapping[str, Any], *, name: str, source: str = "config") -> ModelFacts:
    """The sizes that a Hugging Face config states; errors as `published_model`.

    Args:
        config: The parsed `config.json`.
        name: Name of the model.
        source: Where the config comes from, for messages.
    """
    text = config.get("text_config", config)
    fields = ConfigFields(source, str((config.get("architectures") or [None])[0]), config, text, 0)
    kinds = text.get("layer_types") or ()
    if any(text.get(key) for key in _OTHER_LAYERS) or any("linear" in str(kind) for kind in kinds):
        raise UnsupportedModel(f"{source}: layers of {name} are not all alike; its profile comes from the engine.")
    layers, hidden, experts = fields.required("num_hidden_layers"), fields.required("hidden_size"), fields.experts
    expert_ffn = fields.first("moe_intermediate_size", "intermediate_size")
    shared = fields.first("n_shared_experts", "num_shared_experts")
    beside_dense = fields.first("intermediate_size_mlp")  # of models whose expert layers all have one shared expert
    shared_ffn = fields.first_nonzero("shared_expert_intermediate_size") or shared * expert_ffn
    every = fields.first_nonzero("interleave_moe_layer_step") or 1
    tied = fields.first("tie_word_embeddings", default=config.get("tie_word_embeddings", False))
    return ModelFacts(
        name=name,
        layers=layers,
        expert_layers=max(layers - fields.first("first_k_dense_replace"), 0) // every if experts else 0,
        hidden=hidden,
        attention=_latent_attention(fields) if fields.first("kv_lora_rank") else _head_attention(fields),
        ffn=beside_dense or fields.first("intermediate_size"),
        shared_ffn=(expert_ffn if beside_dense else shared_ffn) if experts else 0,
        expert_ffn=expert_ffn if experts else 0,
        experts=experts,
        topk=fields.topk if experts else 0,
        vocab=fields.required("vocab_size"),
        embeddings=1 if tied else 2,
    )


def reference_model(name: str) -> ModelFacts:
    """A model of the fleet reference's catalogue, as it counts it.

    Raises:
        InputError: No such model.
    """
    models = _reference_models()
    if name not in models:
        raise InputError("model", name, one_of(name, models))
    return models[name]


def _heads(hidden: int, heads: int, kv_heads: int, head_dim: int) -> Attention:
    return Attention(
        params=2 * hidden * head_dim * (heads + kv_heads),
        kv_values=2 * kv_heads * head_dim,
        kv_copies_from=kv_heads,
        pair_flops=4 * heads * head_dim,
    )


def _head_attention(fields: ConfigFields) -> Attention:
    hidden, heads = fields.required("hidden_size"), fields.required("num_attention_heads")
    head_dim = fields.first_nonzero("head_dim", "attention_head_dim") or hidden // heads
    return _heads(hidden, heads, fields.first("num_key_value_heads", default=heads), head_dim)


def _latent_attention(fields: ConfigFields) -> Attention:
    """Keys and values come from one latent vector of a token, which is what the cache holds."""
    hidden, heads, latent = (fields.required(key) for key in ("hidden_size", "num_attention_heads", "kv_lora_rank"))
    plain, rotated, value = (fields.required(key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    query, rank = heads * (plain + rotated), fields.first("q_lora_rank")
    queries = hidden * rank + rank * query if rank else hidden * query
    return Attention(
        params=queries + hidden * (latent + rotated) + latent * heads * (plain + value) + heads * value * hidden,
        kv_values=latent + rotated,
        kv_copies_from=1,
        pair_flops=2 * heads * (plain + rotated + value),
    )


@functools.cache
def _reference_models() -> Mapping[str, ModelFacts]:
    stated = yaml.safe_load((configs_dir() / "fleet" / "models.yaml").read_text(encoding="utf-8"))
    models = {}
    for key, facts in stated.items():
        hidden, heads, experts = facts["hidden"], facts["heads"], facts.get("experts", 0)
        models[key] = ModelFacts(
            name=facts["name"],
            layers=facts["layers"],
            expert_layers=facts["layers"] if experts else 0,
            hidden=hidden,
            attention=_heads(hidden, heads, facts["kv_heads"], hidden // heads),
            ffn=facts.get("ffn", 0),
            shared_ffn=0,
            expert_ffn=facts.get("expert_ffn", 0),
            experts=experts,
            topk=facts.get("topk", 0),
            vocab=facts["vocab"],
            embeddings=1,
        )
    return models
