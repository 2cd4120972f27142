# SPDX-License-Identifier: Apache-2.0
"""Habits that a machine can keep: headers, sizes, names, private APIs, and a public name table that resolves."""

import ast
import importlib
from pathlib import Path

import pytest

import aicjax

ROOT = Path(__file__).parents[1]
FOLDERS = ("aicjax", "tests", "examples", "benchmarks")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
MAX_LINES = 400
SPDX = "# SPDX-License-Identifier: Apache-2.0"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_file_follows_the_conventions(path: Path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == SPDX
    assert len(lines) <= MAX_LINES, "a module has one subject"
    assert path.stem not in {"utils", "helpers", "common", "misc"}
    imports = {
        name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert not [name for name in imports if name.startswith(("jax._src", "__future__"))]


def test_public_names_resolve_and_are_few():
    names = [name for name in dir(aicjax) if name != "__version__"]
    assert len(names) <= 32
    for name in names:
        assert getattr(aicjax, name) is not None


def test_public_names_are_the_type_checkers_names():
    tree = ast.parse((ROOT / "aicjax" / "__init__.py").read_text(encoding="utf-8"))
    checked = {
        (node.module, alias.asname)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    table = {(home, name) for home, names in aicjax._ROOMS.items() for name in names}
    assert checked == table


def test_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(aicjax, "nonsense")  # noqa: B009


@pytest.mark.parametrize("room", sorted({path.parent.name for path in (ROOT / "aicjax").glob("*/__init__.py")}))
def test_rooms_import(room: str):
    importlib.import_module(f"aicjax.{room}")
