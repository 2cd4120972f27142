# SPDX-License-Identifier: Apache-2.0
"""Disaggregated sweeps against all their points, and against a search."""

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import aicjax
from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame
from aicjax.explore.grid import load_grid
from aicjax.explore.space import Role
from aicjax.sweeps.cases import Case, enumerate_cases, pair_numbers
from aicjax.sweeps.disagg import DisaggWork
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.kept import Kept, Points, joined, no_points
from aicjax.sweeps.spec import SweepSpec
from tests.loop_constants import write_loop_constants
from tests.sweeps.disagg_brute import Brute, group_points

RTOL = 2e-6  # between float32 and float64
LIMITS = [{}, {"ttft": 900.0, "tpot": 14.0}, {"ttft": 500.0}, {"tpot": 7.0}, {"ttft": 1.0}]
OBJECTIVES = ["tokens/s/gpu", "tokens/$", "ttft", "tpot", "request_latency"]
LOOP = write_loop_constants(Path(tempfile.mkdtemp()))
AXES: dict[str, Any] = {
    "constants": "reference",
    "systems": "h200_sxm",
    "serving_mode": "disagg",
    "total_gpus": 13,
    "prefill_batch": [1, 2, 3, 5],
    "decode_batch": [1, 2, 4, 24, 60, 61, 150, 400, 800],
    "prefill_workers": 7,
    "decode_workers": 5,
    "limits": LIMITS,
    "objectives": OBJECTIVES,
    "gpu_hour_price": {"h200_sxm": 3.5},
    "top_k": 6,
}
FIELDS: dict[str, dict[str, Any]] = {
    "dense": {
        "models": "Qwen/Qwen3-32B-FP8",
        "backends": ["trtllm", "vllm"],
        "isl": 3000,
        "osl": [2, 300],
        "prefix": 800,
        "memory_fraction": [None, 0.6],
    },
    "experts": {
        "models": "Qwen/Qwen3-30B-A3B",
        "backends": ["trtllm", "vllm", "sglang"],
        "parallel": {"num_gpu": [1, 2, 4]},
        "isl": 3000,
        "osl": 300,
        "drafts": {"nextn": 2, "accepted": 0.7},
        "group_by": ["model"],
    },
    "closed loop": {
        "models": "Qwen/Qwen3-32B-FP8",
        "backends": ["trtllm", "sglang"],
        "isl": 3000,
        "osl": 300,
        "constants": LOOP,
    },
    "ties": {  # in TTFT, over decode layouts whose workers are matched apart
        "models": "Qwen/Qwen3-30B-A3B",
        "backends": "trtllm",
        "database_mode": "SOL",
        "prefill_batch": [1, 2],
        "decode_batch": [1, 2],
        "top_k": 12,
    },
}
SPECS = {name: SweepSpec(**AXES | fields) for name, fields in FIELDS.items()}


def work_of(spec: SweepSpec) -> DisaggWork:
    cases = enumerate_cases(spec)
    return DisaggWork(spec, cases, Groups(spec, cases), jax.devices()[:1])


def swept(work: DisaggWork, cases: list[Case]) -> Kept:
    known = Kept(work.spec.top_k)
    for case in cases:
        known.merge(work.keep([case], [work.prepare(case)], known))
    return known


@functools.cache
def answers(name: str) -> tuple[DisaggWork, Kept, dict[int, list[tuple[Case, Brute]]]]:
    work = work_of(SPECS[name])
    groups: dict[int, list[tuple[Case, Brute]]] = {}
    cases = work.cases.cases
    for case, points in zip(cases, group_points(work.spec, work.cases, cases), strict=True):
        groups.setdefault(work.groups.of_case[case.first_point], []).append((case, points))
    return work, swept(work, list(work.cases.cases)), groups


def pairs_of(groups: list[tuple[Case, Brute]]) -> tuple[Points, np.ndarray]:
    """The point that stands for each pair of some cases, by number, and its GPUs; the value is the rate per GPU."""
    parts, gpus = [], []
    for case, points in groups:
        at = points.chosen()
        latencies = points.ttft_ms[at], points.tpot_ms[at], points.request_latency_ms[at]
        rate = points.score[at] * points.gpus[at]
        parts.append(Points(case.first_point + at, points.score[at] * case.workload.osl, *latencies, rate))
        gpus.append(points.gpus[at])
    return joined(parts), np.concatenate(gpus)


