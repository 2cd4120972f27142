# SPDX-License-Identifier: Apache-2.0
"""What lies where in the database: `<system>/<family>/<backend>/<version>/<table>.parquet`."""

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aicjax import _paths
from aicjax._names import one_of
from aicjax._results import DataError, InputError

BACKENDS = ("sglang", "trtllm", "vllm")
COMM = "comm"  # the family whose versions are those of a communication library or framework
SUFFIX = ".parquet"
_INCOMPLETE, _COLLECTED = "INCOMPLETE.txt", "collection_meta.yaml"  # a collector's notes beside its tables


@dataclass(frozen=True)
class Tree:
    """Table files of one system, listed once.

    Attributes:
        directory: `<database>/<system>`.
        files: Names of the tables in each (family, backend, version) directory, families in alphabetical order.
    """

    directory: Path
    files: dict[tuple[str, str, str], frozenset[str]]

    def families(self, table: str) -> set[str]:
        """Families that hold the table for some backend and version."""
        return {family for (family, _, _), tables in self.files.items() if table in tables}

    def versions(self, backend: str, family: str | None = None) -> set[str]:
        """Versions with a directory for the backend, in one family or in any."""
        return {v for f, b, v in self.files if b == backend and family in (None, f)}

    def backends(self) -> list[str]:
        """Serving frameworks with a directory."""
        return [backend for backend in BACKENDS if self.versions(backend)]

    def find(self, backend: str, version: str, table: str) -> tuple[str | None, Path]:
        """Family and path of a table; without one, None and a path that does not exist."""
        for (family, b, v), tables in self.files.items():
            if (b, v) == (backend, version) and table in tables:
                return family, self.directory / family / b / v / f"{table}{SUFFIX}"
        return None, self.directory / backend / version / f"{table}{SUFFIX}"


def tree(system: str) -> Tree:
    """Tree of a system of the database in use; empty when nothing is measured on it."""
    return _tree(_paths.perfdb_dir() / system)


def measured_systems() -> list[str]:
    """Systems with a directory in the database in use."""
    return sorted(path.name for path in _paths.perfdb_dir().iterdir() if path.is_dir() and _visible(path.name))


@functools.cache
def _tree(directory: Path) -> Tree:
    files = {}
    for family, path in _subdirectories(str(directory)):
        for backend, backend_path in _subdirectories(path):
            for version, version_path in _subdirectories(backend_path):
                names = set(os.listdir(version_path))
                if _INCOMPLETE not in names or _COLLECTED in names:
                    tables = frozenset(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
                    files[family, backend, version] = tables
    return Tree(directory, files)


def _subdirectories(path: str) -> Iterator[tuple[str, str]]:
    if os.path.isdir(path):
        with os.scandir(path) as entries:
            yield from sorted((entry.name, entry.path) for entry in entries if _visible(entry.name) and entry.is_dir())


def _visible(name: str) -> bool:
    return not name.startswith((".", "_"))


def require_backend(backend: str) -> None:
    """Raises InputError when `backend` is not a serving framework we know."""
    if backend not in BACKENDS:
        raise InputError("backend", backend, one_of(backend, BACKENDS))


def document(name: str) -> dict[str, Any]:
    """One of the database's own YAML files, `<database>/<name>.yaml`; empty when it is not there."""
    return _document(_paths.perfdb_dir() / f"{name}.yaml")


@functools.cache
def _document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise DataError(f"{path}: is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: must be a mapping")
    return content
