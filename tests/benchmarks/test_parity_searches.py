# SPDX-License-Identifier: Apache-2.0
"""Which differences between two fronts count: rows that tie or lose by rounding do not, others do."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from aicjax.explore.columns import CLUSTER
from benchmarks.parity_cases import searches
from benchmarks.parity_cases.stored import StoredRows

pytestmark = pytest.mark.as_shipped

FRONT = [("tp1", 20.0, 50.0), ("tp2", 30.0, 40.0), ("tp4", 30.5, 20.0)]  # layout, tokens/s/user, cluster throughput


def frame(rows: list[tuple[str, float, float]]) -> dict[str, np.ndarray]:
    layout, speed, cluster = (np.array(column) for column in zip(*rows, strict=True))
    same = np.ones(len(rows), int)
    backend = np.full(len(rows), "trtllm")
    return {
        "parallel": layout,
        "bs": same,
        "ctx_tokens": same,
        "backend": backend,
        "tpot": 1000 / speed,
        "tokens/s/user": speed,
        "request_latency": 1000 / speed,
        CLUSTER: cluster,
    }


def compared(monkeypatch: pytest.MonkeyPatch, ours: list[tuple[str, float, float]]):
    names = {"search_id": "s", "kind": "pareto", "exp": "agg"}
    labels = {name: np.full(len(FRONT), value, object) for name, value in names.items()}
    rows = StoredRows({**labels, "chosen": np.ones(len(FRONT), bool), **frame(FRONT)}, Path())
    result = SimpleNamespace(tasks={"agg": SimpleNamespace(pareto=frame(ours))}, chosen="agg")
    monkeypatch.setattr(searches, "run_search", lambda directory, name: result)
    return searches.end_to_end(rows)


def test_same_front_agrees(monkeypatch):
    found = compared(monkeypatch, FRONT)
    assert not found.wrong.any()
    assert not found.tied.any()
    assert found.relative_error.max() == 0


def test_row_that_ties_in_all_keys_is_not_missing(monkeypatch):
    found = compared(monkeypatch, [FRONT[0], ("tp8", 30.0, 40.0), FRONT[2]])
    assert not found.wrong.any()
    assert found.tied.tolist() == [False, True, False]


@pytest.mark.parametrize(("speed", "wrong"), [(30.499, False), (30.49, True)])
def test_row_that_another_beats_but_for_rounding_is_not_missing(monkeypatch, speed, wrong):
    found = compared(monkeypatch, [FRONT[0], ("tp2", speed, 40.0)])
    assert found.wrong[2] == wrong
    assert found.tied[2] != wrong


@pytest.mark.parametrize(("speed", "wrong"), [(30.001, False), (30.4, True)])
def test_new_row_may_only_win_by_rounding(monkeypatch, speed, wrong):
    found = compared(monkeypatch, [*FRONT[:2], ("tp8", speed, 30.0), FRONT[2]])
    assert found.wrong.any() == wrong


def test_rows_out_of_order_are_wrong(monkeypatch):
    found = compared(monkeypatch, [FRONT[1], FRONT[0], FRONT[2]])
    assert found.wrong.any()
