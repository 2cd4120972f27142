# SPDX-License-Identifier: Apache-2.0
"""A sign of life on the terminal while a long call runs."""

import contextlib
import sys
import threading
from collections.abc import Iterator

DELAY_S = 1.0


@contextlib.contextmanager
def shown_when_slow(text: str, *, delay_s: float = DELAY_S) -> Iterator[None]:
    """Shows `text`, a spinner and the time on stderr once `delay_s` have passed; nothing if that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.add_task(text, total=None)
    timer = threading.Timer(delay_s, progress.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        progress.stop()
