# SPDX-License-Identifier: Apache-2.0
"""Rows of tables: sources one after the other, text as codes, and messages that name file, row and column."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax._results import DataError
from aicjax.tables import first_rows, read_rows

ASKED = ("s", "vllm", "1.1", "gemm_perf")


def words(column: tuple[np.ndarray, tuple[str, ...]]) -> list[str]:
    codes, vocabulary = column
    return [vocabulary[code] for code in codes]


@pytest.fixture
def two_sources(database):
    """The version's own file, and an earlier one with another set of formats and without two columns."""
    own = {"gemm_dtype": ["fp8", "bfloat16", "fp8"], "m": [1, 2, 4], "power": [5.0, 6.0, 7.0]}
    database.table("s/gemm/vllm/1.1/gemm_perf", {**own, "kernel_source": ["", "b", "a"], "latency": [0.5, 1.0, 2.0]})
    earlier = {"gemm_dtype": ["nvfp4", "fp8"], "m": [1, 2], "latency": [3.0, 4.0]}
    database.table("s/gemm/vllm/1.0/gemm_perf", earlier)
    return read_rows(*ASKED)


def test_rows_of_sources_follow_each_other(two_sources):
    assert len(two_sources) == 5
    assert two_sources.source.tolist() == [0, 0, 0, 1, 1]
    assert [source.version for source in two_sources.sources] == ["1.1", "1.0"]
    assert set(two_sources.columns) == {"gemm_dtype", "m", "latency", "power", "kernel_source"}
    assert two_sources.number("m").tolist() == [1, 2, 4, 1, 2]
    assert two_sources.number("m").dtype == np.int64
    assert two_sources.number("latency").tolist() == [0.5, 1.0, 2.0, 3.0, 4.0]
    assert two_sources.place(4).endswith("vllm/1.0/gemm_perf.parquet: row 1")


def test_text_is_coded_in_the_order_of_first_appearance(two_sources):
    codes, vocabulary = two_sources.text("gemm_dtype")
    assert (codes.dtype, vocabulary) == (np.int32, ("fp8", "bfloat16", "nvfp4"))
    assert codes.tolist() == [0, 1, 0, 2, 0]
    assert two_sources.select(np.array([3, 1])).text("gemm_dtype")[1] == ("nvfp4", "bfloat16")


def test_absent_cells_take_the_value_given_for_them(two_sources):
    assert two_sources.number("power", missing=0).tolist() == [5.0, 6.0, 7.0, 0.0, 0.0]
    assert words(two_sources.text("kernel_source", missing="default")) == ["default", "b", "a", "default", "default"]
    assert two_sources.text("kernel_source", missing="a")[1] == ("a", "b")
    assert two_sources.number("window_size", missing=0).tolist() == [0] * 5
    assert words(two_sources.text("backend", missing="none")) == ["none"] * 5
    assert not two_sources.has("window_size")


def test_absent_cells_without_a_value_are_an_error(two_sources):
    with pytest.raises(DataError, match=r"1\.0/gemm_perf\.parquet: row 0, column power: is empty"):
        two_sources.number("power")
    with pytest.raises(DataError, match=r"1\.1/gemm_perf\.parquet: row 0, column kernel_source: is empty"):
        two_sources.text("kernel_source")
    with pytest.raises(DataError, match="column window_size is missing"):
        two_sources.number("window_size")
    with pytest.raises(DataError, match="column gemm_dtype does not hold numbers"):
        two_sources.number("gemm_dtype")
    with pytest.raises(DataError, match="column m does not hold text"):
        two_sources.text("m", missing="x")


def test_selected_rows_keep_their_cells_and_places(two_sources):
    picked = two_sources.select(two_sources.is_in("gemm_dtype", ["fp8"]))
    assert picked.number("m").tolist() == [1, 4, 2]
    assert picked.select(picked.source == 0).number("power").tolist() == [5.0, 7.0]
    assert picked.place(2).endswith("1.0/gemm_perf.parquet: row 1")
    assert not two_sources.is_in("backend", ["", "none"]).any()


def test_rows_cannot_be_overwritten(two_sources):
    with pytest.raises(ValueError, match="read-only"):
        two_sources.number("latency")[0] = 0.0
    assert read_rows(*ASKED) is two_sources


def test_rows_of_other_backends_are_of_shared_kernels_only(database):
    database.table("s/moe/sglang/0.5/moe_perf", {"kernel_source": ["a", "", "b", "a"], "latency": [1.0, 2.0, 3.0, 4.0]})
    database.document("reuse_groups", {"moe_perf": {"a": ["sglang", "vllm"], "b": ["sglang"]}})
    rows = read_rows("s", "vllm", "1.0", "moe_perf", columns=["latency"])
    assert rows is not None
    assert (rows.number("latency").tolist(), rows.source.tolist()) == ([1.0, 4.0], [1, 1])
    assert read_rows("s", "vllm", "1.0", "moe_perf", shared=False) is None


def test_table_without_rows_is_none(database):
    assert read_rows(*ASKED) is None
    database.table("s/gemm/vllm/0.9/gemm_perf", {"latency": np.empty(0)})
    assert read_rows(*ASKED) is None


def test_only_the_columns_asked_for_are_read(database):
    database.table("s/gemm/vllm/1.1/gemm_perf", {"m": [1], "n": [2], "latency": [1.0]})
    rows = read_rows(*ASKED, columns=("m", "absent"))
    assert rows is not None
    assert rows.columns == ("m",)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"latency": [1.0, np.nan]}, "row 1, column latency: must be finite and not negative, but is nan"),
        ({"latency": [1.0, 1.0, -2.0]}, "row 2, column latency: must be finite and not negative, but is -2.0"),
        ({"m": [-1]}, "row 0, column m: must be finite and not negative"),
        ({"m": [1, None]}, "row 1, column m: must not be empty"),
        ({"gemm_dtype": ["fp8", None]}, "row 1, column gemm_dtype: must not be empty"),
    ],
)
def test_impossible_cell_is_refused_with_its_place(database, columns, message):
    path = database.table("s/gemm/vllm/1.1/gemm_perf", columns)
    with pytest.raises(DataError) as caught:
        read_rows(*ASKED)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_file_that_is_not_parquet_is_refused(database):
    path = database.table("s/gemm/vllm/1.1/gemm_perf")
    path.write_bytes(b"latency\n1.0\n")
    with pytest.raises(DataError, match=r"gemm_perf\.parquet: cannot be read as parquet"):
        read_rows(*ASKED)


def test_reading_does_not_import_pandas():
    read = "aicjax.tables.read_rows('h200_sxm', 'vllm', '0.24.0', 'gemm_perf')"
    code = f"import sys, aicjax.tables; {read}; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


small = st.integers(-3, 3)
wide = st.sampled_from([-(2**62), -1, 0, 1, 2**62])


@given(st.lists(st.tuples(small, wide, wide), max_size=40))
def test_first_rows_are_those_a_dictionary_keeps(keys):
    kept: dict[tuple, int] = {}
    for row, key in enumerate(keys):
        kept.setdefault(key, row)
    columns = np.array(keys, np.int64).reshape(-1, 3).T
    assert first_rows(*columns).tolist() == list(kept.values())
