# SPDX-License-Identifier: Apache-2.0
"""What pages show below a command line is what it prints: all of them in minutes, so only when asked for.

AICJAX_TEST_PAGES=1 pytest tests/docs/test_outputs.py
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name

ASKED = "AICJAX_TEST_PAGES"
BLOCK = re.compile(r"(?:^(?:    .*)?\n)+", re.MULTILINE)  # indented lines and the empty ones between them
COMMAND = re.compile(r"^    \$ (aicjax .*)$", re.MULTILINE)

pytestmark = pytest.mark.skipif(ASKED not in os.environ, reason=f"${ASKED} is not set")


def _shown(page: Path) -> list[tuple[str, list[list[str]]]]:
    """Command lines, and the words of each line that is shown below; `...` leaves out."""
    text = re.sub(r" ?\\\n +", " ", page.read_text(encoding="utf-8"))
    found = []
    for block in BLOCK.findall(text):
        _, *parts = COMMAND.split(block)
        for line, output in zip(parts[::2], parts[1::2], strict=True):
            words = [
                [word for word in row.split() if word != "..." and set(word) != {"─"}] for row in output.splitlines()
            ]
            found.append((line, [row for row in words if row]))
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if _shown(page)], ids=name)
def test_pages_show_what_commands_print(page: Path, tmp_path: Path):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    for file, content in re.findall(
        r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
    ):
        (tmp_path / file).write_text(content, encoding="utf-8")
    stale = []
    for line, rows in _shown(page):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "250"}
        command = [sys.executable, "-m", "aicjax", *shlex.split(line)[1:]]
        ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        printed = [" ".join(row.split()) for row in f"{ran.stdout}\n{ran.stderr}".splitlines()]
        stale += [(line, " ".join(row)) for row in rows if not any(" ".join(row) in text for text in printed)]
    assert stale == []
