# SPDX-License-Identifier: Apache-2.0
"""Pairs of workers that a disaggregated search keeps: stored searches, and the loops that define the choice."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax.constants import load_constants
from aicjax.explore.grid import load_grid
from aicjax.explore.replicas import Replicas, WorkerTable, best_replicas
from aicjax.explore.targets import Targets, request_latency_targets
from aicjax.serving.backends import load_backend
from aicjax.serving.disagg import ReplicaLimits
from tests.oracles import serving as oracle

REFERENCES = Path(__file__).parents[1] / "references"
GRID = load_grid()
# TTFT limit and GPU budget; p12 has a limit on the request latency.
SEARCHES = {
    "p01": (300, 32),
    "p03": (300, 32),
    "p04": (1000, 32),
    "p17": (1000, 16),
    "p42": (1500, 16),
    "p12": (2000, 32),
}
TIED = {"p04", "p42"}  # more layouts tie at a cut than the cut keeps, where any of them may stay


def table(name: str, search: str) -> list[dict]:
    return [row for row in pq.read_table(REFERENCES / f"{name}.parquet").to_pylist() if row["search"] == search]


def worker_table(rows: list[dict]) -> WorkerTable:
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return WorkerTable(
        column["seq/s"],
        column["seq/s/gpu"],
        column["num_total_gpus"].astype(np.int64),
        column["global_bs"].astype(np.int64),
        column["ttft"],
        column["tpot"],
        column["layout"],
    )


def run_stored(search: str) -> tuple[Replicas, list[dict], list[dict]]:
    rows = table("search_workers", search)
    prefill, decode = ([row for row in rows if row["role"] == role] for role in ("prefill", "decode"))
    ttft, total_gpus = SEARCHES[search]
    osl = rows[0]["osl"]
    tpot = np.array(GRID.targets.tpot_ms)
    targets = Targets(np.full(len(tpot), float(ttft)), tpot)
    if search == "p12":
        targets = request_latency_targets(5000.0, osl, ttft, GRID.targets)
    backend = rows[0]["backend"]
    may_pair = None
    if load_backend(backend).same_tp_handover:
        p_tp, d_tp = (np.array([row["tp"] for row in side]) for side in (prefill, decode))
        may_pair = lambda p, d: p_tp[p][:, None] == d_tp[d]  # noqa: E731
    replicas = best_replicas(
        worker_table(prefill),
        worker_table(decode),
        targets,
        ReplicaLimits(tuple(GRID.disagg.replica_sizes(total_gpus, large_ep=False)), 32, 32),
        osl,
        load_constants(backend, "reference").disagg,
        GRID.disagg,
        may_pair,
    )
    return replicas, prefill, decode


@pytest.mark.parametrize("search", SEARCHES)
def test_replicas_are_those_of_the_stored_search(search):
    got, prefill, decode = run_stored(search)
    estimate = got.estimate
    throughput = np.round(estimate.tokens_per_s / estimate.gpus, 3)
    expected = {
        (r["(p)parallel"], r["(p)bs"], r["(p)workers"], r["(d)parallel"], r["(d)bs"], r["(d)workers"]): r
        for r in table("search_replicas", search)
    }
    found = {}
    for i, (p, d) in enumerate(zip(got.prefill, got.decode, strict=True)):
        counts = int(got.counts.prefill[i]), int(got.counts.decode[i])
        key = (prefill[p]["layout"], prefill[p]["bs"], counts[0], decode[d]["layout"], decode[d]["bs"], counts[1])
        found[key] = i
    for key in set(found) & set(expected):
        row, i = expected[key], found[key]
        assert row["tokens/s/gpu"] == throughput[i]
        assert row["num_total_gpus"] == estimate.gpus[i]
        for name, values in (
            ("ttft", estimate.ttft_ms),
            ("tpot", estimate.tpot_ms),
            ("seq/s", estimate.seq_per_s),
            ("request_latency", estimate.request_latency_ms),
        ):
            assert row[name] == np.round(values[i], 3), name
    odd: set[float] = {expected[key]["tokens/s/gpu"] for key in set(expected) - set(found)}
    odd |= {float(throughput[found[key]]) for key in set(found) - set(expected)}
    assert bool(odd) == (search in TIED)
    shared = {expected[key]["tokens/s/gpu"] for key in set(found) & set(expected)}
    assert odd <= shared, "a row may differ only where it ties with one that both have"
    assert np.all(np.diff(throughput) <= 0)


def _with_rate_per_gpu(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "per_gpu": row["rate"] / row["gpus"]}


WORKER = st.fixed_dictionaries(
    {
        "rate": st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.25]),
        "gpus": st.sampled_from([1, 2, 4]),
        "batch": st.integers(1, 4),
        "ttft": st.sampled_from([50.0, 80.0, 120.0]),
        "tpot": st.sampled_from([0.0, 5.0, 8.0, 11.0]),
        "layout": st.sampled_from(["tp1", "tp2", "tp4"]),
    }
).map(_with_rate_per_gpu)
TARGET = st.tuples(st.sampled_from([100.0, 150.0, 220.0]), st.sampled_from([6.0, 9.0, 12.0]))


def small_table(rows: list[dict[str, Any]]) -> WorkerTable:
    names = ("rate", "per_gpu", "gpus", "batch", "ttft", "tpot", "layout")
    return WorkerTable(*(np.array([row[name] for row in rows]) for name in names))


@settings(max_examples=60)
@given(
    st.lists(WORKER, min_size=1, max_size=6),
    st.lists(WORKER, min_size=1, max_size=9),
    st.lists(TARGET, min_size=1, max_size=4),
)
def test_choice_is_that_of_the_loops(prefill, decode, limits):
    cuts = GRID.disagg.model_copy(update={"keep_prefill": 3, "keep_decode_per_layout": 2, "keep_per_target": 2})
    constants = load_constants("trtllm", "reference").disagg
    numbers = {
        "ttft": constants.ttft_correction,
        "p": constants.prefill_degradation,
        "d": constants.decode_degradation,
        "sizes": (2, 4, 6, 8),
        "most": 5,
    }
    tables = [small_table(rows) for rows in (prefill, decode)]
    targets = Targets(np.array([limit[0] for limit in limits]), np.array([limit[1] for limit in limits]))
    got = best_replicas(tables[0], tables[1], targets, ReplicaLimits((2, 4, 6, 8), 5, 5), 10, constants, cuts)
    expected = []
    for limit in limits:
        expected += [r for r in oracle.best_replicas(prefill, decode, limit, 10, cuts, numbers) if r not in expected]
    per_gpu = {
        (p, d, a, b): min(prefill[p]["rate"] * a * numbers["p"], decode[d]["rate"] * b * numbers["d"]) * 10
        / (prefill[p]["gpus"] * a + decode[d]["gpus"] * b)
        for p, d, a, b in expected
    }  # fmt: skip
    expected.sort(key=lambda row: -round(per_gpu[row], 3))
    rows = zip(got.prefill, got.decode, got.counts.prefill, got.counts.decode, strict=True)
    assert [tuple(int(x) for x in row) for row in rows] == expected


def test_nothing_within_the_limits_gives_no_replica():
    row = {"rate": 1.0, "per_gpu": 1.0, "gpus": 1, "batch": 1, "ttft": 100.0, "tpot": 10.0, "layout": "tp1"}
    pool, targets = small_table([row]), Targets(np.array([50.0]), np.array([20.0]))
    constants = load_constants("vllm", "reference").disagg
    assert len(best_replicas(pool, pool, targets, ReplicaLimits((2,), 2, 2), 10, constants, GRID.disagg).prefill) == 0
