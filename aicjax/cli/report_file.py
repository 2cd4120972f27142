# SPDX-License-Identifier: Apache-2.0
"""`--report FILE`: checked before anything is computed, written after."""

import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from aicjax.cli.flags import flag

if TYPE_CHECKING:
    from rich.console import Console

    from aicjax.report.html.parts import Page

COMMAND: ContextVar[str | None] = ContextVar("COMMAND", default=None)  # the command line that runs


def report_flag(*names: str) -> Any:
    """The flag, with names that it had before."""
    text = "Write a report: a page with charts (.html), a picture of its main chart (.png), or text (.txt)."
    return flag("--report", *names, panel="Output", metavar="FILE", text=text)


Report = Annotated[Path | None, report_flag()]


def taken(given: dict[str, Any]) -> Path | None:
    """Takes the flag out of the given flags.

    Raises:
        InputError: The file could not be written.
    """
    path = given.pop("report", None)
    if path is not None:
        from aicjax.report.html import write

        write.check(path)
    return path


def write_report(path: Path, page: "Callable[[], Page]", text: "Callable[[Console], None]") -> None:
    """Writes the report and says where it is on stderr."""
    from aicjax.report.html import write

    print(f"report in {write.write(path, page, text)}", file=sys.stderr)
