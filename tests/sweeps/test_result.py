# SPDX-License-Identifier: Apache-2.0
"""Frames of a sweep: rows against those of a search, lists and fronts merged over groups, counts and histograms."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax._results import InputError
from aicjax.explore import frame as frames
from aicjax.explore.agg_sweep import agg_frame
from aicjax.sweeps.cases import request_of
from aicjax.sweeps.histogram import BINS, bin_of, edges
from aicjax.sweeps.kept import Kept, Points, joined
from aicjax.sweeps.result import OVERALL, REASONS, SweepResult
from aicjax.sweeps.rows import COLUMNS
from aicjax.sweeps.spec import SweepSpec
from tests.sweeps.sweeping import Brute, brute, search_points, swept, work_of

ROUNDED = 1.1e-3  # the third decimal of two float32 programs
FIELDS: dict[str, Any] = {
    "models": "Qwen/Qwen3-32B-FP8",
    "systems": ["h200_sxm", "h100_sxm"],
    "backends": "trtllm",
    "isl": 3000,
    "osl": [1, 300],
    "batch": {"last": 90, "step": 2},
    "ctx_tokens": {"last": 8192, "step": 1024},
    "parallel": {"tp": [1, 2, 8]},
    "limits": [{"ttft": 700, "tpot": 9}, {}, {"ttft": 0.01}],
    "objectives": ["tokens/s/gpu", "ttft"],
    "memory_fraction": [None, 0.5],
    "gpu_hour_price": {"h200_sxm": 3.0},
    "top_k": 6,
    "histogram": True,
}


@functools.cache
def result_and_points() -> tuple[SweepResult, dict[int, Brute]]:
    work = work_of(SweepSpec(**FIELDS))
    kept, points = swept(work), work.cases.points
    return SweepResult(work.spec, work.cases, work.groups, kept, work.describe, points, True, 1.0), dict(brute(work))


def result() -> SweepResult:
    return result_and_points()[0]


def points_of(group: int | None) -> Brute:
    groups = result_and_points()[1]
    chosen = list(groups.values()) if group is None else [groups[group]]
    return Brute(*(np.concatenate(values) for values in zip(*chosen, strict=True)))


GROUPS = [None, 0, 1, 2, 3]


EXPERTS: dict[str, Any] = {
    "models": "Qwen/Qwen3-235B-A22B",
    "systems": "b200_sxm",
    "backends": "sglang",
    "isl": 700,
    "osl": 200,
    "batch": {"last": 40, "step": 3},
    "ctx_tokens": {"last": 1024, "step": 256},
    "drafts": {"nextn": 2, "accepted": 0.8},
    "database_mode": "SOL",
}


@pytest.mark.parametrize("fields", [FIELDS, EXPERTS], ids=["dense", "experts with drafts"])
def test_rows_are_those_of_a_search(fields: dict[str, Any]):
    work = work_of(SweepSpec(**fields))
    rng = np.random.default_rng(0)
    parts, rows = [], []
    for case in work.cases.cases[:3]:
        engine = work.cases.engines[case.engine]
        worker = engine.under(request_of(work.spec, engine.name, case.workload))["agg"]
        points = search_points(work.spec, work.cases, case)
        chosen = rng.choice(case.points, 40)
        times = (points.ttft_ms, points.tpot_ms, points.request_latency_ms, points.seq_per_s)
        taken = [values.ravel()[chosen] for values in times]
        parts.append(Points(case.first_point + chosen, np.zeros(40), *taken))
        rows.append(agg_frame(points, chosen, worker))
    order = rng.permutation(len(parts) * 40)
    found = work.describe(joined(parts).take(order))
    expected = frames.take(frames.concatenate(rows), order)
    assert tuple(found) == COLUMNS
    shared = [name for name in COLUMNS if name in expected]
    assert len(shared) > 30
    for name in shared:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert len(set(found["parallel"])) >= 3
    assert set(found["nextn"]) == {work.spec.drafts[0].nextn}


def test_memory_fraction_is_that_of_the_case():
    rows, cases = result().front(limits=1), result().cases.cases
    fractions = np.array([np.nan if case.memory_fraction is None else case.memory_fraction for case in cases])
    starts = [case.first_point for case in cases]
    expected = fractions[np.searchsorted(starts, rows["point"], side="right") - 1]
    np.testing.assert_array_equal(rows["memory_fraction"], expected)


def test_prices_and_power_are_of_the_row():
    rows = result().bests
    priced = rows["system"] == "h200_sxm"
    assert np.isnan(rows["tokens/$"][~priced]).all()
    per_dollar = rows["tokens/s/gpu"][priced] * 3600 / 3
    np.testing.assert_allclose(rows["tokens/$"][priced], per_dollar, atol=1200 * ROUNDED)
    assert (rows["tokens/J"] < rows["tokens/s/gpu"] / 100).all()
    assert (rows["tokens/J"] > 0).all()


def test_one_output_token_has_no_tpot():
    rows = [row for row in frames.rows(result().bests) if row["osl"] == 1]
    assert rows
    assert {(row["tpot"], row["tokens/s/user"]) for row in rows} == {(None, None)}
    assert all(row["request_latency"] == row["ttft"] for row in rows)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("objective", FIELDS["objectives"])
@pytest.mark.parametrize("limits", [0, 1])
def test_best_are_the_best_of_all_points(group: int | None, objective: str, limits: int):
    found, points = result(), points_of(group)
    rows = found.best(objective, limits, group)
    top = points.top(found.spec.limits[limits], objective, found.spec.top_k)
    column = np.abs(points.value(objective)[top])
    np.testing.assert_allclose(rows[objective], column, rtol=1e-5, atol=ROUNDED)


@pytest.mark.parametrize("group", GROUPS)
def test_front_is_the_front_of_all_points(group: int | None):
    found, points = result(), points_of(group)
    rows = found.front(0, group)
    expected = points.number[points.front(found.spec.limits[0], "tokens/s/gpu")]
    assert len(np.setxor1d(rows["point"], expected)) <= 0.05 * len(expected)  # those that differ by rounding
    assert (np.diff(rows["tokens/s/gpu"]) >= 0).all()


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("limits", [0, 1, 2])
def test_every_point_has_one_reason(group: int | None, limits: int):
    found, points = result(), points_of(group)
    fast, quick = points.within(found.spec.limits[limits])
    there = points.inside & points.known
    reasons = {
        "feasible": fast & quick,
        "outside": ~points.inside,
        "missing": points.inside & ~points.known,
        "memory": there & ~points.fits,
        "kv_memory": there & points.fits & ~points.cached,
        "misses_ttft": quick & ~fast,
        "misses_tpot": fast & ~quick,
        "misses_both": points.feasible & ~fast & ~quick,
    }
    assert found.count(limits, group) == {name: int(mask.sum()) for name, mask in reasons.items()}
    assert sum(found.count(limits, group).values()) == len(points.number)


def test_answers_are_overall_then_by_group():
    found = result()
    labels = [(answer.group, answer.limits.ttft) for answer in found.answers]
    assert labels[:3] == [(OVERALL, 700), (OVERALL, None), (OVERALL, 0.01)]
    assert labels[3:6] == [
        (f"Qwen/Qwen3-32B-FP8 h200_sxm trtllm {osl}", ttft)
        for osl, ttft in zip(["3000/1"] * 3, [700, None, 0.01], strict=True)
    ]
    assert len(labels) == 15
    assert found.answers[3].values["workload"] == "3000/1"
    counts = found.counts
    assert counts["feasible"][:3].tolist() == [sum(counts["feasible"][at + 3 :: 3]) for at in range(3)]


def test_frames_hold_every_list():
    found = result()
    bests = found.bests
    assert list(bests)[:5] == ["group", "ttft_limit", "tpot_limit", "objective", "rank"]
    chosen = (bests["group"] == OVERALL) & np.isnan(bests["ttft_limit"]) & (bests["objective"] == "ttft")
    assert bests["rank"][chosen].tolist() == [1, 2, 3, 4, 5, 6]
    assert bests["point"][chosen].tolist() == found.best("ttft", 1)["point"].tolist()
    chosen = (found.fronts["group"] == OVERALL) & (found.fronts["ttft_limit"] == 700)
    assert found.fronts["point"][chosen].tolist() == found.front(0)["point"].tolist()
    assert not (bests["ttft_limit"] == 0.01).any()
    assert set(REASONS) < set(found.counts)


def test_nothing_found_has_frames_with_all_columns():
    found = result()
    empty = SweepResult(found.spec, found.cases, found.groups, Kept(6), found.describe, 0, False, 0.0)
    assert not empty.found
    assert tuple(empty.best()) == tuple(empty.front()) == COLUMNS
    assert {frames.length(frame) for frame in (empty.bests, empty.fronts, empty.histogram)} == {0}
    assert set(empty.count().values()) == {0}


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"objective": "tokens/J"}, "objective"),
        ({"limits": 3}, "limits"),
        ({"group": 4}, "group"),
        ({"limits": -1}, "limits"),
    ],
)
def test_unknown_list_is_refused(changes: dict, argument: str):
    with pytest.raises(InputError, match=f"`{argument}`"):
        result().best(**changes)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("limits", [0, 1])
def test_histogram_counts_the_feasible_points(group: int | None, limits: int):
    found, points = result(), points_of(group)
    fast, quick = points.within(found.spec.limits[limits])
    value = points.value("tokens/s/gpu")[fast & quick]
    answer = found.answers[GROUPS.index(group) * 3 + limits]
    at_least, below = edges()
    expected, _ = np.histogram(value, np.append(at_least, below[-1]))
    counts = np.zeros(BINS, np.int64)
    counts[np.searchsorted(at_least, answer.histogram["at_least"])] = answer.histogram["points"]
    assert counts.sum() == len(value)
    near_edges = np.abs(value[:, None] / below - 1).min(axis=1) < 1e-6  # may fall on either side
    assert np.abs(counts - expected).sum() <= 2 * near_edges.sum()


@given(st.floats(2.0**-16, 2.0**32, width=32, exclude_max=True))
def test_number_is_within_the_edges_of_its_bin(value: float):
    at_least, below = edges()
    place = int(bin_of(jnp.array([value], jnp.float32))[0])
    assert at_least[place] <= value < below[place]
    assert below[place] / at_least[place] <= 1.125


def test_numbers_out_of_range_are_in_the_outer_bins():
    assert bin_of(jnp.array([0.0, 1e-30, 1e30, np.inf], jnp.float32)).tolist() == [0, 0, BINS - 1, BINS - 1]
