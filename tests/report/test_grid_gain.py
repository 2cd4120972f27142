# SPDX-License-Identifier: Apache-2.0
"""What the full grid found, in words: by how much, and by which change."""

from typing import Any

import numpy as np
import pytest

from aicjax.explore.frame import Frame
from aicjax.explore.grid_gain import Baseline
from aicjax.report import grid_gain
from tests.report.frames import agg_frame, disagg_frame
from tests.report.results import result, task


def changed(frame: Frame, **values: Any) -> Frame:
    """The frame with other values in some columns of all its rows."""
    rows = len(frame["tp" if "tp" in frame else "(d)tp"])
    return {**frame, **{name: np.array([value] * rows) for name, value in values.items()}}


def told(new: Frame, old: Frame | None, name: str = "agg", **facts: Any) -> list[str]:
    baseline = Baseline("reference", old if old is not None else {}, old is not None)
    return grid_gain.lines(result(task(name, new, baseline=baseline, grid="full", **facts)))


def test_another_batch_and_budget_are_named():
    new = changed(agg_frame(19), ctx_tokens=8000, **{"tokens/s/gpu_cluster": 440.0})
    old = changed(agg_frame(16), ctx_tokens=4000, **{"tokens/s/gpu_cluster": 400.0})
    change = "batch 19 instead of 16 and ctx_tokens 8000 instead of 4000"
    assert told(new, old) == [f"  full grid: agg +10.0 % over the coarse grid (400.00), from {change}"]


def test_other_workers_of_a_replica_are_named():
    old = disagg_frame()
    score = float(old["tokens/s/gpu_cluster"][0])
    new = changed(old, **{"(d)bs": 70, "(p)workers": 4, "tokens/s/gpu_cluster": 1.5 * score})
    change = "4 prefill workers instead of 5 and decode batch 70 instead of 64"
    assert told(new, old, "disagg")[0].endswith(f"+50.0 % over the coarse grid ({score:.2f}), from {change}")


def test_another_layout_is_named_whole():
    new = changed(agg_frame(9), tp=2, parallel="tp2pp1dp1etp1ep1", **{"tokens/s/gpu_cluster": 500.0})
    assert told(new, agg_frame(16))[0].endswith("(426.90), from tp2 b9 instead of tp4 b16")


def test_nothing_more_is_told_as_nothing():
    assert told(agg_frame(16), agg_frame(16)) == ["  full grid: agg +0.0 % over the coarse grid (426.90)"]


def test_limits_that_the_coarse_grid_misses():
    assert told(agg_frame(16), None) == ["  full grid: agg meets the limits, on the coarse grid nothing does"]


@pytest.mark.parametrize(("needed", "text"), [(24, "24 GPUs instead of 32 on the coarse grid"), (32, "32 GPUs, as on")])
def test_gpus_of_a_load(needed: int, text: str):
    new = changed(agg_frame(16), replicas_needed=8, total_gpus_needed=needed)
    old = changed(agg_frame(16), replicas_needed=8, total_gpus_needed=32)
    assert text in told(new, old)[0]


def test_without_a_coarser_grid_nothing_is_told():
    plain = result()
    assert grid_gain.lines(plain) == []
    assert grid_gain.as_dict(plain.grid_gain) is None


def test_winner_is_told_first_and_the_search_against_the_best_of_all():
    agg, disagg = agg_frame(16), disagg_frame()
    tasks = [
        task("agg", agg, baseline=Baseline("reference", changed(agg, **{"tokens/s/gpu_cluster": 500.0}), True)),
        task(
            "disagg", disagg, baseline=Baseline("reference", changed(disagg, **{"tokens/s/gpu_cluster": 450.0}), True)
        ),
    ]
    found = result(*tasks)
    (line,) = grid_gain.lines(found)
    assert line.index("disagg +") < line.index("agg -")
    gain = found.grid_gain
    assert gain is not None
    assert gain.percent == pytest.approx(100 * (disagg["tokens/s/gpu_cluster"][0] / 500.0 - 1))
