# SPDX-License-Identifier: Apache-2.0
"""Checking a database, and the commands that import, list and check one."""

import dataclasses
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from aicjax import _paths
from aicjax._results import DataError
from aicjax.cli.app import run
from aicjax.tables.encoding import decode, encode
from aicjax.tables.importer import import_database
from aicjax.tables.manifest import MANIFEST, load_manifest, sha256
from aicjax.tables.verify import verify_database
from tests.tables import published


@pytest.fixture
def database(tmp_path: Path) -> Path:
    import_database(published.write_release(tmp_path / "release"), tmp_path / "perfdb")
    return tmp_path / "perfdb"


def _rewrite(database: Path, name: str, rows: pa.Table, **facts: object) -> None:
    """Replaces a table and its entry in the manifest, so that only what the rows break is off."""
    content = encode(rows)
    (database / f"{name}.parquet").write_bytes(content)
    manifest = load_manifest(database)
    entry = dataclasses.replace(manifest.tables[f"{name}.parquet"], sha256=sha256(content), rows=rows.num_rows, **facts)
    changed = dataclasses.replace(manifest, tables=manifest.tables | {f"{name}.parquet": entry})
    (database / MANIFEST).write_text(changed.to_json(), encoding="utf-8")


def test_database_in_order_passes(database: Path):
    report = verify_database(database)
    assert (report.tables, report.rows, report.documents) == (6, 13, 5)


def test_changed_byte_is_found(database: Path):
    path = database / f"{published.GEMM}.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"gemm_perf\.parquet: its hash is not the one"):
        verify_database(database)


def test_changed_document_is_found(database: Path):
    with (database / "version_slots.yaml").open("a", encoding="utf-8") as file:
        file.write("# edited\n")
    with pytest.raises(DataError, match=r"version_slots\.yaml: its hash"):
        verify_database(database)


def test_missing_and_unlisted_tables_are_found(database: Path):
    path = database / f"{published.GEMM}.parquet"
    stray = database / "h200_sxm/gemm/trtllm/1.3.0rc23/gemm_perf.parquet"
    stray.parent.mkdir()
    shutil.copy(path, stray)
    with pytest.raises(DataError, match=r"1\.3\.0rc23/gemm_perf\.parquet: is not in manifest\.json"):
        verify_database(database)
    path.unlink()
    with pytest.raises(DataError, match=r"1\.3\.0rc20/gemm_perf\.parquet: cannot be read: No such file"):
        verify_database(database)


def test_row_count_is_checked(database: Path):
    text = (database / MANIFEST).read_text(encoding="utf-8")
    (database / MANIFEST).write_text(text.replace('"rows": 4,', '"rows": 5,'), encoding="utf-8")
    with pytest.raises(DataError, match=r"gemm_perf\.parquet: has 4 rows, but manifest\.json says 5"):
        verify_database(database)


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("latency", pa.array([1.0, 2.0, 3.0, 0.0], pa.float32()), "row 3, column latency: the number is outside"),
        ("latency", pa.array([1.0, 2.0, 3.0, 4.0], pa.float64()), "column latency must be float32, but is double"),
        ("m", pa.array([1, 2, 3, 0], pa.int32()), "row 3, column m: the number is outside"),
        ("m", pa.array([1, 2, 3, None], pa.int32()), "column m must be int32 without empty cells"),
        ("m", pa.array(["1"] * 4), "column m must be int32"),
        ("gemm_dtype", pa.array(["fp7"] * 4), "column gemm_dtype must hold known texts, but has 'fp7'"),
        ("gemm_dtype", pa.array([1] * 4), "column gemm_dtype must hold known texts"),
        ("extra", pa.array([1] * 4), "column extra is unknown"),
        ("k", None, "column k is missing"),
    ],
)
def test_schema_is_checked(column: str, cells: pa.Array | None, message: str, database: Path):
    rows = decode((database / f"{published.GEMM}.parquet").read_bytes(), "")
    if column in rows.column_names:
        rows = rows.drop_columns([column])
    _rewrite(database, published.GEMM, rows if cells is None else rows.append_column(column, cells))
    with pytest.raises(DataError, match=rf"gemm_perf\.parquet: {message}"):
        verify_database(database)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no manifest"),
        ("{}", "is no manifest"),
        ('{"schema_version": 99}', "schema_version must be 1, but is 99"),
    ],
)
def test_broken_manifest_is_named(text: str, message: str, database: Path):
    (database / MANIFEST).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=rf"manifest\.json: {message}"):
        load_manifest(database)


def test_path_out_of_the_database_is_refused(database: Path):
    text = (database / MANIFEST).read_text(encoding="utf-8")
    (database / MANIFEST).write_text(text.replace("h200_sxm/gemm/", "../gemm/"), encoding="utf-8")
    with pytest.raises(DataError, match=r"manifest\.json: '\.\./gemm/.*' is no path of the database"):
        load_manifest(database)


def test_commands_import_list_and_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv(_paths.DATA_ENV, str(tmp_path))
    release = published.write_release(tmp_path / "release", {})
    assert run(["db", "verify"]) == 2
    assert "manifest.json: is missing" in capsys.readouterr().err
    assert run(["db", "import", str(release)]) == 0
    out = capsys.readouterr().out
    assert "measurements-core 0.12.0 (Apache-2.0)" in out
    assert "6 tables, 13 of 15 rows" in out
    assert "novel_perf.parquet" in out
    assert run(["db", "verify"]) == 0
    assert "6 tables with 13 rows and 5 documents are in order" in capsys.readouterr().out

    assert run(["db", "info", "--system", "gb200", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [table["table"] for table in listed["tables"]] == ["custom_allreduce_perf", "moe_a2a_perf"]
    assert listed["rows"] == 3
    assert run(["db", "info"]) == 0
    assert "computescale_perf" in capsys.readouterr().out
    assert run(["db", "info", "--system", "gb201"]) == 2
    assert "did you mean gb200?" in capsys.readouterr().err

    (tmp_path / "perfdb" / f"{published.SCALE}.parquet").unlink()
    assert run(["db", "verify"]) == 2
    assert "computescale_perf.parquet" in capsys.readouterr().err
