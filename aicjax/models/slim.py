# SPDX-License-Identifier: Apache-2.0
"""The fields of a Hugging Face config that say something about size or speed, and only those.

`configs/models/` holds one such file per model. The reduction keeps the form of the original, so that one parser
reads both, and reducing twice changes nothing.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_LANGUAGE = frozenset(
    [
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "attention_head_dim",
        "vocab_size",
        "max_position_embeddings",
        "intermediate_size",
        "num_nextn_predict_layers",
        "torch_dtype",
        "dtype",
        "num_experts",
        "num_local_experts",
        "n_routed_experts",
        "moe_num_experts",
        "moe_intermediate_size",
        "n_shared_experts",
        "num_experts_per_tok",
        "num_experts_per_token",
        "top_k_experts",
        "moe_top_k",
        "num_shared_experts",
        "first_k_dense_replace",
        "moe_layer_freq",
        "interleave_moe_layer_step",
        "moe_layers_enum",
        "share_expert_dim",
        "expert_dtype",
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "intermediate_size_mlp",
        "moe_latent_size",
        "routed_expert_hidden_size",
        "layer_types",
        "layers_block_type",
        "hybrid_override_pattern",
        "hybrid_layer_pattern",
        "block_configs",
        "sliding_window",
        "sliding_window_size",
        "sliding_window_pattern",
        "attention_chunk_size",
        "attention_k_eq_v",
        "swa_num_key_value_heads",
        "swa_head_dim",
        "swa_v_head_dim",
        "num_global_key_value_heads",
        "global_head_dim",
        "attention_other_setting",
        "use_head_wise_attn_gate",
        "attn_res_block_size",
        "q_lora_rank",
        "kv_lora_rank",
        "o_lora_rank",
        "o_groups",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "index_head_dim",
        "index_n_heads",
        "index_topk",
        "index_topk_freq",
        "index_topk_pattern",
        "index_skip_topk_offset",
        "compress_ratios",
        "compress_rope_theta",
        "num_hash_layers",
        "hc_mult",
        "hc_sinkhorn_iters",
        "hc_eps",
        "linear_num_key_heads",
        "linear_key_head_dim",
        "linear_num_value_heads",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
        "linear_attn_config",
        "mamba_ssm_dtype",
        "mamba_num_heads",
        "mamba_head_dim",
        "ssm_state_size",
        "conv_kernel",
        "n_groups",
        "chunk_size",
    ]
)
_VISION = frozenset(
    [
        "depth",
        "hidden_size",
        "num_heads",
        "intermediate_size",
        "patch_size",
        "temporal_patch_size",
        "spatial_merge_size",
        "out_hidden_size",
        "deepstack_visual_indexes",
    ]
)
_QUANTISATION = frozenset(
    [
        "quant_algo",
        "quantization_algo",
        "quant_method",
        "quantization_method",
        "kv_cache_quant_algo",
        "kv_cache_quant_method",
        "kv_cache_dtype",
        "activation_scheme",
        "weight_block_size",
    ]
)
_WEIGHT_FORMAT = frozenset(
    [
        "num_bits",
        "type",
        "strategy",
        "block_structure",
        "group_size",
        "dynamic",
        "quant_algo",
        "quantization_algo",
        "quant_method",
    ]
)
_NESTED = frozenset(["num_attention_heads", "head_dim", "kda_layers", "num_heads", "short_conv_kernel_size"])
_PATTERN_LISTS = ("modules_to_not_convert", "exclude_modules", "ignore")
_ALGORITHM_KEYS = ("quant_algo", "quantization_algo", "quant_method")


def slim_config(config: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The reduced form of a model's `config.json` and `hf_quant_config.json`.

    Of module names that differ in layer or expert numbers only, the first stands for all: every rule that reads
    them looks for words, never for numbers.

    Args:
        config: The parsed `config.json`.
        hf_quant_config: The parsed `hf_quant_config.json`, where the checkpoint has one.

    Returns:
        `{"config": ..., "hf_quant_config": ...}`, the second only when given.
    """
    slim = _language_fields(config)
    if "text_config" in config:
        slim["text_config"] = _language_fields(config["text_config"])
    if config.get("vision_config"):
        slim["vision_config"] = _only(config["vision_config"], _VISION)
    result: dict[str, Any] = {"config": {"architectures": config["architectures"][:1]} | slim}
    section = (hf_quant_config or {}).get("quantization")
    if isinstance(section, Mapping):
        result["hf_quant_config"] = {"quantization": _quantisation_fields(section)}
    return result


