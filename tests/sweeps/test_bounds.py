# SPDX-License-Identifier: Apache-2.0
"""Bounds never drop a block with one of the best points, or one of the front, whatever its values and ties."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aicjax.explore.pareto import front_rows
from aicjax.sweeps.bounds import SLACK, may_be_on_front, may_be_on_top

BLOCKS, POINTS = 12, 4  # points of a block
ROUNDING = SLACK / 4  # between a value as it was bounded and as it is looked at

# Few values, so that many tie; 0 as the TPOT of one output token is; infinite where a point does not count.
FEW = st.sampled_from([0.0, 1.0, 1.0 + 2**-23, 2.0, 3.0, 1e-30, 1e30])
MANY = st.floats(2**-20, 2**20, width=32)
VALUES = st.lists(st.one_of(FEW, MANY), min_size=BLOCKS * POINTS, max_size=BLOCKS * POINTS)
COUNTS = st.lists(st.booleans(), min_size=BLOCKS * POINTS, max_size=BLOCKS * POINTS)
ERRORS = st.lists(st.sampled_from([-ROUNDING, 0.0, ROUNDING]), min_size=BLOCKS * POINTS, max_size=BLOCKS * POINTS)


def array(values: list) -> np.ndarray:
    return np.array(values).reshape(BLOCKS, POINTS)


@given(VALUES, COUNTS, ERRORS, st.booleans(), st.integers(1, 20), st.one_of(st.none(), FEW))
def test_no_block_with_a_best_point_is_dropped(values, there, errors, latencies, count, known):
    value, there = array(values) * (-1 if latencies else 1), array(there)
    threshold = -np.inf if known is None else float(known)
    bound = np.where(there, value * (1 + array(errors)), -np.inf).max(axis=1)
    kept = may_be_on_top(bound, count, threshold)

    counted = np.sort(value[there])[::-1]
    least = max(threshold, counted[min(count, counted.size) - 1] if counted.size else np.inf)
    holds = (there & (value >= least)).any(axis=1)
    assert kept[holds].all()
    assert not kept[~there.any(axis=1)].any()


@given(VALUES, VALUES, COUNTS, ERRORS, ERRORS, st.lists(st.tuples(FEW, FEW), max_size=3))
def test_no_block_with_a_front_point_is_dropped(times, heights, there, time_errors, height_errors, known):
    tpot_ms, height, there = array(times), array(heights), array(there)
    bounded_ms, bounded = tpot_ms * (1 + array(time_errors)), height * (1 + array(height_errors))
    least_ms = np.where(there, bounded_ms, np.inf).min(axis=1)
    highest = np.where(there, bounded, -np.inf).max(axis=1)
    sample_ms, sample = np.where(there, bounded_ms, np.inf)[:, 0], np.where(there, bounded, -np.inf)[:, 0]
    more_ms, more = (np.array([point[axis] for point in known]) for axis in range(2))
    kept = may_be_on_front(
        least_ms.astype(np.float32),
        highest.astype(np.float32),
        np.concatenate([sample_ms, more_ms]),
        np.concatenate([sample, more]),
    )

    at = np.flatnonzero(there)
    every_ms = np.concatenate([tpot_ms.ravel()[at], more_ms])
    every = np.concatenate([height.ravel()[at], more])
    front = front_rows(every_ms, every, maximize_x=False)
    holding = at[front[front < at.size]] // POINTS
    assert kept[holding].all()
    assert not kept[~there.any(axis=1)].any()


NEAR = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), min_size=2, max_size=6)


@given(NEAR)
def test_neighbours_do_not_beat_each_other(points):
    """TPOTs that differ by a thousandth, less than the width of a bin: the slower ones beat none."""
    tpot_ms, height = (np.array([point[axis] for point in points], np.float32) for axis in range(2))
    tpot_ms = 1 + tpot_ms / 1024
    kept = may_be_on_front(tpot_ms, height, tpot_ms, height)
    assert kept[front_rows(tpot_ms, height, maximize_x=False)].all()


def test_what_rounding_may_turn_round_is_kept():
    """A bound that another one beats by rounding alone: looked at, its point may be the better one."""
    one, less = np.array([1.0]), np.array([1 - ROUNDING])
    assert may_be_on_top(np.concatenate([one, less]), 1, -np.inf).all()
    assert may_be_on_top(less, 1, 1.0).all()
    assert may_be_on_front(2 * one, less, one, one).all()
    assert may_be_on_front(one, less / 2, less, one).all()  # the two times lie in two bins
    assert not may_be_on_front(2 * one, one - 2 * SLACK, one, one).any()


def test_few_blocks_are_left_of_many():
    """Of a cloud with a clear front and clear best points, bounds leave little."""
    tpot_ms = np.linspace(1, 100, 20_000, dtype=np.float32)
    height = np.random.default_rng(0).random(20_000) * np.sqrt(tpot_ms)
    assert may_be_on_top(height, 10, -np.inf).sum() == 10
    assert may_be_on_front(tpot_ms, height, tpot_ms, height).mean() < 0.05


def test_nothing_counts_nowhere():
    nowhere = np.full(3, -np.inf)
    assert not may_be_on_top(nowhere, 2, -np.inf).any()
    assert not may_be_on_front(-nowhere.astype(np.float32), nowhere, -nowhere, nowhere).any()
