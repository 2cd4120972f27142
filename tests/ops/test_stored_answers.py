# SPDX-License-Identifier: Apache-2.0
"""Single operators against a sample of stored answers of AIConfigurator 0.12.0, every branch of every rule."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicjax._results import MissingPeak, Provenance
from aicjax.compat import REFERENCE
from aicjax.hardware import load_system
from aicjax.ops.attention import slice_key
from aicjax.ops.attention_tables import load_attention
from aicjax.ops.query import OpTimes, operator_latency
from aicjax.ops.records import AttentionOp
from benchmarks.parity_cases.comparison import NO_DATA, NO_PEAK, OK, stored_outcome
from benchmarks.parity_cases.dense_operators import DENSE
from benchmarks.parity_cases.latent_operators import LATENT
from benchmarks.parity_cases.operators import OPERATORS
from benchmarks.parity_cases.recurrent_operators import RECURRENT
from benchmarks.parity_cases.stored import StoredRows

pytestmark = pytest.mark.as_shipped

REFERENCES = Path(__file__).parents[1] / "references"
TOLERANCE = 1e-5  # float32 tables and kernels against float64
LANES = "ops_attention_lanes"
FILES = sorted(set(DENSE) - {LANES})
SPARSE = ("dsa", "dsv4", "msa")  # tested apart, with what context parallelism adds
OTHER_FILES = sorted(name for name in (*LATENT, *RECURRENT) if not any(word in name for word in SPARSE))
WHERE = ("system", "backend", "version")
# Stored branches of queries that have one part; decode attention, a mean over lengths, is never one measurement.
BRANCHES = {
    "site_exact": Provenance.EXACT,
    "site_lerp": Provenance.INTERPOLATED,
    "site_above": Provenance.HELD,
    "transfer": Provenance.TRANSFERRED,
    "transfer_nocover": Provenance.TRANSFERRED,
    "transfer_waiver": Provenance.TRANSFERRED,
    "exact": Provenance.EXACT,
    "exact|interp": Provenance.INTERPOLATED,
    "interp": Provenance.INTERPOLATED,
    "survivor": Provenance.ONE_SIDED,
    "interp+survivor": Provenance.ONE_SIDED,
    "hold": Provenance.HELD,
    "above": Provenance.HELD,
    "below": Provenance.HELD,
    "interp+scaled": Provenance.HELD,
    "single_rank": Provenance.NONE,
}


def stored(name: str, mode: str) -> StoredRows:
    rows = StoredRows.read(REFERENCES / f"{name}.parquet")
    return rows.take(np.flatnonzero(rows["mode"] == mode))


def ask(name: str, rows: StoredRows, where: tuple) -> OpTimes:
    case = OPERATORS[name]
    points: dict[str, Any] = {name: rows[column] for name, column in case.points.items() if column in rows}
    ops = [case.record(row) for row in rows.records(np.arange(len(rows)))]
    system, backend, version = where
    return operator_latency(load_system(system), backend, version, ops, **points, compat=REFERENCE)


def answerable(rows: StoredRows) -> StoredRows:
    """Rows of formats that the system has a peak for."""
    return rows.take(np.flatnonzero(stored_outcome(rows["error"].tolist()) != NO_PEAK))


@pytest.mark.parametrize("name", FILES)
def test_operators_agree_with_stored_answers(name: str):
    rows = answerable(stored(name, "SILICON"))
    for where, at in rows.groups(*WHERE):
        group = rows.take(at)
        times = ask(name, group, where)
        np.testing.assert_allclose(times.latency_ms, group["latency_ms"], rtol=TOLERANCE)
        outcome = np.where(np.isnan(times.latency_ms), NO_DATA, OK)
        assert outcome.tolist() == stored_outcome(group["error"].tolist()).tolist()
        assert ((times.provenance == Provenance.MISSING) == (outcome == NO_DATA)).all()
        for branch, code in zip(group["resolution"], times.provenance, strict=True):
            assert code == (Provenance.ESTIMATED if branch.startswith("fp8_static") else BRANCHES.get(branch, code))


@pytest.mark.parametrize("name", OTHER_FILES)
def test_latent_and_recurrent_operators_agree_with_stored_answers_of_every_mode(name: str):
    """Latency, verdict, whose points an estimate rests on, and where a roofline answers."""
    rows = StoredRows.read(REFERENCES / f"{name}.parquet")
    assert set(rows["mode"]) == {"SILICON", "HYBRID", "EMPIRICAL", "SOL"}
    comparison = OPERATORS[name](rows)
    assert comparison.mismatch.tolist() == [""] * len(rows)
    assert comparison.found.tolist() == comparison.wanted.tolist()
    assert np.nanmax(comparison.relative_error) < TOLERANCE


@pytest.mark.parametrize("name", FILES)
def test_rooflines_agree_with_stored_answers(name: str):
    rows = answerable(stored(name, "SOL"))
    for where, at in rows.groups(*WHERE):
        group = rows.take(at)
        np.testing.assert_allclose(ask(name, group, where).sol_ms, group["latency_ms"], rtol=TOLERANCE)


def test_formats_without_a_peak_are_refused():
    rows = stored("ops_gemm", "SILICON")
    refused = rows.take(np.flatnonzero(stored_outcome(rows["error"].tolist()) == NO_PEAK))
    assert len(refused)
    for where, at in refused.groups(*WHERE):
        for row in at:
            with pytest.raises(MissingPeak, match="states no peak"):
                ask("ops_gemm", refused.take(np.array([row])), where)


def test_attention_reads_the_lane_that_was_stored():
    rows = StoredRows.read(REFERENCES / f"{LANES}.parquet")
    case, found = OPERATORS[LANES], []
    for row in rows.records(np.arange(len(rows))):
        table = load_attention(load_system(row["system"]), row["backend"], row["version"], True, row["phase"])
        record = case.record(row)
        assert table is not None and isinstance(record, AttentionOp)
        index = table.find(row["lane_order"].split("|"), slice_key(record))
        found.append("" if index is None else table.slices[index][0])
    assert found == rows["lane_served"].tolist()
