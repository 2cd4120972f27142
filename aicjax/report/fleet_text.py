# SPDX-License-Identifier: Apache-2.0
"""Answers about fleets on a terminal: what was asked, the answer in sentences, and a table."""

from typing import Any

from rich.console import Console

from aicjax._results import NoFeasible
from aicjax.report import (
    fleet_forecast_text,
    fleet_phase_text,
    fleet_reference_text,
    fleet_run_text,
    fleet_size_text,
    plan_text,
)
from aicjax.report.console import print_lines
from aicjax.report.fleet_view import View, question

VIEWS: dict[type, View] = {
    **fleet_size_text.VIEWS,
    **fleet_run_text.VIEWS,
    **fleet_phase_text.VIEWS,
    **fleet_forecast_text.VIEWS,
    **plan_text.VIEWS,
    **fleet_reference_text.VIEWS,
}


def print_answer(answer: Any, console: Console) -> None:
    """Prints what was asked, the answer in sentences, and its table."""
    view = VIEWS[type(answer)]
    print_lines(console, [question(answer.asked), "", *view.lines(answer), ""])
    view.table(answer, console)


def headline(answer: Any) -> str:
    """The answer in one line."""
    return VIEWS[type(answer)].lines(answer)[0]


def failure(answer: Any) -> NoFeasible | None:
    """What keeps every row from its limits, or None where one meets them."""
    return VIEWS[type(answer)].failure(answer)
