# SPDX-License-Identifier: Apache-2.0
"""Answers in the shape of the fleet reference on a terminal."""

from typing import Any

from rich.console import Console

from aicjax._results import NoFeasible
from aicjax.fleet.reference_answers import ReferenceAnswer
from aicjax.report.fleet_view import View
from aicjax.report.table import Column, print_fitted

_FIGURES = (Column("figure", lambda pair: pair[0], "left"), Column("value", lambda pair: _text(pair[1])))


def _table(answer: ReferenceAnswer, console: Console) -> None:
    content = answer.content
    if isinstance(content, dict) and not any(isinstance(value, (dict, list)) for value in content.values()):
        print_fitted(console, "summary", list(content.items()), _FIGURES, bold_first=False)
        return
    groups = {"rows": content} if isinstance(content, list) else content
    for name, group in groups.items():
        flat = [_flat(row) for row in (group if isinstance(group, list) else [group]) if row]
        if flat:
            columns = [Column(key, lambda row, key=key: _text(row.get(key))) for key in flat[0]]
            print_fitted(console, name, flat, columns, bold_first=False)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose groups are columns of their own."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        flat |= {f"{key}\n{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _failure(answer: ReferenceAnswer) -> NoFeasible | None:
    return None if answer.meets else NoFeasible(f"Nothing meets the limits; the nearest is {answer.headline}.")


VIEWS = {ReferenceAnswer: View(lambda answer: [answer.headline], _table, _failure)}
