# SPDX-License-Identifier: Apache-2.0
"""Writing a report: a page, a picture of its main chart, or text, by the name of the file."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from aicjax._results import InputError
from aicjax.report.html import page as pages
from aicjax.report.html.parts import Page

PAGE, PICTURE, TEXT = ".html", ".png", ".txt"
TEXT_WIDTH = 160


def check(path: Path) -> None:
    """Refuses a file that could not be written, before anything is computed.

    Raises:
        InputError: Another ending than `.html`, `.png` or `.txt`, no folder, no permission, no browser for a picture.
    """
    if path.suffix not in (PAGE, PICTURE, TEXT):
        raise InputError("report", str(path), f"a file that ends in {PAGE}, {PICTURE} or {TEXT}")
    folder = path.parent
    if not folder.is_dir():
        raise InputError("report", str(path), f"in a folder that exists (there is no {folder})")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError("report", str(path), "a file that can be written")
    if path.suffix == PICTURE:
        from aicjax.report.html import picture

        if lacking := picture.lacking():
            raise InputError("report", str(path), lacking)


def write(path: Path, page: Callable[[], Page], text: Callable[[Console], None]) -> Path:
    """Writes a report; without plotly the text is written where a page was asked for, and stderr says so.

    Args:
        path: The file, checked before.
        page: Makes the page.
        text: Prints the same as text.

    Returns:
        The file that was written.

    Raises:
        InputError: The file cannot be written after all.
    """
    if path.suffix == PAGE and pages.library() is None:
        path = path.with_suffix(TEXT)
        print(
            f"aicjax: plotly is not installed (pip install 'aicjax[report]'): {path} has the report as text",
            file=sys.stderr,
        )
    try:
        if path.suffix == TEXT:
            with path.open("w", encoding="utf-8") as file:
                text(Console(file=file, width=TEXT_WIDTH, no_color=True))
        elif path.suffix == PAGE:
            path.write_text(pages.render(page()), encoding="utf-8")
        else:
            from aicjax.report.html import picture

            path.write_bytes(picture.png(page()))
    except OSError as error:
        raise InputError("report", str(path), f"a file that can be written ({error.strerror})") from None
    return path
