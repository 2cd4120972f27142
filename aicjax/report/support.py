# SPDX-License-Identifier: Apache-2.0
"""Verdicts of `aicjax support` as a table or as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from aicjax._results import NoFeasible

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
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for header in ("system", "engine", "version", *_MODES, "why not"):
            table.add_column(header, no_wrap=header != "why not")
        for verdict in verdicts:
            marks = ["no" if verdict[mode] else "yes" for mode in _MODES]
            reasons = dict.fromkeys(verdict[mode] for mode in _MODES if verdict[mode])
            table.add_row(verdict["system"], verdict["backend"], verdict["version"] or "-", *marks, "\n".join(reasons))
        Console(no_color=plain).print(table)
    if all(verdict[mode] for verdict in verdicts for mode in _MODES):
        raise NoFeasible("The model runs on none of the systems and engines asked about.")
