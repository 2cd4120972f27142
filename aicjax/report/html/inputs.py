# SPDX-License-Identifier: Apache-2.0
"""The panel of what the answer rests on: the request, versions, number formats, data files, what was left out."""

from collections.abc import Mapping, Sequence
from typing import Any

from aicjax.explore.result import Refusal
from aicjax.report.html.parts import Cell, Column, Command, Facts, Folded, Panel, Part, Table

SHOWN_REFUSALS = 100
HASH_DIGITS = 16  # of a hash that are shown; the manifest has all


def panel(
    saved: Mapping[str, Any],
    stated: Mapping[str, Any],
    *,
    refused: Sequence[tuple[str, Refusal]] = (),
    again: Command | None = None,
) -> Panel:
    """The panel.

    Args:
        saved: The manifest of the run, or what there is of it.
        stated: Inputs that are not the defaults.
        refused: Layouts left out, with their experiments.
        again: How to repeat the run.
    """
    parts: list[Part] = [] if again is None else [again]
    parts.append(Facts("What was asked", _pairs(stated)))
    defaults = {name: value for name, value in saved.get("inputs", {}).items() if name not in stated}
    if defaults:
        parts.append(Folded(f"{len(defaults)} inputs at their defaults", [Facts("Defaults", _pairs(defaults))]))
    parts += [
        Facts(f"Engines and data of {name}", found) for name, found in _resolved(saved.get("resolved", {})).items()
    ]
    versions = {"aicjax": saved.get("aicjax"), "Python": saved.get("python"), **saved.get("packages", {})}
    parts.append(Facts("Versions", _pairs({name: value for name, value in versions.items() if value})))
    hashes = {name: value[:HASH_DIGITS] for name, value in saved.get("hashes", {}).items() if value}
    if hashes:
        parts.append(Facts("Data files, the beginnings of their SHA-256", _pairs(hashes)))
    if refused:
        rows = [[Cell(r.layout), Cell(name), Cell(r.role), Cell(r.reason)] for name, r in refused[:SHOWN_REFUSALS]]
        columns = [Column(title, False) for title in ("layout", "experiment", "role", "reason")]
        title = f"{len(refused)} layouts were left out"
        parts.append(Folded(title, [Table(title, columns, rows)]))
    return Panel("inputs", "What this rests on", parts, short="Inputs")


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _text(value)) for name, value in values.items()]


def _text(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _resolved(tasks: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Engine, tables and number formats of each experiment."""
    found = {}
    for name, task in tasks.items():
        pairs = []
        for role, part in task.get("roles", {}).items():
            formats = {kind: value for kind, value in part.get("quantisation", {}).items() if isinstance(value, str)}
            pairs.append((f"{role} worker", f"{part.get('backend')} {part.get('version')} on {part.get('system')}"))
            pairs.append((f"{role} formats", _text(formats)))
        if task.get("family"):
            pairs.insert(0, ("modelled as", str(task["family"])))
        if pairs:
            found[name] = pairs
    return found
