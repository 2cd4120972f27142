# SPDX-License-Identifier: Apache-2.0
"""The examples, and the Python blocks of the pages, run as they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PROGRAMS = [page for page in PAGES if blocks(page, "python") and page.name != "README.zh.md"]  # that repeats README.md

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment |= {"JAX_NUMPY_DTYPE_PROMOTION": "standard"}  # optax needs it
    environment |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}  # its programs run once
    ran = subprocess.run([sys.executable, example], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "nan" not in ran.stdout


@pytest.mark.parametrize("page", PROGRAMS, ids=name)
def test_blocks_of_a_page_run_one_after_the_other(page: Path):
    """Blocks that are shown and not run are fenced as `py`."""
    names = {"__name__": page.stem}
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{name(page)}, block {number}", "exec"), names)
