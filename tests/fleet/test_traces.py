# SPDX-License-Identifier: Apache-2.0
"""Trace files: every layout, renamed columns, dates; refused rows are counted and named; statistics."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax._results import DataError, InputError
from aicjax.fleet.inputs import load_of
from aicjax.fleet.requests import SizeRequest
from aicjax.fleet.trace_statistics import trace_statistics
from aicjax.fleet.traces import Layout, Trace, load_trace, trace_of

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:05.0000000,31,7
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
"""


def _write(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_dates_are_times_and_rows_are_sorted(tmp_path: Path):
    trace = load_trace(_write(tmp_path, AZURE))
    np.testing.assert_allclose(trace.time_s, [0.0, 0.052, 1.02004], atol=1e-6)
    np.testing.assert_array_equal(trace.isl, [4808, 3180, 31])
    np.testing.assert_array_equal(trace.osl, [10, 8, 7])
    assert trace.refused == 0 and trace.first_refusal == ""


def test_time_zones_count(tmp_path: Path):
    rows = "2024-05-10 02:00:00.5+02:00,5,1\n2024-05-10T00:00:00Z,6,1\n"
    trace = load_trace(_write(tmp_path, AZURE.splitlines()[0] + "\n" + rows))
    np.testing.assert_array_equal(trace.isl, [6, 5])
    np.testing.assert_allclose(trace.time_s, [0.0, 0.5])


def test_block_hashes_say_what_is_repeated(tmp_path: Path):
    rows = [
        {"timestamp": 0, "input_length": 1500, "output_length": 5, "hash_ids": [1, 2, 3]},
        {"timestamp": 3500, "input_length": 1400, "output_length": 6, "hash_ids": [1, 2, 9]},
        {"timestamp": 4000, "input_length": 700, "output_length": 7, "hash_ids": [1, 2]},
        {"timestamp": 5000, "input_length": 600, "output_length": 7, "hash_ids": [7, 1]},
    ]
    trace = load_trace(_write(tmp_path, "\n".join(map(json.dumps, rows)), "trace.jsonl"))
    np.testing.assert_allclose(trace.time_s, [0.0, 3.5, 4.0, 5.0])
    np.testing.assert_array_equal(trace.repeated_tokens, [0, 1024, 700, 0])


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "txt"])
def test_a_semantic_router_log_names_models(tmp_path: Path, kind: str):
    rows = [
        {"timestamp": 10.5, "prompt_tokens": 100, "generated_tokens": 20, "selected_model": "a", "category": "code"},
        {"timestamp": 11.0, "prompt_tokens": 50, "generated_tokens": 30, "selected_model": "b", "category": ""},
    ]
    if kind in ("csv", "tsv"):
        mark = "," if kind == "csv" else "\t"
        text = "\n".join([mark.join(rows[0]), *(mark.join(map(str, row.values())) for row in rows)])
    else:
        text = "\n".join(map(json.dumps, rows))
    trace = load_trace(_write(tmp_path, text, f"log.{kind}"))
    assert trace.model.tolist() == ["a", "b"] and trace.category.tolist() == ["code", ""]
    np.testing.assert_array_equal(trace.isl, [100, 50])
    assert trace_statistics(trace).models == {"a": 0.5, "b": 0.5}


def test_columns_can_have_other_names(tmp_path: Path):
    path = _write(tmp_path, "when,in,out,num_decode_tokens\n1,10,2,9\n3,20,4,9\n")
    trace = load_trace(path, "splitwise", {"time": "when", "isl": "in", "osl": "out"})
    np.testing.assert_array_equal(trace.osl, [2, 4])
    same = load_trace(path, Layout("when", "in", "num_decode_tokens", seconds=60.0))
    np.testing.assert_allclose(same.time_s, [0.0, 120.0])
    np.testing.assert_array_equal(same.osl, [9, 9])


