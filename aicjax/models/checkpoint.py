# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint's own files say about its number formats, in one spelling."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aicjax.models.slim import layer_algorithm, representatives

_ALGORITHM_NAMES = {
    "w4a16_mxfp4": "mxfp4",
    "mixed-precision": "mixed_precision",
    "mixedprecision": "mixed_precision",
}
_KV_NAMES = {"e4m3": "fp8", "e5m2": "fp8"} | dict.fromkeys(("fp16", "float16", "bf16"), "bfloat16")
_LAYER_NAMES = {"e4m3": "fp8", "e5m2": "fp8", "fp4": "nvfp4"}
_MX_BLOCK = 32  # elements that share one scale in the OCP microscaling formats
_PATTERN_LISTS = ("modules_to_not_convert", "exclude_modules", "ignore")
_ATTENTION_WORDS = ("self_attn", "q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True)
class CheckpointQuantisation:
    """Number formats of a checkpoint.

    Attributes:
        algorithm: Quantisation algorithm, e.g. `fp8_block`, `nvfp4`, `mixed_precision`; None when not quantised.
        kv_algorithm: Format of the KV cache; None when not stated.
        dynamic: Whether activation scales are taken at run time; None when not stated.
        base_method: The `quant_method` of the main config, "" when absent.
        weight_block: Block of a block-scaled weight, e.g. (128, 128); empty when not blocked.
        weight_format: Weight format of a compressed-tensors checkpoint; None for other methods.
        kept_16bit: Layer kinds (`attention`, `experts`) a compressed-tensors checkpoint leaves alone.
        excluded: Patterns of modules left alone, over all lists. Of names that differ in numbers only, here and in
            the next two, the first stands for all.
        layer_formats: (module, format) pairs of a per-layer table.
        group_formats: (module pattern, format) pairs of configuration groups.
        expert_dtype: Format of the routed experts where the config names it, "" otherwise.
    """

    algorithm: str | None = None
    kv_algorithm: str | None = None
    dynamic: bool | None = None
    base_method: str = ""
    weight_block: tuple[int, ...] = ()
    weight_format: str | None = None
    kept_16bit: frozenset[str] = frozenset()
    excluded: tuple[str, ...] = ()
    layer_formats: tuple[tuple[str, str], ...] = ()
    group_formats: tuple[tuple[str, str], ...] = ()
    expert_dtype: str = ""


def read_checkpoint(
    root: Mapping[str, Any], text: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None
) -> CheckpointQuantisation:
    """Number formats stated by the two config files of a checkpoint.

    Args:
        root: The outer config.
        text: The language model's config, or the outer one again.
        hf_quant_config: The `hf_quant_config.json`, if any; it wins over the other.
    """
    extra = _mapping((hf_quant_config or {}).get("quantization"))
    own = _own_section(root, text, extra)
    groups = [group for group in _mapping(own.get("config_groups")).values() if isinstance(group, Mapping)]
    block = tuple(own.get("weight_block_size") or ())
    algorithm = _spelled(
        _ALGORITHM_NAMES,
        extra.get("quant_algo") or own.get("quant_algo") or own.get("quant_method") or own.get("quantization_method"),
    )
    return CheckpointQuantisation(
        algorithm="fp8_block" if algorithm == "fp8" and block else algorithm,
        kv_algorithm=_kv_algorithm(extra, own),
        dynamic=_dynamic(own, groups),
        base_method=str(own.get("quant_method", "")).lower(),
        weight_block=block,
        weight_format=next((name for group in groups if (name := _weight_format(group))), None),
        kept_16bit=frozenset(_kept_16bit(own.get("ignore") or ())),
        excluded=tuple(name for name, _ in representatives((pattern, None) for pattern in _excluded(own, extra))),
        layer_formats=tuple(representatives(pair for part in (extra, own) for pair in _layer_formats(part))),
        group_formats=tuple(representatives(pair for group in groups for pair in _group_formats(group))),
        expert_dtype=str(root.get("expert_dtype") or "").lower(),
    )


def is_routed_expert(module: str) -> bool:
    """Whether a module name means the routed experts of a mixture."""
    module = module.lower()
    if "shared_expert" in module:
        return False
    return ".experts." in module or module.endswith(".experts") or "routing_expert" in module


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _own_section(root: Mapping[str, Any], text: Mapping[str, Any], extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `quantization_config` in force: the outer one, one made of the separate file, or the nested one."""
    if "quantization_config" in root:
        return _mapping(root["quantization_config"])
    stated = {
        "quant_method": extra.get("quant_algo") or extra.get("quantization_algo"),
        "kv_cache_quant_method": extra.get("kv_cache_quant_algo"),
    }
    if made := {key: str(value).lower() for key, value in stated.items() if value}:
        return made
    return _mapping(text.get("quantization_config"))


def _spelled(names: Mapping[str, str], value: Any) -> str | None:
    """One spelling of a format name; None when not stated."""
    name = "" if value is None else str(value).strip().lower()
    return names.get(name, name) or None


def _kv_algorithm(extra: Mapping[str, Any], own: Mapping[str, Any]) -> str | None:
    stated = extra.get("kv_cache_quant_algo") or next(
        (own[key] for key in ("kv_cache_quant_algo", "kv_cache_quant_method", "kv_cache_dtype") if own.get(key)), None
    )
    if (name := _spelled(_KV_NAMES, stated)) is not None:
        return name
    scheme = _mapping(own.get("kv_cache_scheme"))
    kind, bits = str(scheme.get("type", "")).lower(), scheme.get("num_bits")
    if "fp8" in kind:
        return "fp8"
    if kind == "float" and isinstance(bits, int):
        return "fp8" if bits <= 8 else "bfloat16" if bits >= 16 else None
    return None


def _dynamic(own: Mapping[str, Any], groups: list[Mapping[str, Any]]) -> bool | None:
    scheme = str(own.get("activation_scheme", "")).lower()
    if scheme in ("dynamic", "static"):
        return scheme == "dynamic"
    parts = [_mapping(group.get(key)) for group in groups for key in ("input_activations", "weights")]
    flags = [bool(part["dynamic"]) for part in parts if "dynamic" in part]
    return any(flags) if flags else None


def _weight_format(group: Mapping[str, Any]) -> str | None:
    """Weight-only reading of one group of a compressed-tensors checkpoint."""
    weights = _mapping(group.get("weights"))
    kind, bits = str(weights.get("type", "")).lower(), weights.get("num_bits")
    if bits == 4 and "int" in kind:
        return "int4_wo"
    if bits == 8 and "int" in kind:
        return "int8_wo"
    if bits == 8 and "float" in kind:
        blocked = str(weights.get("strategy", "")).lower() == "block" or weights.get("block_structure")
        return "fp8_block" if blocked else "fp8"
    if bits == 4 and "float" in kind:
        return "w4a16_mxfp4"
    return None


def _excluded(*parts: Mapping[str, Any]) -> Iterator[str]:
    for part in parts:
        for key in _PATTERN_LISTS:
            yield from map(str, part.get(key) or ())


def _kept_16bit(patterns: Iterable[str]) -> Iterator[str]:
    for pattern in (str(entry).lower() for entry in patterns):
        if any(word in pattern for word in _ATTENTION_WORDS):
            yield "attention"
        if "expert" in pattern and "shared_expert" not in pattern:
            yield "experts"


def _layer_formats(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for module, entry in _mapping(part.get("quantized_layers")).items():
        if name := _spelled(_LAYER_NAMES, layer_algorithm(entry)):
            yield str(module), name


def _group_formats(group: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    weights = _mapping(group.get("weights"))
    name = _spelled(_LAYER_NAMES, layer_algorithm(weights))
    kind, bits = str(weights.get("type", "")).lower(), weights.get("num_bits")
    if name is None and "float" in kind:
        if bits == 8:
            name = "mxfp8" if weights.get("group_size") == _MX_BLOCK else "fp8"
        elif bits == 4:
            name = "nvfp4"
    if name is not None:
        for target in group.get("targets") or ():
            yield str(target), name
