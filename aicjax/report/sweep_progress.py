# SPDX-License-Identifier: Apache-2.0
"""How far a sweep is, on stderr: a bar on a terminal, a line now and then elsewhere."""

import contextlib
import datetime
import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from aicjax.sweeps.share import Progress

LINE_EVERY_S = 60.0


class SweepProgress:
    """Shows the reports of a sweep while its block runs.

    Attributes:
        last: The latest report; None before the first.
    """

    def __init__(self) -> None:
        self.last: Progress | None = None
        self._closing = contextlib.ExitStack()
        self._bar = None
        self._next_line_s = LINE_EVERY_S

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (BarColumn(), TextColumn("{task.description}"))
            self._bar = self._closing.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
            self._bar.add_task("preparing", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def __call__(self, report: "Progress") -> None:
        """Takes in a report."""
        self.last = report
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0], total=report.points, completed=report.done, description=text(report)
            )
        elif report.seconds >= self._next_line_s:
            print(f"aicjax: {text(report)}", file=sys.stderr)
            self._next_line_s = report.seconds + LINE_EVERY_S


def text(report: "Progress") -> str:
    """A report in words."""
    left = datetime.timedelta(seconds=round(report.seconds_left))
    return f"{report.done:,} of {report.points:,} points, {report.points_per_s:,.0f} a second, {left} left"