def test_refused_rows_are_counted_and_the_first_is_named(tmp_path: Path):
    bad = (
        "never,1,2\n2023-11-16 18:17:06,,3\n2023-11-16 18:17:06,0,3\n2023-11-16 18:17:06,1.5,3\n2023-11-16 18:17:06,3\n"
    )
    path = _write(tmp_path, AZURE + bad)
    trace = load_trace(path)
    assert (trace.isl.size, trace.refused) == (3, 5)
    assert trace.first_refusal == f"{path}: row 5: column `TIMESTAMP` must be a time, but got 'never'"
    with pytest.raises(DataError, match="row 5: column `TIMESTAMP`"):
        load_trace(path, strict=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns fit none of azure"),
        ("a,b\n1,2\n", "the file has a, b"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "needs at least one request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,x,3\n", "row 2: column `ContextTokens` must be 1 to"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,4\n", "row 2: 2 columns instead of 3"),
        ("{}\n", "columns fit none of"),
        ("{\n", "row 1: not a JSON object"),
    ],
)
def test_a_file_without_a_request_is_an_error_of_one_line(tmp_path: Path, text: str, message: str):
    with pytest.raises(DataError, match=message) as caught:
        load_trace(_write(tmp_path, text))
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_bad_arguments_are_named(tmp_path: Path):
    path = _write(tmp_path, AZURE)
    with pytest.raises(InputError, match="`trace_format`"):
        load_trace(path, "azur")
    with pytest.raises(InputError, match="`columns`"):
        load_trace(path, columns={"tokens": "x"})
    with pytest.raises(DataError, match="column `x` is missing"):
        load_trace(path, "azure", {"isl": "x"})
    with pytest.raises(InputError, match="at most 10 bytes"):
        load_trace(path, most_bytes=10)
    with pytest.raises(InputError, match="at most 2 rows"):
        load_trace(path, most_rows=2)
    with pytest.raises(InputError, match="`trace`"):
        load_trace(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        load_trace(tmp_path / "bytes.csv")


@given(text=st.text(max_size=200), header=st.booleans())
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str, header: bool):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(((AZURE if header else "") + text).encode("utf-8", "replace"))
    try:
        trace = load_trace(path)
    except DataError:
        assert not header
    else:
        assert trace.isl.size >= 3 and np.isfinite(trace.time_s).all() and (np.diff(trace.time_s) >= 0).all()


def test_statistics_tell_poisson_from_bursts():
    rng = np.random.default_rng(0)
    n = 20_000
    isl, osl = rng.integers(1, 1000, n), np.full(n, 10)
    poisson = trace_statistics(trace_of(rng.exponential(0.1, n), isl, osl), window_s=10.0)
    assert poisson.rate_per_s == pytest.approx(10.0, rel=0.03)
    assert poisson.gap_cv2 == pytest.approx(1.0, abs=0.06)
    assert poisson.dispersion == pytest.approx(1.0, abs=0.4)
    assert poisson.isl[50] == np.percentile(isl, 50) and poisson.osl == dict.fromkeys((50, 90, 95, 99), 10.0)
    gaps_s = np.where(np.arange(n) % 100 == 0, 10.0, 0.0)  # a hundred at once, every ten seconds
    bursts = trace_statistics(trace_of(gaps_s, isl, osl), window_s=30.0)
    assert bursts.gap_cv2 == pytest.approx(99.0, rel=0.01)
    assert bursts.rate_per_s == pytest.approx(10.0, rel=0.03)


def test_a_trace_has_gaps_and_lengths():
    trace = trace_of(np.array([5.0, 1.0, 3.0]), np.array([10, 20, 10]), np.array([1, 2, 1]))
    np.testing.assert_allclose(trace.gaps_s(), [2.0, 1.0, 3.0])
    law = trace.lengths()
    np.testing.assert_allclose(law.isl, [10, 20])
    np.testing.assert_allclose(law.weight, [2 / 3, 1 / 3])


def test_one_request_is_a_trace():
    trace = trace_of(np.array([5.0]), np.array([10]), np.array([1]))
    found = trace_statistics(trace)
    assert isinstance(trace, Trace) and trace.gaps_s().tolist() == [0.0]
    assert (found.requests, found.rate_per_s, found.gap_cv2, found.dispersion) == (1, 0.0, 0.0, 0.0)


def test_a_load_is_what_the_statistics_of_its_trace_say(tmp_path: Path):
    path = _write(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n0,10,2\n1,10,2\n4,10,2\n")
    request = SizeRequest(trace=path)
    stated = trace_statistics(load_trace(path))
    assert load_of(request) == (stated.rate_per_s, stated.gap_cv2) == (0.5, 0.25)
    rewritten = path.stat().st_mtime_ns + 1
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,10,2\n4,10,2\n")
    os.utime(path, ns=(rewritten, rewritten))
    assert load_of(request)[0] == 0.25
