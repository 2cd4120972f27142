# SPDX-License-Identifier: Apache-2.0
"""Running a command about fleets and showing its answer in the form that was asked for."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicjax.cli import report_file


@dataclass(frozen=True)
class FleetOutput:
    """How an answer is shown.

    Attributes:
        json: One JSON object in place of tables.
        quiet: One line.
        no_color: No colour.
        out: File for the JSON object; None writes none.
        report: File for a report; None writes none.
    """

    json: bool
    quiet: bool
    no_color: bool
    out: Path | None
    report: Path | None

    @classmethod
    def take(cls, given: dict[str, Any]) -> "FleetOutput":
        """Takes the output flags out of the given flags; what stays is the request."""
        flags = {name: given.pop(name, False) for name in ("json", "quiet", "no_color")}
        return cls(**flags, out=given.pop("out", None), report=report_file.taken(given))


def present(request: Any, answer: Callable[[Any], Any], output: FleetOutput) -> None:
    """Answers a request and shows the answer.

    Raises:
        NoFeasible: Nothing meets the limits; raised after the nearest answer is shown.
    """
    from aicjax.report import fleet_json, fleet_text
    from aicjax.report.console import stdout_console

    found = answer(request)
    text = json.dumps(fleet_json.as_json(found), indent=2, allow_nan=False)
    if output.json:
        print(text)
    elif output.quiet:
        print(fleet_text.headline(found))
    else:
        fleet_text.print_answer(found, stdout_console(plain=output.no_color))
    if output.out is not None:
        output.out.write_text(text + "\n", encoding="utf-8")
        print(f"saved in {output.out}", file=sys.stderr)
    if output.report is not None:
        from aicjax.report.html import fleet_page

        report_file.write_report(
            output.report,
            lambda: fleet_page.page(found, command=report_file.COMMAND.get()),
            lambda console: fleet_text.print_answer(found, console),
        )
    error = fleet_text.failure(found)
    if error is not None:
        raise error
