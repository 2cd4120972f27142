# SPDX-License-Identifier: Apache-2.0
"""The fields of a Hugging Face config that say something about size or speed, and only those.

`configs/models/` holds one such file per model. The reduction keeps the form of the original, so that one parser
reads both, and reducing twice changes nothing.
"""

import functools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from aicjax import _paths

_PATTERN_LISTS = ("modules_to_not_convert", "exclude_modules", "ignore")
_ALGORITHM_KEYS = ("quant_algo", "quantization_algo", "quant_method")
_LINE = 100  # characters of an object that stays on one line of the file


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
    if isinstance(config.get("text_config"), Mapping):
        slim["text_config"] = _language_fields(config["text_config"])
    if config.get("vision_config"):
        slim["vision_config"] = _kept(config["vision_config"], "vision_config")
    result: dict[str, Any] = {"config": {"architectures": config["architectures"][:1]} | slim}
    section = (hf_quant_config or {}).get("quantization")
    if isinstance(section, Mapping):
        result["hf_quant_config"] = {"quantization": _quantisation_fields(section)}
    return result


def write_slim(name: str, slim: Mapping[str, Any], directory: Path) -> Path:
    """Write one reduced config as `<directory>/<name>.json`, `/` in the name spelled `--`; one field a line."""
    path = directory / f"{name.replace('/', '--')}.json"
    path.write_text(_text({"model": name, **slim}) + "\n")
    return path


def _text(value: Any, indent: str = "") -> str:
    """JSON with objects opened up where they are long, and everything else on the line of its key."""
    line = json.dumps(value)
    if not isinstance(value, Mapping) or len(line) <= _LINE:
        return line
    inner = indent + " "
    fields = (f"{inner}{json.dumps(key)}: {_text(part, inner)}" for key, part in value.items())
    return "{\n" + ",\n".join(fields) + f"\n{indent}}}"


def _only(fields: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key in wanted and value is not None}


def _kept(fields: Mapping[str, Any], part: str) -> dict[str, Any]:
    """What the list of fields says to keep of one part of a config."""
    return _only(fields, _field_names(_paths.configs_dir() / "models" / "fields.yaml")[part])


@functools.cache
def _field_names(path: Path) -> dict[str, frozenset[str]]:
    return {part: frozenset(names) for part, names in yaml.safe_load(path.read_text()).items()}


def _language_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    slim = _kept(fields, "language")
    for key in ("attention_other_setting", "linear_attn_config"):
        if isinstance(slim.get(key), Mapping):
            slim[key] = _kept(slim[key], key)
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
    slim = _kept(section, "quantization_config")
    if isinstance(section.get("kv_cache_scheme"), Mapping):
        slim["kv_cache_scheme"] = _kept(section["kv_cache_scheme"], "kv_cache_scheme")
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
        slim["weights"] = _kept(group["weights"], "config_group_weights")
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