def value(points: Points, objective: str) -> np.ndarray:
    match objective:
        case "tokens/s/gpu":
            return points.value
        case "tokens/$":
            return points.value * 3600 / 3.5
    return -getattr(points, f"{objective}_ms")


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_counts_are_those_of_all_points(name):
    work, kept, groups = answers(name)
    for group, cases in groups.items():
        assert all(len(points.pair) == case.points for case, points in cases)
        for place, limits in enumerate(work.spec.limits):
            expected = np.sum([points.counts(limits) for _, points in cases], axis=0)
            np.testing.assert_array_equal(kept.counts[group, place], expected)
    total = np.sum([kept.counts[group, 1] for group in groups], axis=0)
    assert total[0] == work.cases.points
    assert total[3] > 0
    assert 0 < total[5] < min(total[6:])


@pytest.mark.parametrize("name", SPECS)
def test_best_pairs_are_those_of_all_points(name):
    work, kept, groups = answers(name)
    met = 0
    for group, cases in groups.items():
        pairs, _ = pairs_of(cases)
        for place, limits in enumerate(work.spec.limits):
            within = (pairs.ttft_ms <= (limits.ttft or np.inf)) & (pairs.tpot_ms <= (limits.tpot or np.inf))
            for rank, objective in enumerate(work.spec.objectives):
                expected = pairs._replace(value=value(pairs, objective)).take(within).top(work.spec.top_k)
                found = kept.tops.get((group, place, rank))
                if found is None:
                    assert len(expected.number) == 0
                    continue
                np.testing.assert_allclose(found.value, expected.value, rtol=RTOL)
                if objective == "ttft":  # ties exactly
                    np.testing.assert_array_equal(found.number, expected.number)
                at = np.searchsorted(pairs.number, found.number)
                np.testing.assert_array_equal(pairs.number[at], found.number)  # the same worker counts
                np.testing.assert_allclose(value(pairs, objective)[at], expected.value, rtol=RTOL)
                for latency in ("ttft_ms", "tpot_ms", "request_latency_ms"):
                    np.testing.assert_allclose(getattr(found, latency), getattr(pairs, latency)[at], rtol=RTOL)
                assert within[at].all()
                met += 1
    assert met > len(groups) * len(OBJECTIVES)


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_fronts_are_those_of_all_points(name):
    work, kept, groups = answers(name)
    for group, cases in groups.items():
        pairs, _ = pairs_of(cases)
        for place, limits in enumerate(work.spec.limits):
            expected = pairs.take(pairs.ttft_ms <= (limits.ttft or np.inf)).front()
            found = kept.fronts.get((group, place))
            if found is None:
                assert len(expected.number) == 0
                continue
            at = np.searchsorted(pairs.number, found.number)
            np.testing.assert_array_equal(pairs.number[at], found.number)
            np.testing.assert_allclose(found.value, pairs.value[at], rtol=RTOL)
            for one, other in ((found, expected), (expected, found)):
                reached = np.searchsorted(other.tpot_ms, one.tpot_ms * (1 + RTOL), side="right") - 1
                np.testing.assert_array_less(one.value * (1 - RTOL), other.value[reached])
            assert len(found.number) > 3 or limits.ttft == 500.0


@pytest.mark.parametrize("name", SPECS)
def test_order_and_division_of_the_cases_change_nothing(name):
    work, kept, _ = answers(name)
    cases = list(work.cases.cases)
    backwards, alone = swept(work, cases[::-1]), Kept(work.spec.top_k)
    for case in cases[1::2] + cases[::2]:
        alone.merge(work.keep([case], [work.prepare(case)], Kept(work.spec.top_k)))
    for other in (backwards, alone):
        for key, points in (kept.tops | kept.fronts).items():
            found = (other.tops | other.fronts)[key]
            for one, two in zip(points, found, strict=True):
                np.testing.assert_array_equal(one, two)


def test_blocks_of_decode_batches_change_no_answer(monkeypatch):
    fields = FIELDS["experts"] | {"backends": ["vllm"], "database_mode": "SOL"}
    work = work_of(SweepSpec(**AXES, **fields))
    kept = swept(work, list(work.cases.cases))
    monkeypatch.setattr("aicjax.sweeps.cases.PAIRS", 1 << 9)
    divided = work_of(work.spec)
    assert len(divided.cases.cases) > 2 * len(work.cases.cases)
    found = swept(divided, list(divided.cases.cases))
    for key, points in kept.tops.items():
        if work.spec.objectives[key[2]] in ("tokens/s/gpu", "tpot"):  # ties of the others are in another order
            np.testing.assert_array_equal(found.tops[key].value, points.value)
            np.testing.assert_array_equal(found.tops[key].ttft_ms, points.ttft_ms)
    for key, points in kept.fronts.items():
        np.testing.assert_array_equal(found.fronts[key].tpot_ms, points.tpot_ms)
        np.testing.assert_array_equal(found.fronts[key].value, points.value)
    for key, counts in kept.counts.items():
        np.testing.assert_array_equal(found.counts[key], counts)


