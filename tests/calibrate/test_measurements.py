# SPDX-License-Identifier: Apache-2.0
"""Files of measured servers: what is shipped, what can be read, and what the data rules flag."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from aicjax._results import DataError, InputError
from aicjax.calibrate import data_rules
from aicjax.calibrate.measurements import (
    Measurements,
    WorkerColumns,
    merge_sources,
    peer_times,
    read_measurements,
    shipped_path,
)
from aicjax.calibrate.predict import Prediction

SAMPLE = Path(__file__).parents[1] / "references" / "silicon" / "servers.parquet"


@pytest.fixture(scope="module")
def shipped() -> Measurements:
    return read_measurements()


def _alike(rows: Measurements, **changed) -> Measurements:
    """Copies of the first in-flight batching row, one for each value of the changed columns."""
    count = len(next(iter(changed.values())))
    first = rows.take(np.repeat(np.flatnonzero(rows.is_agg & (rows.duplicate_rank == 0) & rows.clean)[:1], count))
    return dataclasses.replace(first, **{name: np.asarray(values) for name, values in changed.items()})


def _prediction(rows: Measurements, prefill_ms: float, decode_ms: float) -> Prediction:
    count = len(rows)
    return Prediction(
        ttft_ms=np.ones(count),
        tpot_ms=np.ones(count),
        prefill_ms=np.full(count, prefill_ms),
        decode_ms=np.full(count, decode_ms),
        attempt=np.full(count, "SILICON"),
        reason=np.full(count, ""),
    )


def test_shipped_rows_are_those_of_the_split_rule(shipped):
    names = np.char.add(np.char.add(shipped.model_family, "|"), shipped.system)
    groups = {str(name): set(shipped.split[names == name]) for name in np.unique(names)}
    assert (len(shipped), len(groups)) == (4213, 26)
    for name, splits in groups.items():
        bucket = int(hashlib.sha256(f"silicon-v1.4|{name}".encode()).hexdigest()[:8], 16) % 100
        assert splits == {"validation" if bucket < 40 else "train"}
        assert bucket >= 20
    assert shipped_path().stat().st_size < 1_000_000


def test_clean_is_what_the_rules_say(shipped):
    np.testing.assert_array_equal(data_rules.clean(shipped), shipped.clean)
    assert shipped.clean.sum() == 2354


def test_saturated_is_what_is_stored(shipped):
    np.testing.assert_array_equal(data_rules.saturated(shipped), shipped.queue_saturated)


def test_workers_of_clean_rows_are_known(shipped):
    rows = shipped.take(shipped.clean)
    known = np.where(rows.is_agg, rows.agg.known, rows.prefill.known & rows.decode.known)
    assert known.all()
    assert (rows.concurrency > 0).all()


def test_csv_and_parquet_give_the_same_rows(tmp_path):
    table = pq.read_table(SAMPLE)
    pyarrow.csv.write_csv(table, tmp_path / "servers.csv")
    expected, found = read_measurements([SAMPLE]), read_measurements([tmp_path / "servers.csv"])
    for field in dataclasses.fields(Measurements):
        left, right = getattr(expected, field.name), getattr(found, field.name)
        if isinstance(left, WorkerColumns):
            for part in dataclasses.fields(WorkerColumns):
                np.testing.assert_array_equal(getattr(left, part.name), getattr(right, part.name))
        else:
            np.testing.assert_array_equal(left, right)


def test_files_are_joined():
    once, twice = read_measurements([SAMPLE]), read_measurements([SAMPLE, SAMPLE])
    np.testing.assert_array_equal(twice.row, np.tile(once.row, 2))
    np.testing.assert_array_equal(twice.decode.batch, np.tile(once.decode.batch, 2))


def test_concurrency_that_is_not_stated_is_that_of_the_batches(tmp_path):
    table = pq.read_table(SAMPLE)
    unknown = pa.nulls(table.num_rows, pa.int32())
    pq.write_table(table.drop_columns(["concurrency"]).append_column("concurrency", unknown), tmp_path / "a.parquet")
    rows = read_measurements([tmp_path / "a.parquet"])
    agg = rows.is_agg
    np.testing.assert_array_equal(rows.concurrency[agg], (rows.agg.batch * rows.agg.dp)[agg])
    expected = (rows.decode.batch * rows.decode.dp * rows.decode.count)[~agg]
    np.testing.assert_array_equal(rows.concurrency[~agg], expected)


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="FILE"):
        read_measurements([tmp_path / "none.parquet"])
    table = pq.read_table(SAMPLE)
    pq.write_table(table.drop_columns(["isl"]), tmp_path / "short.parquet")
    with pytest.raises(DataError, match="column isl is missing"):
        read_measurements([tmp_path / "short.parquet"])
    negative = pa.array(np.full(table.num_rows, -1.0))
    broken = table.drop_columns(["silicon_ttft_ms"]).append_column("silicon_ttft_ms", negative)
    pq.write_table(broken, tmp_path / "negative.parquet")
    with pytest.raises(DataError, match="row"):
        read_measurements([tmp_path / "negative.parquet"])


def test_sources_are_merged_by_row(tmp_path):
    facts = pa.table({"row": pa.array([2, 1], pa.int32()), "split": ["train"] * 2, "isl": [20, 10]})
    derived = pa.table({"row": pa.array([1, 2], pa.int32()), "split": ["train"] * 2, "clean": [True, False]})
    pq.write_table(facts, tmp_path / "facts.parquet")
    pq.write_table(derived, tmp_path / "derived.parquet")
    merge_sources(tmp_path / "facts.parquet", tmp_path / "derived.parquet", tmp_path / "out.parquet")
    merged = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert merged == {"row": [1, 2], "split": ["train"] * 2, "isl": [10, 20], "clean": [True, False]}


def test_peer_times_are_joined_by_row():
    rows = read_measurements([SAMPLE])
    ttft_ms, tpot_ms = peer_times(SAMPLE, rows)
    order = np.arange(len(rows))[::-1]
    np.testing.assert_array_equal(peer_times(SAMPLE, rows.take(order))[0], ttft_ms[order])
    missing = dataclasses.replace(rows, row=rows.row + 1_000_000)
    assert np.isnan(peer_times(SAMPLE, missing)[1]).all()
    assert np.isfinite(tpot_ms).all()


def test_rounded_copies_are_flagged_and_the_digits_kept(shipped):
    times = {"ttft_ms": [200.04, 200.0412, 200.0412, 250.0], "tpot_ms": [10.0, 10.0012, 10.0012, 10.0012]}
    rows = _alike(shipped, **times, concurrency=[8, 8, 16, 8])
    assert data_rules.repeated(rows).tolist() == [True, False, False, False]


def test_copies_are_found_where_rounding_twice_differs(shipped):
    rows = _alike(shipped, ttft_ms=[169.9469, 169.95, 168.1343, 168.0764], tpot_ms=[14.9991, 15.0, 5.1323, 5.1298])
    assert data_rules.repeated(rows).tolist() == [False, True, False, False]


def test_exact_copies_are_flagged_by_rank(shipped):
    rows = _alike(shipped, ttft_ms=[100.123, 200.456], duplicate_rank=[0, 1])
    assert data_rules.repeated(rows).tolist() == [False, True]


def test_speculation_and_widths_follow_their_labels(shipped):
    labels = ["none:db", "mtp:config", "ambiguous", "unknown"]
    rows = _alike(shipped, spec_label=labels, topology_flag=["ok", "bad:disagg-as-agg", "fixed:tp*ep", "replicas"])
    assert data_rules.speculative(rows).tolist() == [False, True, True, True]
    assert data_rules.wrong_width(rows).tolist() == [False, True, False, False]
    assert data_rules.clean(rows).tolist() == [True, False, False, False]


def test_rows_that_contradict_their_load_are_flagged(shipped):
    rows = _alike(shipped, ttft_ms=[100.0, 100.0], tpot_ms=[10.0, 10.0], osl=[11, 11])  # a request lives 200 ms
    batch = dataclasses.replace(rows.agg, batch=np.array([4, 8]), dp=np.array([1, 2]))
    rows = dataclasses.replace(rows, agg=batch, concurrency=np.array([4, 8]))
    assert data_rules.contradicts_batch(rows).tolist() == [False, True]
    assert data_rules.contradicts_prefill(rows, _prediction(rows, 64.0, 5.0)).tolist() == [False, True]
    assert data_rules.contradicts_prefill(rows, _prediction(rows, 66.0, 5.0)).tolist() == [True, True]
    assert data_rules.contradicts_kernels(rows, _prediction(rows, 1.0, 16.0)).tolist() == [False, False]
    assert data_rules.contradicts_kernels(rows, _prediction(rows, 1.0, 17.0)).tolist() == [True, True]
    assert data_rules.contradicts_load(rows, _prediction(rows, 1.0, 17.0)).tolist() == [False, True]
    assert data_rules.contradicts_load(rows, _prediction(rows, 66.0, 5.0)).tolist() == [True, True]
