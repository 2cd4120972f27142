# SPDX-License-Identifier: Apache-2.0
"""Importing a release: what is kept, what is refused, and that the same input gives the same bytes."""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from aicjax._results import DataError, InputError
from aicjax.tables.encoding import decode
from aicjax.tables.importer import import_database
from aicjax.tables.manifest import load_manifest
from aicjax.tables.verify import verify_database
from tests.tables import published


def _files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _stored(database: Path, name: str) -> dict[str, list[Any]]:
    return decode((database / f"{name}.parquet").read_bytes(), name).to_pydict()


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return published.write_release(tmp_path / "release")


@pytest.fixture
def database(release: Path, tmp_path: Path) -> Path:
    import_database(release, tmp_path / "perfdb")
    return tmp_path / "perfdb"


def test_same_bytes_from_folder_systems_folder_wheel_and_again(release: Path, database: Path, tmp_path: Path):
    sources = {
        "again": release,
        "package": release / published.PACKAGE,
        "systems": release / published.PACKAGE / "systems",
        "wheel": published.write_wheel(release, tmp_path / "release.whl"),
    }
    for name, source in sources.items():
        import_database(source, tmp_path / name)
        assert _files(tmp_path / name) == _files(database), name


def test_manifest_says_where_the_numbers_come_from(release: Path, database: Path):
    manifest = load_manifest(database)
    assert (manifest.package, manifest.version, manifest.licence) == ("measurements-core", "0.12.0", "Apache-2.0")
    assert set(manifest.tables) == {f"{name}.parquet" for name in published.tables()}
    assert manifest.skipped == tuple(sorted(f"{name}.parquet" for name in (published.INCOMPLETE, published.UNKNOWN)))
    entry = manifest.tables[f"{published.GEMM}.parquet"]
    source = release / published.PACKAGE / "systems" / "data" / f"{published.GEMM}.parquet"
    assert (entry.rows, entry.source_rows, entry.order) == (4, 5, "walk")
    assert entry.source_sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert entry.sha256 == hashlib.sha256((database / f"{published.GEMM}.parquet").read_bytes()).hexdigest()
    assert manifest.tables[f"{published.SPARSE}.parquet"].stated_versions == ("1.3.0rc20",)
    assert verify_database(database).tables == len(published.tables())


def test_bare_folder_has_an_unknown_source(release: Path, tmp_path: Path):
    bare = (release / published.PACKAGE).rename(tmp_path / "bare")
    manifest = import_database(bare, tmp_path / "perfdb").manifest
    assert (manifest.package, manifest.version, manifest.licence) == ("unknown",) * 3


def test_repeated_rows_count_once_and_path_columns_are_dropped(database: Path):
    stored = _stored(database, published.GEMM)
    assert list(stored) == ["gemm_dtype", "m", "n", "k", "kernel_source", "latency"]
    assert list(zip(*stored.values(), strict=True)) == [
        ("fp8", 64, 512, 256, "cublas", 0.5),
        ("fp8", 64, 128, 256, "cublas", 0.125),
        ("fp8", 32, 512, 256, "cublas", 0.25),
        ("bfloat16", 64, 512, 256, "cublas", 1.0),
    ]


def test_last_row_counts_where_a_later_row_corrects(database: Path):
    assert _stored(database, published.SPARSE)["latency"] == pytest.approx([0.4], rel=1e-7)


def test_lanes_keep_their_order_and_absent_columns_their_default(database: Path):
    stored = _stored(database, published.CONTEXT)
    assert stored["kernel_source"] == ["lane_b", "lane_b", "lane_a"]
    assert stored["isl"] == [1, 16, 16]
    assert stored["window_size"] == [0, 0, 0]
    assert not {"step", "beam_width"} & stored.keys()


def test_durations_are_milliseconds_in_float32(database: Path):
    stored = decode((database / f"{published.ALL_TO_ALL}.parquet").read_bytes(), "")
    assert stored["latency"].type == pa.float32()
    assert stored["latency"].to_pylist() == [np.float32(0.025)]
    assert stored["sms"].to_pylist() == [0]
    assert "transmit_us" not in stored.column_names


def test_zero_is_a_measurement_only_where_the_schema_says_so(database: Path):
    assert _stored(database, published.SCALE)["latency"][0] == 0.0


def test_row_order_stays_where_grouping_would_change_an_answer(tmp_path: Path):
    rows = published.tables()[published.ALLREDUCE]
    rows = {
        **{name: cells * 2 for name, cells in rows.items()},
        "num_gpus": [2, 2, 2, 2],
        "message_size": [256, 128, 128, 256],  # `graph` is met first, but `other_eager` measured 128 first
        "latency": [1.0, 2.0, 3.0, 4.0],
    }
    import_database(published.write_release(tmp_path / "release", {published.ALLREDUCE: rows}), tmp_path / "perfdb")
    assert load_manifest(tmp_path / "perfdb").tables[f"{published.ALLREDUCE}.parquet"].order == "source"
    assert _stored(tmp_path / "perfdb", published.ALLREDUCE)["latency"] == [1.0, 2.0, 3.0, 4.0]


