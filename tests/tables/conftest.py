# SPDX-License-Identifier: Apache-2.0
"""A database made up for one test."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from aicjax import _paths


class MadeDatabase:
    """A database in a temporary directory, in use while the test runs."""

    def __init__(self, root: Path):
        self.root = root

    def table(self, place: str, columns: Mapping[str, Sequence] | None = None) -> Path:
        """Writes `<system>/<family>/<backend>/<version>/<table>`; one row with latency 1 when no columns are given."""
        path = self.root / f"{place}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(dict(columns or {"latency": [1.0]})), path, store_schema=False)
        return path

    def document(self, name: str, content: object) -> None:
        """Writes `<name>.yaml`."""
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / f"{name}.yaml").write_text(yaml.safe_dump(content))


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeDatabase:
    monkeypatch.setenv(_paths.DATA_ENV, str(tmp_path))
    return MadeDatabase(tmp_path / "perfdb")
