# SPDX-License-Identifier: Apache-2.0
"""Verdicts of `aicjax support` as a table or as JSON."""

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from aicjax._results import NoFeasible
from aicjax.report.console import print_lines, stdout_console

if TYPE_CHECKING:
    from aicjax.explore.support import Support

_NUMBERS = ("prefill_ms", "decode_ms")  # absent where the model does not run


def print_verdicts(verdicts: Sequence["Support"], *, as_json: bool, plain: bool) -> None:
    """Prints one line per pair of system and engine.

    Args:
        verdicts: One for each pair.
        as_json: Whether to print JSON instead.
        plain: Whether to leave out colours.

    Raises:
        NoFeasible: Nothing runs anywhere; raised after printing.
    """
    if as_json:
        print(json.dumps([_fields(verdict) for verdict in verdicts], indent=2))
    else:
        console = stdout_console(plain=plain)
        console.print(_table(verdicts))
        print_lines(console, _reasons(verdicts))
    if not any(verdict.runs for verdict in verdicts):
        raise NoFeasible("The model runs on none of the systems and engines asked about.")


def _fields(verdict: "Support") -> dict:
    """A verdict as JSON has it: reasons beside the rest, numbers that do not exist as null."""
    fields = dataclasses.asdict(verdict)
    return fields | fields.pop("reasons") | ({} if verdict.layout else dict.fromkeys(_NUMBERS))


def _table(verdicts: Sequence["Support"]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    modes = list(verdicts[0].reasons)
    for header in ("system", "engine", "version", *modes, "smallest layout"):
        table.add_column(header)
    for verdict in verdicts:
        marks = ["no" if verdict.reasons[mode] else "yes" for mode in modes]
        table.add_row(verdict.system, verdict.backend, verdict.version or "-", *marks, verdict.layout or "-")
    return table


def _reasons(verdicts: Sequence["Support"]) -> list[str]:
    """One line per reason: the pairs it holds for, and the reason."""
    pairs: dict[str, list[str]] = {}
    for verdict in verdicts:
        for reason in dict.fromkeys(reason for reason in verdict.reasons.values() if reason):
            pairs.setdefault(reason, []).append(f"{verdict.system} {verdict.backend}")
    return [f"{', '.join(where)}: {reason}" for reason, where in pairs.items()]
