# SPDX-License-Identifier: Apache-2.0
"""Habits that a machine can keep: headers, sizes, names, private APIs, and a public name table that resolves."""

import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

import aicjax

ROOT = Path(__file__).parents[1]
FOLDERS = ("aicjax", "tests", "examples", "benchmarks")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
MAX_LINES = 400
SPDX = "# SPDX-License-Identifier: Apache-2.0"


def _imported(source: str) -> set[str]:
    """Dotted names of the modules that a source file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_file_follows_the_conventions(path: Path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == SPDX
    assert len(lines) <= MAX_LINES, "a module has one subject"
    assert path.stem not in {"utils", "helpers", "common", "misc"}
    assert not [name for name in _imported(text) if name.startswith(("jax._src", "__future__"))]


@pytest.mark.parametrize("extra", [None, "report", "serve"])
def test_imports_are_declared_dependencies(extra: str | None):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    declared = {re.split(r"[<>=]", line)[0] for line in lines}
    package = [path for path in SOURCES if path.is_relative_to(ROOT / "aicjax") and _extra(path) == extra]
    imported = {name.split(".")[0] for path in package for name in _imported(path.read_text(encoding="utf-8"))}
    foreign = imported - set(sys.stdlib_module_names) - {"aicjax"}
    assert package
    assert {_DISTRIBUTIONS.get(name, name) for name in foreign} <= declared


def _extra(path: Path) -> str | None:
    """The extra of pyproject.toml that a module needs, or None."""
    place = path.relative_to(ROOT / "aicjax").as_posix()
    return next((extra for start, extra in _EXTRAS.items() if place.startswith(start)), None)


_EXTRAS = {"service/": "serve", "cli/fleet_serve.py": "serve", "report/html/picture.py": "report"}
_DISTRIBUTIONS = {"yaml": "pyyaml"}  # where the name that is imported is not the one that is installed


def test_public_names_resolve_and_are_few():
    names = [name for name in dir(aicjax) if name != "__version__"]
    assert len(names) <= 35
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
