# SPDX-License-Identifier: Apache-2.0
"""Verdicts of `aicjax support` as a table or as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from aicjax._results import NoFeasible
from aicjax.report.console import print_lines, stdout_console

_MODES = ("agg", "disagg")


def print_verdicts(verdicts: Sequence[Mapping[str, Any]], *, as_json: bool, plain: bool) -> None:
    """Prints one line per pair of system and engine.

    Args:
        verdicts: Dictionaries with `system`, `backend`, `version` and, per serving mode, the reason against it or None.
        as_json: Whether to print JSON instead.
        plain: Whether to leave out colours.

    Raises:
        NoFeasible: Nothing runs anywhere; raised after printing.
    """
    if as_json:
        print(json.dumps([dict(verdict) for verdict in verdicts], indent=2))
    else:
        console = stdout_console(plain=plain)
        console.print(_table(verdicts))
        print_lines(console, _reasons(verdicts))
    if all(verdict[mode] for verdict in verdicts for mode in _MODES):
        raise NoFeasible("The model runs on none of the systems and engines asked about.")


def _table(verdicts: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in ("system", "engine", "version", *_MODES):
        table.add_column(header)
    for verdict in verdicts:
        marks = ["no" if verdict[mode] else "yes" for mode in _MODES]
        table.add_row(verdict["system"], verdict["backend"], verdict["version"] or "-", *marks)
    return table


def _reasons(verdicts: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line per reason: the pairs it holds for, and the reason."""
    pairs: dict[str, list[str]] = {}
    for verdict in verdicts:
        for reason in dict.fromkeys(verdict[mode].removeprefix(f"{mode}: ") for mode in _MODES if verdict[mode]):
            pairs.setdefault(reason, []).append(f"{verdict['system']} {verdict['backend']}")
    return [f"{', '.join(where)}: {reason}" for reason, where in pairs.items()]
