# SPDX-License-Identifier: Apache-2.0
"""Recipes of disaggregated servers: what `configs/silicon/recipes.csv` states for each load and layout."""

import csv
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from aicjax import _paths
from aicjax.calibrate.measurements import Flags, Floats, Measurements, Strings

FACTS = ("prompts", "step_tokens", "slots", "receive_steps")
_WORDS = ("family", "backend", "precision", "system")
_NUMBERS = ("isl", "osl", "prefill_workers", "prefill_gpus", "decode_workers", "decode_gpus")


class _Recipes(NamedTuple):
    """Recipes by key, ascending [recipe], and their facts [fact, recipe]; NaN where a recipe states none."""

    keys: Strings
    facts: Floats


def apply_recipes(rows: Measurements, disagg: Flags, numbers: Mapping[str, Floats]) -> None:
    """Writes the facts of the recipes into the rows that have one.

    Args:
        rows: Measured servers.
        disagg: Rows to look up.
        numbers: Facts by name, among them `FACTS` [row]; changed in place.
    """
    recipes, keys = _read(), _keys(rows)
    at = np.searchsorted(recipes.keys, keys).clip(max=len(recipes.keys) - 1)
    found = disagg & (recipes.keys[at] == keys)
    for name, values in zip(FACTS, recipes.facts, strict=True):
        stated = found & np.isfinite(values[at])
        numbers[name][stated] = values[at][stated]


def _keys(rows: Measurements) -> Strings:
    columns = {
        "family": rows.model_family,
        **{name: getattr(rows, name) for name in (*_WORDS[1:], "isl", "osl", "concurrency")},
        "prefill_workers": rows.prefill.count,
        "prefill_gpus": rows.prefill.tp * rows.prefill.dp,
        "decode_workers": rows.decode.count,
        "decode_gpus": rows.decode.tp * rows.decode.dp,
    }
    parts = [columns[name].astype(str) for name in (*_WORDS, *_NUMBERS, "concurrency")]
    attention = np.where(rows.decode.dp > 1, "data", "tensor")
    return functools.reduce(lambda text, part: np.char.add(np.char.add(text, "|"), part), [*parts, attention])


@functools.cache
def _read() -> _Recipes:
    path = _paths.configs_dir() / "silicon" / "recipes.csv"
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    found: dict[str, list[float]] = {}
    for line in lines:
        for concurrency in line["concurrency"].split():
            parts = [*(line[name] for name in (*_WORDS, *_NUMBERS)), concurrency, line["decode_attention"]]
            found["|".join(parts)] = [float(line[name] or "nan") for name in FACTS]
    keys = np.array(sorted(found))
    return _Recipes(keys, np.array([found[str(key)] for key in keys]).T)
