# SPDX-License-Identifier: Apache-2.0
"""The terminal that reports are printed on."""

import sys
from collections.abc import Iterable

from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 130


def stdout_console(*, plain: bool) -> Console:
    """Standard output: as wide as the terminal, or wide enough for every table when it is a file or a pipe."""
    return Console(no_color=plain, width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Prints lines of text as they are: no markup, no colours of guessed meaning, whole however long."""
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
