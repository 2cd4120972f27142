# SPDX-License-Identifier: Apache-2.0
"""The manifest of a run: every input, version and hash that is needed to repeat it."""

import hashlib
import json
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

import aicjax
from aicjax import _paths
from aicjax._results import InputError
from aicjax.explore.grid import grid_files
from aicjax.explore.result import SearchResult

FORMAT = 1
FILE_NAME = "manifest.json"


def versions() -> dict[str, Any]:
    """Versions of this program, of Python and of the packages that compute."""
    return {
        "aicjax": aicjax.__version__,
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in ("jax", "numpy")},
    }


def of_result(result: SearchResult) -> dict[str, Any]:
    """What `--from` needs to run a search again, and what tells whether the data under it are the same."""
    return {
        "format": FORMAT,
        **versions(),
        "inputs": result.inputs,
        "resolved": {name: dict(task.resolved) for name, task in result.by_backend.items()},
        "chosen": result.chosen,
        "hashes": data_hashes(result.request.constants_name, result.request.grid_name),
    }


def data_hashes(constants: str, grid: str | None) -> dict[str, str | None]:
    """SHA-256 of the files that decide the numbers: the manifest of the database, the constants, the grid if any."""
    files = {
        "database": [_paths.perfdb_dir() / "manifest.json"],
        "constants": _constants_files(constants),
        **({} if grid is None else {"grid": grid_files(grid)}),
    }
    return {name: _sha256(paths) for name, paths in files.items()}


def _constants_files(name: str) -> list[Path]:
    """The file of constants, then that of the set it builds on, and so on; a missing one is listed too."""
    try:
        path = _paths.constants_file(name)
    except InputError:
        return [Path(name)]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    base = yaml.load(path.read_text(encoding="utf-8"), Loader=loader).get("base")
    return [path, *(_constants_files(base) if base is not None else [])]


def read(path: Path) -> dict[str, Any]:
    """A manifest that `--save-dir` wrote.

    Raises:
        InputError: No such file, no JSON, or not a manifest.
    """
    file = path / FILE_NAME if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("from", str(path), f"a readable file ({error.strerror})") from None
    except json.JSONDecodeError as error:
        raise InputError("from", str(path), f"a JSON file (line {error.lineno}: {error.msg})") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise InputError("from", str(path), f"a JSON file ({error})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("inputs"), dict):
        raise InputError("from", str(path), f"a manifest of format {FORMAT}")
    return content


def read_inputs(path: Path) -> dict[str, Any]:
    """The request of a manifest, with the database version that its search used."""
    content = read(path)
    inputs = {name: value for name, value in content["inputs"].items() if value is not None}
    versions = {task["backend_version"] for task in content["resolved"].values() if "backend_version" in task}
    if len(versions) == 1:
        inputs["backend_version"] = versions.pop()
    return inputs


def changed_since(path: Path) -> list[str]:
    """Which of the hashed data differ now from those of a manifest."""
    content = read(path)
    now = data_hashes(content["inputs"]["constants"], content["inputs"]["grid"])
    return [name for name, value in content["hashes"].items() if now[name] != value]


def _sha256(paths: Sequence[Path]) -> str | None:
    """Of the files one after the other; None where one is missing."""
    if not all(path.is_file() for path in paths):
        return None
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
