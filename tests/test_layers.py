# SPDX-License-Identifier: Apache-2.0
"""Imports point down the floors of the house, and host code imports no jax."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "aicjax"
FLOORS = (
    ("_types", "_units", "_results", "_names", "_paths", "_user_files", "compat", "quant"),
    ("tables", "hardware", "constants", "measure"),
    ("interp",),
    ("ops",),
    ("models",),
    ("forward",),
    ("serving",),
    ("explore",),
    ("sweeps", "calibrate", "fleet"),
    ("report", "deploy"),
    ("service",),
    ("cli",),
    ("__init__", "__main__"),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
HOST_ONLY = (
    "cli/",
    "tables/",
    "hardware/",
    "measure/",
    "models/",
    "report/",
    "deploy/",
    "explore/request.py",
    "sweeps/spec.py",
    "fleet/requests.py",
    "fleet/request_fields.py",
    "fleet/replica_spec.py",
    "fleet/plan_request.py",
    "fleet/answer_parts.py",
    "fleet/run_answers.py",
    "fleet/plan_answers.py",
    "fleet/phase_answers.py",
    "compat.py",
    "__init__.py",
)
DEVICE_LIBRARIES = {"jax", "jaxlib", "equinox", "optax", "optimistix", "lineax"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imported(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Iterator[str]:
    """Dotted names of what the nodes import; a name imported from a package counts as its submodule."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path):
    room = _room(path)
    upward = []
    for name in _imported(ast.walk(_parse(path))):
        parts = name.split(".")
        if parts[0] != "aicjax" or len(parts) == 1 or parts[1] == room or parts[1].startswith("__"):
            continue
        if FLOOR[parts[1]] > FLOOR[room] or (FLOOR[parts[1]] == FLOOR[room] > 0):
            upward.append(name)
    assert not upward, f"{path.name} on floor {FLOOR[room]} imports {upward}"


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if path.relative_to(PACKAGE).as_posix().startswith(HOST_ONLY)],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_host_modules_import_no_jax_when_loaded(path: Path):
    found = {name.split(".")[0] for name in _imported(_parse(path).body)} & DEVICE_LIBRARIES
    assert not found


@pytest.mark.parametrize(
    "statement",
    [
        "import aicjax",
        "import aicjax; dir(aicjax)",
        "import aicjax.cli.app",
        "import aicjax.report",
        "from aicjax.models import load_model",
        "from aicjax.hardware import load_system",
        "import aicjax.tables",
    ],
)
def test_import_pulls_in_no_jax(statement: str):
    check = f"{statement}\nimport sys\nprint([name for name in {sorted(DEVICE_LIBRARIES)} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
