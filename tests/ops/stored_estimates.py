# SPDX-License-Identifier: Apache-2.0
"""Samples of stored estimates of AIConfigurator 0.12.0, every rung of every ladder."""

from pathlib import Path
from typing import Any

import numpy as np

from aicjax._results import Provenance
from aicjax.compat import REFERENCE
from aicjax.hardware import load_system
from aicjax.ops.query import OpTimes, operator_latency
from benchmarks.parity_cases.comparison import NO_DATA, NO_PEAK, OK, stored_outcome
from benchmarks.parity_cases.operators import OPERATORS
from benchmarks.parity_cases.stored import StoredRows

REFERENCES = Path(__file__).parents[1] / "references"
TOLERANCE = 1e-5  # float32 tables and kernels against float64
GROUP = ("system", "backend", "version", "mode", "transfer_policy")
# Beginnings of stored branches; other rows are interpolated, by rules tested elsewhere.
BRANCHES = {
    "empirical": Provenance.EMPIRICAL,
    "fp8_static(empirical)": Provenance.EMPIRICAL,
    "util_own": Provenance.EMPIRICAL,
    "util_x:": Provenance.EMPIRICAL,
    "util_zero": Provenance.EMPIRICAL,
    "util_xshape": Provenance.XSHAPE,
    "xquant": Provenance.XQUANT,
    "xprofile": Provenance.XPROFILE,
    "no_empirical": Provenance.MISSING,
}


def stored(name: str) -> StoredRows:
    return StoredRows.read(REFERENCES / f"estimates_{name}.parquet")


def ask(name: str, rows: StoredRows, system: str, backend: str, version: str, mode: str, policy: str) -> OpTimes:
    case = OPERATORS[f"ops_{name}"]
    points: dict[str, Any] = {argument: rows[column] for argument, column in case.points.items() if column in rows}
    ops = [case.record(row) for row in rows.records(np.arange(len(rows)))]
    allowed = None if policy == "default" else policy
    where = (load_system(system), backend, version)
    return operator_latency(*where, ops, mode=mode, transfer_policy=allowed, compat=REFERENCE, **points)


def check(name: str) -> None:
    """Every row agrees in latency, verdict and provenance."""
    rows = stored(name)
    rows = rows.take(np.flatnonzero(stored_outcome(rows["error"]) != NO_PEAK))
    for where, at in rows.groups(*GROUP):
        group = rows.take(at)
        times = ask(name, group, *where)
        np.testing.assert_allclose(times.latency_ms, group["latency_ms"], rtol=TOLERANCE)
        outcome = np.where(np.isnan(times.latency_ms), NO_DATA, OK)
        assert outcome.tolist() == stored_outcome(group["error"]).tolist()
        for branch, code in zip(group["resolution"], times.provenance, strict=True):
            assert code == next((worst for begins, worst in BRANCHES.items() if branch.startswith(begins)), code), (
                branch
            )
