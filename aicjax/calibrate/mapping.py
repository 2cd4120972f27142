# SPDX-License-Identifier: Apache-2.0
"""Which model in which number formats a measured server ran, by the rules of `configs/silicon/mapping.yaml`."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from aicjax import _paths
from aicjax._results import DataError
from aicjax.calibrate.measurements import Measurements, Strings

Rules = Literal["labels", "checkpoint", "measurements"]
BASES: Mapping[Rules, tuple[str, ...]] = {  # which rules apply, by what they are based on
    "labels": (),
    "checkpoint": ("checkpoint",),
    "measurements": ("checkpoint", "measurements"),
}
_CONDITIONS = ("family", "precision", "backend", "model", "gemm")
_KEY = ("model_family", "precision", "backend", "model_path", "gemm_quant_mode", "moe_quant_mode")


class Configuration(NamedTuple):
    """What a row runs.

    Attributes:
        model: Bundled model.
        formats: Number formats to state, as (role, format); those of the other roles are the checkpoint's.
        attention_backend: Attention kernel to ask for; None for the engine's own choice.
    """

    model: str
    formats: tuple[tuple[str, str], ...]
    attention_backend: str | None = None


class Stated(NamedTuple):
    """What launches state of each row [row]; "" where they state nothing.

    Attributes:
        kv_cache: Format of the KV cache.
        attention_backend: Attention kernel.
    """

    kv_cache: Strings
    attention_backend: Strings


@dataclass(frozen=True)
class FormatRule:
    """Number formats of the rows that meet all conditions.

    Attributes:
        when: Allowed values by condition.
        formats: Format by role.
        basis: What the rule is based on: `checkpoint` or `measurements`.
        effect: What it does to the error of TPOT.
    """

    when: Mapping[str, Sequence[str]]
    formats: Mapping[str, str]
    basis: str
    effect: str

    def __post_init__(self):
        if unknown := set(self.when) - set(_CONDITIONS):
            raise DataError(f"mapping.yaml: conditions {sorted(unknown)} are not of {_CONDITIONS}")
        if self.basis not in BASES["measurements"]:
            raise DataError(f"mapping.yaml: basis {self.basis} is not of {BASES['measurements']}")

    def matches(self, facts: Mapping[str, str]) -> bool:
        """Whether a row with these facts meets all conditions."""
        return all(facts[name] in allowed for name, allowed in self.when.items())


def map_rows(
    rows: Measurements, rules: Rules = "checkpoint", stated: Stated | None = None
) -> tuple[list[Configuration], NDArray[np.int64]]:
    """The distinct configurations of measured rows, and which of them each row runs [row].

    Args:
        rows: Measured servers.
        rules: `labels` takes the recorded formats; `checkpoint` those of the checkpoint; `measurements` adds
            the rules that were chosen by looking at measured servers.
        stated: What launches state; None for nothing.

    Raises:
        DataError: The file of rules breaks its schema.
    """
    kv_cache, attention = Stated(*np.full((2, len(rows)), "")) if stated is None else stated
    columns = [rows.codes(_KEY), *(np.unique(words, return_inverse=True)[1] for words in (kv_cache, attention))]
    _, first, codes = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    codes = codes.ravel()
    found = [map_row({name: str(getattr(rows, name)[at]) for name in _KEY}, rules) for at in first]
    words = zip(kv_cache[first], attention[first], strict=True)
    found = [_with(of, str(cache), str(kernel)) for of, (cache, kernel) in zip(found, words, strict=True)]
    distinct = list(dict.fromkeys(found))
    position = np.array([distinct.index(configuration) for configuration in found], np.int64)
    return distinct, position[codes]


def map_row(row: Mapping[str, str], rules: Rules = "checkpoint") -> Configuration:
    """The configuration of one row: columns `model_family`, `precision`, `backend`, `model_path` and both labels."""
    file = mapping_file()
    family, precision = row["model_family"], row["precision"]
    entries = file["models"] if rules != "labels" else ()
    model = next(
        (e["model"] for e in entries if e["family"] == family and e.get("precision", precision) == precision), None
    )
    if model is None:
        return _labelled(file, row)
    facts = {**{name: row[name] for name in ("precision", "backend")}, "family": family, "model": model}
    facts["gemm"] = row["gemm_quant_mode"]
    formats: dict[str, str] = {}
    for rule in format_rules():
        if rule.basis in BASES[rules] and rule.matches(facts):
            formats |= rule.formats
    return Configuration(model, tuple(sorted(formats.items())))


def _with(configuration: Configuration, kv_cache: str, attention_backend: str) -> Configuration:
    """The configuration with what its launch states; attention computes in 16 bits on a KV cache of 16 bits."""
    formats = dict(configuration.formats)
    if kv_cache:
        formats |= {"kvcache": kv_cache} | ({} if kv_cache == "fp8" else {"fmha": kv_cache})
    return Configuration(configuration.model, tuple(sorted(formats.items())), attention_backend or None)


def _labelled(file: Mapping[str, Any], row: Mapping[str, str]) -> Configuration:
    model = file["aliases"].get(row["model_path"], row["model_path"])
    labels = {"gemm": row["gemm_quant_mode"], "moe": row["moe_quant_mode"]}
    unlabelled = file["unlabelled"]
    if row["model_family"] in unlabelled["families"] or labels["gemm"] in unlabelled["gemm"]:
        labels = {}
    return Configuration(model, tuple(sorted((role, label) for role, label in labels.items() if label)))


@functools.cache
def format_rules() -> tuple[FormatRule, ...]:
    """The rules of number formats, in the order in which they apply."""
    return tuple(FormatRule(**entry) for entry in mapping_file()["formats"])


@functools.cache
def mapping_file() -> dict[str, Any]:
    """`configs/silicon/mapping.yaml`."""
    path = _paths.configs_dir() / "silicon" / "mapping.yaml"
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
