# SPDX-License-Identifier: Apache-2.0
"""Which points of a sweep over pools a target keeps: the loop of halvings, and low batches."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.explore.afd_choice import batch_limits, kept_points
from aicjax.explore.afd_memory import PoolMemory
from aicjax.explore.afd_sweep import AfdPoints, Times

LOW, STEP, MOST = (1, 2, 4), 8, 64
BATCHES = np.array([*LOW, *range(STEP, MOST + 1, STEP)])


def points(step_ms: list[float], *, most_fitting: int = MOST, attention_limit: float = MOST, ffn_limit: float = 0.0):
    unused: Any = np.zeros((1, len(BATCHES)))
    times = Times(unused, unused, unused, np.array([step_ms]), unused)
    memory = PoolMemory(
        attention_bytes=unused,
        ffn_bytes=unused,
        fits=(most_fitting >= BATCHES)[None],
        attention_limit=np.array([attention_limit]),
        ffn_limit=np.array([ffn_limit]),
    )
    return AfdPoints(BATCHES, unused, times, memory)


def halved(passes: dict[int, bool], limit: int) -> int:
    """Largest passing multiple of the step by halving; 0 for none."""
    low, high, best = STEP, limit // STEP * STEP, 0
    while low <= high:
        middle = max((low + high) // 2 // STEP * STEP, STEP)
        if passes[middle]:
            best, low = middle, middle + STEP
        else:
            high = middle - STEP
    return best


@given(st.lists(st.floats(1, 20), min_size=len(BATCHES), max_size=len(BATCHES)), st.floats(1, 20), st.integers(1, MOST))
def test_largest_batch_is_found_by_halving(step_ms, target, most_fitting):
    step_ms = [round(value, 3) for value in step_ms]
    (kept,) = kept_points(points(step_ms, most_fitting=most_fitting), np.array([target]), STEP, MOST)
    passes = {
        batch: ms <= target and batch <= most_fitting for batch, ms in zip(BATCHES.tolist(), step_ms, strict=True)
    }
    wanted = {batch for batch in LOW if passes[batch]} | {halved(passes, MOST)} - {0}
    assert set(BATCHES[kept.batch].tolist()) == wanted


@pytest.mark.parametrize(
    ("attention", "ffn", "limit"), [(50.9, 0.0, 48), (5.0, 0.0, 32), (500.0, 0.0, 64), (50.0, 21.0, 21)]
)
def test_batches_end_where_a_pool_is_full(attention: float, ffn: float, limit: int):
    got = batch_limits(points([1.0] * len(BATCHES), attention_limit=attention, ffn_limit=ffn), STEP, MOST)
    assert got.tolist() == [limit]
