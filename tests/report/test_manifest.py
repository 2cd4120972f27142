# SPDX-License-Identifier: Apache-2.0
"""The manifest of a run: what is written is what repeats the search, and bad files are refused in one line."""

import json
import shutil
from pathlib import Path

import pytest

from aicjax import _paths
from aicjax._results import InputError
from aicjax.compat import DEFAULT_CONSTANTS
from aicjax.explore.request import SearchRequest
from aicjax.report import manifest
from tests.report.results import result


def _written(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / manifest.FILE_NAME
    path.write_text(json.dumps({**manifest.of_result(result()), **changes}))
    return path


def test_request_comes_back_with_the_version_that_was_used(tmp_path: Path):
    inputs = manifest.read_inputs(_written(tmp_path))
    used = {"backend_version": "1.0", "grid": "full", "constants": DEFAULT_CONSTANTS}
    assert SearchRequest(**inputs) == result(**used).request


def test_a_folder_stands_for_its_manifest(tmp_path: Path):
    _written(tmp_path)
    assert manifest.read_inputs(tmp_path)["isl"] == 4000


def test_changed_data_are_named(tmp_path: Path):
    path = _written(tmp_path)
    assert manifest.changed_since(path) == []
    path = _written(tmp_path, hashes={**manifest.data_hashes(DEFAULT_CONSTANTS, "full"), "database": "0"})
    assert manifest.changed_since(path) == ["database"]


def test_missing_constants_are_named(tmp_path: Path):
    path = _written(tmp_path)
    content = json.loads(path.read_text())
    content["inputs"]["constants"] = str(tmp_path / "gone.yaml")
    path.write_text(json.dumps(content))
    assert manifest.changed_since(path) == ["constants"]


def test_grid_is_hashed_with_the_one_that_it_extends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "configs").mkdir()
    shutil.copytree(_paths.configs_dir() / "grids", tmp_path / "configs" / "grids")
    monkeypatch.setenv(_paths.DATA_ENV, str(tmp_path))
    before = manifest.data_hashes("none", "full")["grid"]
    (tmp_path / "configs" / "grids" / "reference.yaml").write_text("other: lists")
    assert before != manifest.data_hashes("none", "full")["grid"]


@pytest.mark.parametrize(
    ("content", "rule"),
    [("{", "a JSON file"), ("[]", "a manifest of format"), ('{"format": 0}', "a manifest of format")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, rule: str):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(InputError, match=rule):
        manifest.read_inputs(path)


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="a readable file"):
        manifest.read_inputs(tmp_path / "none.json")