def test_documents_hold_what_maintainers_decided(database: Path):
    documents = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in database.glob("*.yaml")}
    assert all(document.pop("schema_version") == 1 for document in documents.values())
    collections = documents.pop("collections")["collections"]
    assert documents == {
        "version_slots": {"defaults": {"trtllm": {"current": "1.3.0rc20", "previous": None}}, "overrides": {}},
        "attention_lanes": {"sglang": {"0.5.14": {90: "fa3"}}},
        "reuse_groups": {"gdn_perf": {"conv": ["sglang", "vllm"]}},
        "declared_reuse": {
            "h200_sxm": {
                "trtllm": {"1.3.0rc23": [{"table": "gemm_perf", "from_version": "1.3.0rc20", "approved_by": "someone"}]}
            }
        },
    }
    assert collections["h200_sxm/gemm/trtllm/1.3.0rc20"] == {"provenance": "collected", "partial": ["gemm_perf"]}
    assert collections["h200_sxm/gemm/trtllm/1.3.0rc23"] == {}
    assert collections["h200_sxm/gemm/vllm/0.24.0"] == {"vetoed": True}


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("latency", [1.0, math.nan], "row 1, column latency: must be finite and positive, but is nan"),
        ("latency", [1.0, math.inf], "row 1, column latency: must be finite and positive, but is inf"),
        ("latency", [0.0, 1.0], "row 0, column latency: must be finite and positive, but is 0.0"),
        ("latency", [1.0, -1.0], "row 1, column latency: must be finite and positive, but is -1.0"),
        ("latency", [1.0, None], "row 1, column latency: must be finite and positive, but is None"),
        ("latency", ["fast", "slow"], "column latency must hold numbers, but holds string"),
        ("m", [1, 0], "row 1, column m: must be a whole number of at least 1, but is 0"),
        ("m", [1.0, 2.5], "row 1, column m: must be a whole number of at least 1, but is 2.5"),
        ("m", [1, None], "row 1, column m: must not be empty, but is None"),
        ("gemm_dtype", ["fp8", "fp7"], "row 1, column gemm_dtype: must be one of .*did you mean fp.*, but is 'fp7'"),
        ("gemm_dtype", [8, 8], "column gemm_dtype must hold text, but holds int64"),
        ("gemm_dtype", [None, None], "row 0, column gemm_dtype: must not be empty"),
        ("latency_us", [1.0, 2.0], "column latency_us is unknown"),
        ("n", None, "column n is missing"),
    ],
)
def test_release_that_breaks_the_schema_is_refused(column: str, cells: list | None, message: str, tmp_path: Path):
    columns = published.gemm_columns([("fp8", 1, 8, 8, 1.0), ("fp8", 2, 8, 8, 1.0)])
    columns |= {column: cells or []}
    if cells is None:
        del columns[column]
    release = published.write_release(tmp_path / "release", {published.GEMM: columns})
    with pytest.raises(DataError, match=rf"^{published.GEMM}.parquet: {message}"):
        import_database(release, tmp_path / "perfdb")
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


def test_repeated_key_is_refused_where_the_published_rules_refuse_it(tmp_path: Path):
    name = "gb200/moe/sglang/0.5.10/dsv4_megamoe_module_perf"
    texts = "phase kernel_source kernel_dtype moe_dtype pre_dispatch source_policy distribution buffer_policy".split()
    counts = "topk num_experts hidden_size inter_size moe_tp_size moe_ep_size num_tokens".split()
    flags = "includes_routed_scale includes_gate_topk includes_buffer_init used_cuda_graph".split()
    columns = {
        **{text: ["any", "any"] for text in texts},
        "phase": ["context", "context"],
        "moe_dtype": ["fp8", "fp8"],
        **{count: [1, 1] for count in counts},
        "num_fused_shared_experts": [0, 0],
        "routed_scaling_factor": [2.5, 2.5],
        **{flag: [True, True] for flag in flags},
        "latency": [1.0, 1.0],
    }
    release = published.write_release(tmp_path / "release", {name: columns})
    with pytest.raises(DataError, match=rf"^{name}.parquet: row 1 repeats the phase, kernel_source"):
        import_database(release, tmp_path / "perfdb")


def test_declared_reuse_must_say_who_and_why(release: Path, tmp_path: Path):
    path = release / published.PACKAGE / "systems/data/h200_sxm/gemm/trtllm/1.3.0rc23/reuse.yaml"
    path.write_text("reuse:\n- {table: gemm_perf, from_version: 1.3.0rc20, approved_by: someone}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"reuse\.yaml: reuse\[0\]\.reason must be a text"):
        import_database(release, tmp_path / "perfdb")


def test_refused_import_leaves_the_database_as_it_was(database: Path, tmp_path: Path):
    before = _files(database)
    broken = published.write_release(
        tmp_path / "broken", {published.SCALE: {**published.tables()[published.SCALE], "latency": [-1.0, 1.0]}}
    )
    with pytest.raises(DataError):
        import_database(broken, database)
    assert _files(database) == before


def test_newer_release_replaces_and_removes_what_it_has_not_got(release: Path, database: Path):
    gone = release / published.PACKAGE / "systems" / "data" / f"{published.ALL_TO_ALL}.parquet"
    gone.unlink()
    (database / "notes.txt").write_text("kept", encoding="utf-8")
    report = import_database(release, database)
    assert report.removed == (f"{published.ALL_TO_ALL}.parquet",)
    assert not (database / f"{published.ALL_TO_ALL}.parquet").exists()
    assert (database / f"{published.ALLREDUCE}.parquet").exists()
    assert (database / "notes.txt").exists()
    verify_database(database)


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_source_without_measurements_is_refused(kind: str, tmp_path: Path):
    source = tmp_path / "source"
    if kind == "empty":
        source.mkdir()
    if kind == "file":
        source.write_text("no wheel", encoding="utf-8")
    with pytest.raises(InputError, match="Argument `source` must be a wheel file or a folder with systems/data/"):
        import_database(source, tmp_path / "perfdb")
