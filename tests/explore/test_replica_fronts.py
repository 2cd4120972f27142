# SPDX-License-Identifier: Apache-2.0
"""Fronts of replicas: whatever is picked by, they hold the best of all pairs, counts and choices, tried by loops."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax.constants import load_constants
from aicjax.explore.objective import Objective, in_flight
from aicjax.explore.replica_fronts import replica_fronts
from aicjax.explore.replicas import Replicas, WorkerTable
from aicjax.explore.targets import Bounds
from aicjax.serving.disagg import ReplicaLimits, Workers, match_workers
from aicjax.serving.encoder import Encoders

CONSTANTS = load_constants("trtllm", "reference").disagg
OSL, MOST = 10, 3
LIMITS = ReplicaLimits(tuple(range(1, 12)), MOST, MOST, 2)
Rows = list[dict[str, Any]]
GPUS = {"tp1": 1, "tp2": 2, "tp4": 4}


def with_gpus(worker: dict[str, Any]) -> dict[str, Any]:
    return {**worker, "gpus": GPUS[worker["layout"]]}


WORKER = st.fixed_dictionaries(
    {
        "rate": st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.25]),
        "batch": st.integers(1, 4),
        "ttft": st.sampled_from([50.0, 80.0, 120.0]),
        "tpot": st.sampled_from([0.0, 5.0, 8.0, 11.0]),
        "layout": st.sampled_from(list(GPUS)),
        "kind": st.sampled_from([0, 1, 2]),
    }
).map(with_gpus)
POOL = st.lists(WORKER, min_size=1, max_size=4)
BUDGET = st.integers(2, 40).map(lambda gpus: Objective(gpus=gpus))
LOAD = st.one_of(
    st.floats(0.1, 50).map(lambda rate: Objective(request_rate=rate)),
    st.floats(1, 200).map(lambda requests: Objective(concurrency=requests)),
)


def table(rows: Rows) -> WorkerTable:
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    per_gpu = column["rate"] / column["gpus"]
    return WorkerTable(
        column["rate"], per_gpu, column["gpus"], column["batch"], column["ttft"], column["tpot"], column["layout"]
    )


def by_loops(
    prefill: Rows, decode: Rows, bounds: Bounds, objective: Objective, encoders: Encoders | None
) -> list[tuple[str, float, float]]:
    """(decode layout, latency, score) of every replica within the limits."""
    found = []
    choices = [None] if encoders is None else [encoders.take(at) for at in range(len(encoders.gpus))]
    for p, d, encoder in [(p, d, encoder) for p in prefill for d in decode for encoder in choices]:
        wait = 0.0 if encoder is None else float(encoder.latency_ms)
        ttft = (p["ttft"] + wait) * CONSTANTS.ttft_correction
        if ttft >= bounds.ttft_ms or d["tpot"] == 0 or not (p["kind"] == d["kind"] or 0 in (p["kind"], d["kind"])):
            continue
        latency = ttft + d["tpot"] * (OSL - 1) if bounds.on_request else d["tpot"]
        if round(latency, 3) > bounds.latency_ms:
            continue
        for p_num, d_num, e_num in counts(LIMITS.max_encode_workers if encoder is not None else 0):
            gpus = p["gpus"] * p_num + d["gpus"] * d_num + (0 if encoder is None else int(encoder.gpus) * e_num)
            sustained = d["rate"] * d_num * CONSTANTS.decode_degradation
            rate = min(p["rate"] * p_num * CONSTANTS.prefill_degradation, sustained)
            if encoder is not None:
                rate = min(rate, float(encoder.rate(e_num, CONSTANTS)))
            if gpus in LIMITS.sizes and (objective.gpus is None or gpus <= objective.gpus):
                busy = d["batch"] * d_num * min(1.0, rate / sustained)
                found.append((d["layout"], latency, scored(objective, rate, gpus, busy)))
    return found


def counts(most_encode: int) -> list[tuple[int, int, int]]:
    """Prefill, decode and encode workers that a replica may have."""
    workers = range(1, MOST + 1)
    return [(p, d, e) for p in workers for d in workers for e in (range(1, most_encode + 1) if most_encode else (0,))]


def scored(objective: Objective, rate: float, gpus: int, busy: float) -> float:
    """Rate of a budget; or GPUs for a load, negative."""
    if objective.gpus is not None:
        return rate * (objective.gpus // gpus)
    of_rate = objective.request_rate is not None
    needed = (objective.request_rate or 0) / rate if of_rate else (objective.concurrency or 0) / busy
    return -float(max(math.ceil(needed * (1 - 1e-12)), 1) * gpus)


def score_of(replicas: Replicas, decode: Rows, objective: Objective) -> list[tuple[str, float, float, float, float]]:
    """(decode layout, request latency, TPOT, score, TTFT) of replicas."""
    found = []
    for at, row in enumerate(replicas.decode):
        d, workers, estimate = decode[row], int(replicas.counts.decode[at]), replicas.estimate
        sustained = d["rate"] * workers * CONSTANTS.decode_degradation
        busy = d["batch"] * workers * min(1.0, estimate.seq_per_s[at] / sustained)
        score = scored(objective, float(estimate.seq_per_s[at]), int(estimate.gpus[at]), busy)
        latencies = estimate.request_latency_ms[at], estimate.tpot_ms[at]
        found.append((d["layout"], *latencies, score, estimate.ttft_ms[at]))
    return found


def best_within(rows: list[tuple[str, float, float]], layout: str, limit: float) -> float:
    return max((score for name, latency, score in rows if name == layout and latency <= limit), default=-np.inf)


@settings(max_examples=150)
@given(POOL, POOL, st.one_of(BUDGET, LOAD), st.booleans(), st.sampled_from([100.0, 150.0, 400.0]), st.booleans())
def test_fronts_hold_the_best_replica_within_any_limit(prefill, decode, objective, on_request, limit, pooled):
    bounds = Bounds(np.inf, 2 * limit, on_request=True) if on_request else Bounds(limit, 9.0, on_request=False)
    encoders = Encoders(np.array([1.0, 4.0]), np.array([1, 2]), np.array([10.0, 20.0])) if pooled else None
    kinds = np.array([row["kind"] for row in prefill]), np.array([row["kind"] for row in decode])
    tables = table(prefill), table(decode)
    got = replica_fronts(*tables, bounds, [objective], LIMITS, OSL, CONSTANTS, kinds, encoders)
    every = by_loops(prefill, decode, bounds, objective, encoders)
    rows = score_of(got, decode, objective)
    assert all(row[4] < bounds.ttft_ms for row in rows)
    found = [(layout, request if on_request else tpot, score) for layout, request, tpot, score, _ in rows]
    for layout, latency, _ in {(layout, latency, 0) for layout, latency, _ in every}:
        assert best_within(found, layout, latency + 1e-3) == pytest.approx(best_within(every, layout, latency))
    per_gpu = np.round(got.estimate.tokens_per_s / got.estimate.gpus, 3)
    assert (np.diff(per_gpu) <= 0).all()


def two_prefill_workers(slow: float, decode: float, bounds: Bounds) -> Replicas:
    """Fronts of a fast prefill worker, of one that is slower but has less TTFT, and one decode worker, on 4 GPUs."""
    fast = {"rate": 4.0, "gpus": 1, "batch": 2, "ttft": 90.0, "tpot": 0.0, "layout": "tp1"}
    prefill = [fast, {**fast, "rate": slow, "ttft": 50.0, "batch": 1}]
    tables = table(prefill), table([{**fast, "rate": decode, "tpot": 5.0}])
    return replica_fronts(*tables, bounds, [Objective(gpus=4)], LIMITS, OSL, CONSTANTS)


def test_of_prefill_workers_that_sustain_the_rate_the_one_with_the_least_ttft_is_taken():
    got = two_prefill_workers(3.5, 1.0, Bounds(1000.0, 9.0, on_request=False))
    assert (got.prefill.tolist(), got.counts.prefill.tolist(), got.counts.decode.tolist()) == ([1], [1], [3])


def test_where_requests_are_limited_as_a_whole_a_slower_prefill_with_less_ttft_counts_too():
    assert two_prefill_workers(1.0, 4.0, Bounds(np.inf, 1000.0, on_request=True)).prefill.tolist() == [0, 1]
    assert two_prefill_workers(1.0, 4.0, Bounds(1000.0, 9.0, on_request=False)).prefill.tolist() == [0]


@pytest.mark.parametrize("objective", [Objective(gpus=4), Objective(request_rate=3.0), Objective(concurrency=9.0)])
def test_without_workers_or_sizes_there_is_no_replica(objective):
    worker = {"rate": 4.0, "gpus": 1, "batch": 2, "ttft": 90.0, "tpot": 5.0, "layout": "tp1"}
    one, bounds = table([worker]), Bounds(1000.0, 9.0, on_request=False)
    none = WorkerTable(*(getattr(one, field.name)[:0] for field in dataclasses.fields(one)))
    for prefill, decode, limits in ((none, one, LIMITS), (one, none, LIMITS), (one, one, ReplicaLimits((), 4, 4))):
        assert len(replica_fronts(prefill, decode, bounds, [objective], limits, OSL, CONSTANTS).prefill) == 0
    assert len(replica_fronts(one, one, bounds, [objective], LIMITS, OSL, CONSTANTS).prefill) == 1


@settings(max_examples=60)
@given(POOL, POOL, st.integers(2, 60), st.sets(st.integers(1, 20), min_size=1), st.booleans())
def test_matched_counts_yield_the_most_of_a_cluster(prefill, decode, gpus, sizes, pooled):
    limits = ReplicaLimits(tuple(sizes), MOST, MOST, 3).filling(gpus)
    encoder = Encoders(np.array([1.5]), np.array([1]), np.array([0.0])).take(0) if pooled else None
    sides = [
        Workers(np.array([r["rate"] for r in rows]), np.array([r["gpus"] for r in rows])) for rows in (prefill, decode)
    ]
    matched = match_workers(sides[0], sides[1], limits, CONSTANTS, encoder)

    def cluster(p: dict, d: dict, p_num: int, d_num: int, e_num: int) -> float:
        size = p["gpus"] * p_num + d["gpus"] * d_num + e_num
        rate = min(p["rate"] * p_num * CONSTANTS.prefill_degradation, d["rate"] * d_num * CONSTANTS.decode_degradation)
        rate = min(rate, float(encoder.rate(e_num, CONSTANTS))) if encoder is not None else rate
        return rate * (gpus // size) if size in sizes else 0.0

    for i, p in enumerate(prefill):
        for j, d in enumerate(decode):
            best = max(cluster(p, d, *numbers) for numbers in counts(3 if pooled else 0))
            p_num, d_num, e_num = (int(count[i, j]) for count in matched)
            assert (cluster(p, d, p_num, d_num, e_num) if p_num else 0.0) == pytest.approx(best)


def test_slots_count_by_the_share_that_the_rate_keeps_busy():
    assert in_flight(256, 2.0, 8.0) == 64
    assert in_flight(256, 8.0, 8.0) == in_flight(256, 9.0, 8.0) == 256


def test_load_is_served_by_whole_replicas():
    load = Objective(request_rate=10.0)
    assert load.score(3.0, 4, 0) > load.score(2.0, 4, 0), "4 replicas of 4 GPUs instead of 5"
    assert load.score(3.3, 4, 0) > load.score(3.0, 4, 0) > load.score(2.0, 4, 0), "of equal needs, the faster"
    assert Objective(gpus=10).score(3.0, 4, 0) == 6.0, "two replicas fit, two GPUs are idle"