def test_rows_are_those_of_the_points():
    work, kept, _ = answers("dense")
    points = next(iter(kept.fronts.values()))
    shuffled = points.take(np.random.default_rng(0).permutation(len(points.number)))
    rows = work.describe(shuffled)
    np.testing.assert_array_equal(rows["point"], shuffled.number)
    for column, expected in (
        ("ttft", shuffled.ttft_ms),
        ("tpot", shuffled.tpot_ms),
        ("request_latency", shuffled.request_latency_ms),
        ("seq/s", shuffled.seq_per_s),
        ("tokens/s/gpu", shuffled.value),
    ):
        np.testing.assert_allclose(rows[column], expected, rtol=RTOL, atol=6e-4)
    np.testing.assert_allclose(rows["tokens/$"], shuffled.value * 3600 / 3.5, rtol=RTOL)
    assert (rows["num_total_gpus"] <= work.spec.total_gpus).all()
    assert set(rows["(p)bs"]) <= set(work.spec.prefill_batch)
    assert frames.length(work.describe(no_points())) == 0


@pytest.mark.parametrize(
    ("model", "backend"),
    [("Qwen/Qwen3-32B-FP8", "vllm"), ("Qwen/Qwen3-30B-A3B", "trtllm")],
)
def test_sweep_over_the_lists_of_a_search_finds_its_replicas(model, backend):
    grid, gpus, limit = load_grid("reference").disagg, 8, {"ttft": 2000.0, "tpot": 30.0}
    shared: dict[str, Any] = {"serving_mode": "disagg", "total_gpus": gpus, "isl": 4000, "osl": 500}
    shared["compat"] = "reference"  # its best replicas fill all GPUs, by which a search ranks and a sweep does not
    searched: dict[str, Any] = {"model_path": model, "system": "h200_sxm", "backend": backend, **shared, **limit}
    searched |= {"max_prefill_workers": 6, "max_decode_workers": 6, "num_gpu_per_replica": list(range(1, gpus + 1))}
    (task,) = aicjax.search(grid="reference", pareto_sweep=False, **searched).tasks.values()
    axes: dict[str, Any] = {"models": model, "systems": "h200_sxm", "backends": [backend], **shared, "limits": limit}
    axes |= {"prefill_batch": {"last": grid.prefill_max_batch}, "decode_batch": grid.decode_batches(512)}
    work = work_of(SweepSpec(top_k=1, prefill_workers=6, decode_workers=6, **axes))
    best = work.describe(swept(work, list(work.cases.cases)).tops[0, 0, 0])
    assert best["tokens/s/gpu"][0] == pytest.approx(task.best["tokens/s/gpu"][0], rel=1e-3)
    rows = work.describe(points_of(work, task.feasible))
    for column in (
        "(p)parallel",
        "(d)parallel",
        "(p)bs",
        "(d)bs",
        "(p)workers",
        "(d)workers",
        "concurrency",
        "(d)gemm",
    ):
        np.testing.assert_array_equal(rows[column], task.feasible[column])
    for column in ("ttft", "tpot", "request_latency", "tokens/s/gpu", "(p)seq/s/worker", "(d)memory"):
        np.testing.assert_allclose(rows[column], task.feasible[column], rtol=2e-3)


def points_of(work: DisaggWork, rows: Frame) -> Points:
    """The points of rows of replicas of the only case."""
    (case,), (engine,) = work.cases.cases, work.cases.engines
    numbers = pair_numbers(work.spec, engine, len(case.batches))
    at = []
    sides: list[tuple[Role, str, Sequence[int]]] = [
        ("prefill", "(p)", work.spec.prefill_batch),
        ("decode", "(d)", case.batches),
    ]
    for role, prefix, batches in sides:
        labels = [layout.label for layout in engine.workers[role].layouts]
        at += [np.array([labels.index(label) for label in rows[f"{prefix}parallel"]])]
        at += [np.searchsorted(batches, rows[f"{prefix}bs"])]
    choice = []
    for kind, p, d in zip(numbers.space.kind[at[0], at[2]], rows["(p)workers"], rows["(d)workers"], strict=True):
        counts = numbers.space.counts[kind]
        choice += np.flatnonzero((counts.prefill == p) & (counts.decode == d)).tolist()
    none = np.zeros(len(choice))
    return Points(case.first_point + numbers.of(*at) + choice, *[none] * 5)
