# SPDX-License-Identifier: Apache-2.0
"""Ordered sources of a table: against stored answers of the reference, and rule by rule on made-up databases."""

import itertools
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aicjax import _paths
from aicjax.tables import sources

REFERENCES = Path(__file__).parents[1] / "references"


def listed(*query) -> list[tuple[str, str]]:
    """Channel and version of each source."""
    return [(source.channel, source.version) for source in sources(*query)]


def test_sources_equal_the_references():
    rows = pq.read_table(REFERENCES / "source_resolution.parquet").to_pylist()
    query = ("system", "backend", "version", "table", "shared_layer")
    groups = itertools.groupby(rows, lambda row: tuple(row[name] for name in query))
    for asked, wanted in groups:
        found = [
            {
                "donor_version": source.version,
                "path": source.path.relative_to(_paths.perfdb_dir()).as_posix(),
                "channel": source.channel,
                "exists": source.exists,
                "kernel_source_filter": None if source.kernel_sources is None else "|".join(source.kernel_sources),
            }
            for source in sources(*asked)
        ]
        expected = [{name: row[name] for name in found[0]} for row in wanted]
        assert found == expected, asked


def test_missing_primary_is_listed(database):
    (only,) = sources("s", "vllm", "1.0.0", "gemm_perf")
    assert (only.channel, only.exists) == ("primary", False)
    assert only.path == database.root / "s" / "vllm" / "1.0.0" / "gemm_perf.parquet"


def test_earlier_versions_fill_nearest_first(database):
    for version in ("1.0.0", "1.2.0rc5", "1.2.0", "1.10.0", "2.0.0"):
        database.table(f"s/gemm/vllm/{version}/gemm_perf")
    earlier = [("fallback", v) for v in ("1.2.0", "1.2.0rc5", "1.0.0")]
    assert listed("s", "vllm", "1.10.0", "gemm_perf") == [("primary", "1.10.0"), *earlier]
    assert listed("s", "vllm", "1.10.0", "gemm_perf", False) == [("primary", "1.10.0")]


def test_versions_that_cannot_be_ordered_neither_fill_nor_are_filled(database):
    for version in ("1.0.0", "nightly", "2.0.0"):
        database.table(f"s/gemm/vllm/{version}/gemm_perf")
    assert listed("s", "vllm", "2.0.0", "gemm_perf") == [("primary", "2.0.0"), ("fallback", "1.0.0")]
    assert listed("s", "vllm", "nightly", "gemm_perf") == [("primary", "nightly")]


def test_incomplete_version_is_not_admitted_unless_its_collection_is_described(database):
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        database.table(f"s/gemm/vllm/{version}/gemm_perf")
    for version in ("1.0.0", "1.1.0"):
        (database.root / f"s/gemm/vllm/{version}/INCOMPLETE.txt").touch()
    (database.root / "s/gemm/vllm/1.0.0/collection_meta.yaml").touch()
    assert listed("s", "vllm", "1.2.0", "gemm_perf") == [("primary", "1.2.0"), ("fallback", "1.0.0")]
    assert not sources("s", "vllm", "1.1.0", "gemm_perf")[0].exists


def test_declared_donors_come_before_earlier_versions_and_may_be_newer(database):
    for version in ("1.0.0", "1.1.0", "1.3.0"):
        database.table(f"s/gemm/vllm/{version}/gemm_perf")
    donors = ["1.3.0", "1.0.0", "1.3.0", "9.9.9"]  # twice the same, and one that is not there
    entries = [{"table": "gemm_perf", "from_version": donor} for donor in donors]
    entries.append({"table": "moe_perf", "from_version": "1.1.0"})
    database.document("declared_reuse", {"s": {"vllm": {"1.2.0": entries}}})
    declared = [("declared_reuse", "1.3.0"), ("declared_reuse", "1.0.0")]
    assert listed("s", "vllm", "1.2.0", "gemm_perf") == [("primary", "1.2.0"), *declared, ("fallback", "1.1.0")]


def test_other_backends_give_the_kernels_that_both_run(database):
    for backend, version in (("vllm", "1.0"), ("sglang", "0.5"), ("sglang", "0.6"), ("sglang", "dev"), ("trtllm", "2")):
        database.table(f"s/moe/{backend}/{version}/moe_perf")
    groups = {"b": ["sglang", "vllm"], "a": ["sglang", "vllm"], "own": ["sglang"], "rest": ["sglang", "trtllm"]}
    database.document("reuse_groups", {"moe_perf": groups, "gemm_perf": {"a": ["trtllm", "vllm"]}})
    found = sources("s", "vllm", "1.0", "moe_perf")[1:]
    assert [(s.channel, s.version, s.kernel_sources) for s in found] == [
        ("cross_backend", version, ("a", "b")) for version in ("0.6", "0.5", "dev")
    ]


def test_all_reduce_is_filled_from_its_own_framework_only(database):
    for place in ("comm/vllm/1.0", "comm/vllm/1.1", "comm/sglang/1.0"):
        database.table(f"s/{place}/custom_allreduce_perf")
    database.document("reuse_groups", {"custom_allreduce_perf": {"k": ["sglang", "vllm"]}})
    reuse = [{"table": "custom_allreduce_perf", "from_version": "1.0"}]
    database.document("declared_reuse", {"s": {"vllm": {"1.2": reuse}}})
    filled = [("primary", "1.2"), ("fallback", "1.1"), ("fallback", "1.0")]
    assert listed("s", "vllm", "1.2", "custom_allreduce_perf") == filled


def test_table_in_comm_and_elsewhere_has_its_primary_only(database):
    for place in ("comm/vllm/1.0", "odd/vllm/1.1"):
        database.table(f"s/{place}/exchange_perf")
    assert listed("s", "vllm", "1.2", "exchange_perf") == [("primary", "1.2")]


@pytest.mark.parametrize("table", ["nccl_perf", "oneccl_perf"])
def test_library_tables_have_one_file(database, table):
    library = table.removesuffix("_perf")
    for version in ("2.26", "2.27"):
        database.table(f"s/comm/{library}/{version}/{table}")
    (only,) = sources("s", library, "2.27", table)
    assert (only.version, only.exists) == ("2.27", True)
