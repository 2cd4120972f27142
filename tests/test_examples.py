# SPDX-License-Identifier: Apache-2.0
"""The examples, and the Python blocks of the pages, run as they are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{page}.md" for page in ("python-api", "sweeps", "fleet-examples")))
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_NUMPY_DTYPE_PROMOTION": "standard"}  # optax needs it
    ran = subprocess.run([sys.executable, example], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "nan" not in ran.stdout


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str):
    exec(compile(block, "block", "exec"), {})
