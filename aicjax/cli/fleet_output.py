# SPDX-License-Identifier: Apache-2.0
"""Running a command about fleets and showing its answer in the form that was asked for."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicjax._results import InputError


@dataclass(frozen=True)
class FleetOutput:
    """How an answer is shown.

    Attributes:
        json: One JSON object in place of tables.
        quiet: One line.
        no_color: No colour.
        out: File for the JSON object; None writes none.
        plot: File for a plot; None draws none.
    """

    json: bool
    quiet: bool
    no_color: bool
    out: Path | None
    plot: Path | None

    @classmethod
    def take(cls, given: dict[str, Any]) -> "FleetOutput":
        """Takes the output flags out of the given flags; what stays is the request."""
        flags = {name: given.pop(name, False) for name in ("json", "quiet", "no_color")}
        return cls(**flags, out=given.pop("out", None), plot=given.pop("plot", None))


def present(request: Any, answer: Callable[[Any], Any], output: FleetOutput) -> None:
    """Answers a request and shows the answer.

    Raises:
        NoFeasible: Nothing meets the limits; raised after the nearest answer is shown.
    """
    if output.plot is not None:
        _check_plot(output.plot)

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
    if output.plot is not None:
        from aicjax.report import fleet_plot

        fleet_plot.write(found, output.plot)
        print(f"plot in {output.plot}", file=sys.stderr)
    error = fleet_text.failure(found)
    if error is not None:
        raise error


def _check_plot(path: Path) -> None:
    import importlib.util

    if importlib.util.find_spec("plotly") is None:
        raise InputError("plot", str(path), "left out, or plotly installed: pip install 'aicjax[report]'")
    if path.suffix != ".html":
        raise InputError("plot", str(path), "a file that ends in .html")
