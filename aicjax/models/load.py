# SPDX-License-Identifier: Apache-2.0
"""Models by hub name or from a directory."""

import difflib
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from aicjax import _paths
from aicjax._results import DataError, InputError, UnsupportedModel
from aicjax.compat import DEFAULT, Compat
from aicjax.models.checkpoint import read_checkpoint
from aicjax.models.families import FAMILIES
from aicjax.models.families.generic import GENERIC
from aicjax.models.model import ConfigFields, ModelConfig

_CONFIG, _HF_QUANT = "config.json", "hf_quant_config.json"


def load_model(name_or_dir: str | Path, family: str | None = None, compat: Compat = DEFAULT) -> ModelConfig:
    """A model by hub name (in any letter case), directory with a `config.json`, or path of a `config.json`.

    Args:
        name_or_dir: Which model.
        family: Model it as this family whatever its architecture; the way in for an architecture not listed.
        compat: Defects of AIConfigurator to follow.

    Raises:
        InputError: No such model; near names are suggested.
        DataError: Invalid JSON, or a field is missing or odd: names file, key and architecture.
        UnsupportedModel: An unknown architecture.

    Examples:
        >>> model = load_model("Qwen/Qwen3-32B-FP8")
        >>> model.family, model.layers, model.num_heads, model.num_kv_heads
        ('LLAMA', 64, 64, 8)
    """
    path, name = config_file(name_or_dir)
    return parse_config(*read_config(path), name=name, source=str(path), family=family, compat=compat)


def config_file(name_or_dir: str | Path) -> tuple[Path, str]:
    """The config of a model and the model's name; arguments and errors as `load_model`.

    Raises:
        InputError: No such model; near names are suggested.
    """
    path = Path(name_or_dir)
    if path.is_dir():
        path = path / _CONFIG
    if path.is_file():
        return path, str(name_or_dir)
    bundled = {name.lower(): name for name in model_names()}
    if (name := bundled.get(str(name_or_dir).lower())) is None:
        near = [bundled[key] for key in difflib.get_close_matches(str(name_or_dir).lower(), bundled, n=3, cutoff=0.5)]
        hint = f" (near: {', '.join(near)})" if near else ""
        raise InputError("model", str(name_or_dir), f"a known hub name{hint} or a directory with a {_CONFIG}")
    return _models_dir() / f"{name.replace('/', '--')}.json", name


def model_names() -> list[str]:
    """Hub names of the bundled models, sorted."""
    return sorted(path.stem.replace("--", "/", 1) for path in _models_dir().glob("*.json"))


def parse_config(
    config: Mapping[str, Any],
    hf_quant_config: Mapping[str, Any] | None = None,
    *,
    name: str,
    source: str,
    family: str | None = None,
    compat: Compat = DEFAULT,
) -> ModelConfig:
    """The facts of a Hugging Face config, whole or reduced.

    Args:
        config: The parsed `config.json`.
        hf_quant_config: The parsed `hf_quant_config.json`, if there is one.
        name: Name of the model.
        source: File the config was read from, for messages.
        family: Model it as this family whatever its architecture.
        compat: Defects of AIConfigurator to follow.
    """
    architecture = str((config.get("architectures") or [None])[0])
    facts = _architecture_facts(architecture, source, family)
    text = config.get(facts.get("text_config", ""), config)
    if not isinstance(text, Mapping):
        raise DataError(f"{source}: key `{facts['text_config']}` must be an object (architecture {architecture}).")
    fields = ConfigFields(source, architecture, config, text, _layers(text, architecture, source), compat)
    kind = FAMILIES[facts["family"]]
    extra = kind.extra(fields)
    hidden, heads = fields.required("hidden_size"), fields.required("num_attention_heads")
    return ModelConfig(
        name=name,
        architecture=architecture,
        family=kind.name,
        layers=fields.layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=fields.first("num_key_value_heads", default=heads if kind is GENERIC else 0),
        head_dim=fields.first_nonzero("head_dim", "attention_head_dim") or hidden // heads,
        vocab_size=fields.required("vocab_size"),
        context_length=fields.required("max_position_embeddings"),
        intermediate_size=fields.first("intermediate_size"),
        num_experts=fields.experts,
        topk=fields.topk,
        moe_intermediate_size=fields.first_nonzero("moe_intermediate_size", "intermediate_size"),
        qk_norm=facts.get("qk_norm", False),
        is_moe=kind.is_moe(fields.experts, extra),
        tied_embeddings=_tied(fields),
        draft_layers=fields.first("num_nextn_predict_layers"),
        extra=MappingProxyType(dict(extra)),
        checkpoint=read_checkpoint(config, text, hf_quant_config),
        compat=compat,
    )


def _models_dir() -> Path:
    return _paths.configs_dir() / "models"


def read_config(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The main and the quantisation config of a model: from a reduced file, or a `config.json` and its neighbour."""
    document = read_json(path)
    if "model" in document and "config" in document:
        return document["config"], document.get("hf_quant_config")
    neighbour = path.with_name(_HF_QUANT)
    return document, read_json(neighbour) if neighbour.is_file() else None


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object; NaN and infinities, which some configs hold, count as null."""
    try:
        document = json.loads(path.read_text(), parse_constant=lambda constant: None)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}.") from None
    if not isinstance(document, dict):
        raise DataError(f"{path}: must hold one JSON object.")
    return document


def _layers(text: Mapping[str, Any], architecture: str, source: str) -> int:
    stated = text.get("num_hidden_layers")
    if stated is not None:
        return stated
    for key in ("layers_block_type", "hybrid_override_pattern"):
        if isinstance(text.get(key), (list, str)):
            return len(text[key])
    raise DataError(
        f"{source}: key `num_hidden_layers` is missing and no layer pattern stands in for it "
        f"(architecture {architecture})."
    )


def _tied(fields: ConfigFields) -> bool:
    """Whether one matrix serves both ends, by the language model's config or else the outer one."""
    stated = fields.first("tie_word_embeddings", default=fields.root.get("tie_word_embeddings"))
    return bool(stated) and not fields.compat.embeddings_never_tied


def _architecture_facts(architecture: str, source: str, family: str | None) -> dict[str, Any]:
    if family is not None and family not in FAMILIES:
        raise InputError("family", family, f"one of {list(FAMILIES)}")
    known = _architectures(_models_dir() / "architectures.yaml")
    if architecture in known:
        return known[architecture] if family is None else known[architecture] | {"family": family}
    if family is not None:
        return {"family": family, "text_config": "text_config"}
    raise UnsupportedModel(
        f"{source}: architecture {architecture} is not known; known are {', '.join(sorted(known))}; "
        f"family={GENERIC.name} (--family {GENERIC.name}) models a decoder with grouped-query attention from the "
        "numbers of its config."
    )


@functools.cache
def _architectures(path: Path) -> dict[str, dict[str, Any]]:
    return yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
