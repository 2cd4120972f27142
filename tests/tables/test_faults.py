# SPDX-License-Identifier: Apache-2.0
"""Tables that timed their host: found by their siblings, and read without that time."""

import numpy as np
import pytest

from aicjax._results import DataError
from aicjax.tables import Rows, read_rows, repair
from aicjax.tables.faults import find_faults
from aicjax.tables.repair import is_repaired, read_repaired

SIZES = np.array([2**power for power in range(20)])
KERNEL_MS = 0.004 + SIZES * 1e-5  # 4 us to 5 ms
HOST_MS = 0.05
ASKED = ("s", "vllm", "1.0", "gemm_perf")


def products(database, backend: str, latency_ms, *, sizes=SIZES, shapes=(64, 128), form="fp8") -> None:
    """A table of one format, the same curve for each shape."""
    count = len(shapes)
    columns = {
        "gemm_dtype": [form] * (count * sizes.size),
        "m": np.tile(sizes, count),
        "n": np.repeat(shapes, sizes.size),
        "k": [32] * (count * sizes.size),
        "latency": np.tile(latency_ms, count),
    }
    database.table(f"s/gemm/{backend}/1.0/gemm_perf", columns)


def entries() -> list[dict]:
    return [repair.entry(fault) for fault in find_faults(["s"], ["gemm_perf"])]


@pytest.mark.parametrize("hidden", [True, False], ids=["kernels behind the host", "host and kernels in turn"])
def test_a_time_that_only_small_operators_have_is_the_hosts(database, hidden):
    products(database, "trtllm", KERNEL_MS)
    products(database, "vllm", np.maximum(KERNEL_MS, HOST_MS) if hidden else KERNEL_MS + HOST_MS)
    (found,) = entries()
    assert (found["backend"], found["where"], set(found["levels"])) == ("vllm", {"gemm_dtype": "fp8"}, {"trtllm/1.0"})
    assert found["excess_us"] == pytest.approx(46 if hidden else 50, abs=1)
    assert found["levels"]["trtllm/1.0"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    "latency_ms",
    [KERNEL_MS * 3, KERNEL_MS + 0.008, KERNEL_MS * 1.4, KERNEL_MS / 2],
    ids=["a slow kernel", "a short kernel more", "a slower kernel", "a fast kernel"],
)
def test_other_kernels_are_no_faults(database, latency_ms):
    products(database, "trtllm", KERNEL_MS)
    products(database, "vllm", latency_ms)
    assert entries() == []


def test_one_sibling_that_agrees_is_enough(database):
    products(database, "trtllm", KERNEL_MS)
    products(database, "sglang", KERNEL_MS + HOST_MS)
    products(database, "vllm", KERNEL_MS + HOST_MS)
    assert entries() == []


def test_formats_and_few_points_are_not_compared(database):
    products(database, "trtllm", KERNEL_MS, form="bfloat16")
    products(database, "vllm", KERNEL_MS + HOST_MS)
    products(database, "sglang", KERNEL_MS[:10], sizes=SIZES[:10])
    assert entries() == []


def asked_rows(system: str = "s", version: str = "1.0") -> Rows:
    rows = read_repaired(system, "vllm", version, "gemm_perf")
    assert rows is not None
    return rows


@pytest.fixture
def repairs(monkeypatch):
    """States the repairs in force, instead of those of the file."""

    def state(stated: list[dict]) -> None:
        found = [repair._repair(repair._file(), entry) for entry in stated]
        monkeypatch.setattr(repair, "_repairs", lambda path: {each.file: (each,) for each in found})

    return state


@pytest.mark.parametrize("level", [1.0, 1.2])
def test_host_times_are_taken_out_and_large_operators_kept(database, repairs, level):
    products(database, "trtllm", KERNEL_MS)
    products(database, "vllm", np.maximum(level * KERNEL_MS, HOST_MS))
    repairs(entries())
    rows = asked_rows()
    np.testing.assert_allclose(rows.number("latency"), np.tile(level * KERNEL_MS, 2), rtol=2e-3)
    assert is_repaired(rows)[np.tile(level * KERNEL_MS < HOST_MS, 2)].all()
    as_measured = read_repaired(*ASKED, repaired=False)
    assert as_measured is read_rows(*ASKED)
    assert as_measured is not None
    assert not is_repaired(as_measured).any()


def test_points_that_no_sibling_measured_stay_where_kernels_outlast_the_host(database, repairs):
    products(database, "trtllm", KERNEL_MS, shapes=(64, 128))
    products(database, "vllm", np.maximum(KERNEL_MS, HOST_MS), shapes=(64, 128, 256))
    repairs(entries())
    rows = asked_rows()
    alone = rows.number("n") == 256
    kept = rows.number("latency")[alone]
    assert alone.sum() < SIZES.size
    assert kept.tolist() == KERNEL_MS[-kept.size :].tolist()
    assert kept.min() > 3 * HOST_MS


def test_siblings_count_by_their_geometric_mean(database, repairs):
    products(database, "trtllm", KERNEL_MS)
    products(database, "sglang", KERNEL_MS * 1.21)
    products(database, "vllm", np.maximum(KERNEL_MS * 1.21, HOST_MS))
    repairs([{**entry, "levels": dict.fromkeys(entry["levels"], 1.0)} for entry in entries()])
    rows = asked_rows()
    small = rows.number("m") < 64
    np.testing.assert_allclose(rows.number("latency")[small], np.tile(KERNEL_MS[SIZES < 64] * 1.1, 2), rtol=1e-5)


def test_a_broken_entry_is_named():
    with pytest.raises(DataError, match=r"table_repairs\.yaml: an entry lacks or misstates 'system'"):
        repair._repair(repair._file(), {"table": "gemm_perf"})


def test_the_file_is_what_the_shipped_tables_say():
    """For two systems, so that the test stays fast."""
    stated = [each for repairs in repair._repairs(repair._file()).values() for each in repairs]
    for system in ("b200_sxm", "h200_sxm"):
        found = [repair.entry(fault) for fault in find_faults([system], repair.REPAIRED)]
        assert [repair._repair(repair._file(), entry) for entry in found] == [
            r for r in stated if r.file.system == system
        ]


def test_block_products_of_vllm_no_longer_wait_for_the_host():
    for system in ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300"):
        rows = asked_rows(system, "0.24.0")
        codes, forms = rows.text("gemm_dtype")
        small = (codes == forms.index("fp8_block")) & (rows.number("m") == 16)
        plain = (codes == forms.index("bfloat16")) & (rows.number("m") == 16)
        assert np.median(rows.number("latency")[small]) < 2 * np.median(rows.number("latency")[plain])