def write_slim(name: str, slim: Mapping[str, Any], directory: Path) -> Path:
    """Write one reduced config as `<directory>/<name>.json`, `/` in the name spelled `--`; one field a line."""
    path = directory / f"{name.replace('/', '--')}.json"
    lines = [f' "{key}": {{\n' + ",\n".join(_lines(slim[key])) + "\n }" for key in slim]
    path.write_text(f'{{\n "model": {json.dumps(name)},\n' + ",\n".join(lines) + "\n}\n")
    return path


def _lines(fields: Mapping[str, Any]) -> list[str]:
    return [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in fields.items()]


def _only(fields: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key in wanted and value is not None}


def _language_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    slim = _only(fields, _LANGUAGE)
    for key in ("attention_other_setting", "linear_attn_config"):
        if isinstance(slim.get(key), Mapping):
            slim[key] = _only(slim[key], _NESTED)
    if "block_configs" in slim:
        slim["block_configs"] = [_block_fields(block) for block in slim["block_configs"]]
    if "quantization_config" in fields:
        slim["quantization_config"] = _quantisation_fields(fields["quantization_config"] or {})
    return slim


def _block_fields(block: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "attention": _only(block.get("attention", {}), ("n_heads_in_group", "no_op")),
        "ffn": _only(block.get("ffn", {}), ("ffn_mult", "no_op")),
    }


def _quantisation_fields(section: Mapping[str, Any]) -> dict[str, Any]:
    slim = _only(section, _QUANTISATION)
    if isinstance(section.get("kv_cache_scheme"), Mapping):
        slim["kv_cache_scheme"] = _only(section["kv_cache_scheme"], ("type", "num_bits"))
    for key in _PATTERN_LISTS:
        if section.get(key):
            slim[key] = _first_names(section[key])
    if isinstance(section.get("config_groups"), Mapping):
        slim["config_groups"] = {key: _group_fields(group) for key, group in section["config_groups"].items() if group}
    if isinstance(section.get("quantized_layers"), Mapping):
        layers = {target: layer_algorithm(entry) for target, entry in section["quantized_layers"].items()}
        kept = representatives(layers.items())
        slim["quantized_layers"] = {target: {"quant_algo": algorithm} for target, algorithm in kept}
    return slim


def _group_fields(group: Mapping[str, Any]) -> dict[str, Any]:
    slim: dict[str, Any] = {}
    if isinstance(group.get("weights"), Mapping):
        slim["weights"] = _only(group["weights"], _WEIGHT_FORMAT)
    if isinstance(group.get("input_activations"), Mapping):
        slim["input_activations"] = _only(group["input_activations"], ("dynamic",))
    if group.get("targets"):
        slim["targets"] = _first_names(group["targets"])
    return slim


def _first_names(names: Iterable[Any]) -> list[str]:
    return [name for name, _ in representatives((str(name), None) for name in names)]


def layer_algorithm(entry: Any) -> Any:
    """The number format named by one entry of `quantized_layers`."""
    if not isinstance(entry, Mapping):
        return entry
    return next((entry[key] for key in _ALGORITHM_KEYS if entry.get(key)), None)


def representatives(named: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The first (name, value) of each set whose names differ in numbers only, in order."""
    first: dict[tuple[str, str], tuple[str, Any]] = {}
    for name, value in named:
        first.setdefault((re.sub(r"\d+", "#", name), str(value)), (name, value))
    return list(first.values())
