# SPDX-License-Identifier: Apache-2.0
"""Whole sweeps against all their points: counts by reason, best points and Pareto fronts."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest

from aicjax.sweeps.agg import AggWork
from aicjax.sweeps.kept import Kept, no_points
from tests.loop_constants import write_loop_constants
from tests.sweeps.sweeping import Brute, brute, spec_of, swept, work_of

RTOL = 1e-5
AXES = {"batch": {"last": 70}, "ctx_tokens": {"last": 6144, "step": 384}, "top_k": 7}
SPECS = {
    "every objective": spec_of(
        models=["Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-8B"],
        systems=["h200_sxm", "h100_sxm"],
        backends=["trtllm", "vllm"],
        isl=[5000],
        osl=[1, 300],
        prefix=[0, 700],
        limits=[{}, {"ttft": 700.0, "tpot": 9.0}, {"ttft": 90.0}, {"tpot": 4.0}],
        objectives=["tokens/s/gpu", "tokens/$", "tokens/J", "ttft", "tpot", "request_latency"],
        memory_fraction=[None, 0.55],
        gpu_hour_price={"h200_sxm": 4.2, "h100_sxm": 2.9},
        database_mode="SOL",
        **AXES,
    ),
    "experts with drafts": spec_of(
        models=["Qwen/Qwen3-235B-A22B"],
        systems=["h200_sxm", "b200_sxm"],
        backends=["sglang", "trtllm"],
        isl=[60, 3000],
        osl=[200],
        drafts=[{"nextn": 2, "accepted": 0.8}],
        parallel={"pp": [1, 2]},
        limits=[{}, {"ttft": 200.0, "tpot": 6.0}],
        objectives=["tokens/J", "ttft"],
        memory_fraction=[0.9, 0.3],
        group_by=["model", "workload", "memory_fraction"],
        database_mode="SOL",
        **AXES,
    ),
    "closed loop": spec_of(
        models=["Qwen/Qwen3-8B"],
        systems=["h200_sxm"],
        backends=["trtllm", "vllm", "sglang"],
        isl=[900, 3000],
        osl=[1, 40],
        drafts=[{}, {"nextn": 2, "accepted": 0.8}],
        limits=[{}, {"ttft": 400.0, "tpot": 12.0}],
        memory_fraction=[0.15],
        constants=write_loop_constants(Path(tempfile.mkdtemp())),
        database_mode="SOL",
        **AXES,
    ),
    "measured tables": spec_of(
        models=["Qwen/Qwen3-32B-FP8"],
        systems=["h200_sxm", "h100_sxm"],
        backends=["trtllm"],
        isl=[4000],
        osl=[500],
        limits=[{}, {"ttft": 1000.0, "tpot": 20.0}],
        memory_fraction=[0.3],
        group_by=[],
        **AXES,
    ),
}


@functools.cache
def answers(name: str) -> tuple[AggWork, Kept, dict[int, Brute]]:
    work = work_of(SPECS[name])
    return work, swept(work), dict(brute(work))


@pytest.mark.parametrize("name", SPECS)
def test_counts_are_those_of_all_points(name):
    work, kept, groups = answers(name)
    total = 0
    for group, points in groups.items():
        for place, limits in enumerate(work.spec.limits):
            assert kept.counts[group, place].tolist() == points.counts(limits), (work.groups.names[group], limits)
        total += len(points.number)
    assert total == work.cases.points
    reasons = np.sum([kept.counts[group, 0] for group in groups], axis=0)
    assert (reasons[[1, 4, 5]] > 0).all()  # outside, without room for the cache, feasible


@pytest.mark.parametrize("name", SPECS)
def test_best_points_are_those_of_all_points(name):
    work, kept, groups = answers(name)
    for group, points in groups.items():
        for place, limits in enumerate(work.spec.limits):
            for rank, objective in enumerate(work.spec.objectives):
                found = kept.tops.get((group, place, rank), no_points())
                assert points.same_top(found, limits, objective, work.spec.top_k)
                at = points.places(found)
                for field in ("ttft_ms", "tpot_ms", "request_latency_ms", "seq_per_s"):
                    np.testing.assert_allclose(getattr(found, field), getattr(points, field)[at], rtol=RTOL)


@pytest.mark.parametrize("name", SPECS)
def test_fronts_are_those_of_all_points(name):
    work, kept, groups = answers(name)
    lengths = []
    for group, points in groups.items():
        for place, limits in enumerate(work.spec.limits):
            found = kept.fronts.get((group, place), no_points())
            assert points.same_front(found, limits, work.spec.objectives[0])
            lengths.append(len(found.number))
    assert max(lengths) > 10


def test_brute_force_tells_fronts_apart():
    """The comparison is not blind: a front or a list that lacks a point is another one."""
    work, kept, groups = answers("measured tables")
    front, top = kept.fronts[0, 0], kept.tops[0, 0, 0]
    limits, objective = work.spec.limits[0], work.spec.objectives[0]
    assert not groups[0].same_front(front.take(np.arange(len(front.number) - 1)), limits, objective)
    assert not groups[0].same_top(top.take(np.array([*range(1, 7), 6])), limits, objective, work.spec.top_k)
