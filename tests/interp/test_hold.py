# SPDX-License-Identifier: Apache-2.0
"""Holds on a table of many points: which of them a block of queries searches never shows in an answer.

The table is asked for a head count that it lacks, so that every query is held.
"""

import numpy as np

from aicjax._results import Provenance
from aicjax.interp.hold import CANDIDATES, HOLD_BLOCK
from tests.interp.grids import ROOF, ask, bound, check_against_oracle, rates_of
from tests.strategies import GridTable

POINTS = 2 * HOLD_BLOCK
LEAVES = 384


def large_table(head: float = 7.0) -> GridTable:
    """More points than a block keeps as candidates, unevenly spaced, with holes."""
    rng = np.random.default_rng(3)
    knots = tuple(
        np.round(2.0 ** np.arange(low, high) * rng.uniform(0.8, 1.2, high - low)) for low, high in ((4, 16), (3, 13))
    )
    latency = rng.uniform(0.1, 10.0, (3, 12, 10))
    latency[rng.random(latency.shape) < 0.1] = np.nan
    table = GridTable(np.array([8.0, 24.0, 64.0]), knots, latency, head)
    assert LEAVES >= len(table.points) > 2 * CANDIDATES
    return table


def check(queries: np.ndarray) -> None:
    table = large_table()
    latency, code = ask([bound(table, ROOF, LEAVES)], [table], queries, rates_of(ROOF))
    assert (np.asarray(code) == Provenance.HELD).all()
    check_against_oracle(table, ROOF, queries, (np.asarray(latency[0]), np.asarray(code[0])))


def test_close_queries_find_their_anchors_among_candidates():
    rng = np.random.default_rng(5)
    check(np.array([[20000.0], [200.0]]) * 2 ** rng.uniform(-0.3, 0.3, (2, POINTS)))


def test_scattered_queries_find_their_anchors_among_all_points():
    rng = np.random.default_rng(6)
    check(2 ** np.stack([rng.uniform(0, 18, POINTS), rng.uniform(-2, 15, POINTS)]))


def test_far_queries_find_their_anchors():
    rng = np.random.default_rng(8)
    check(2 ** np.stack([rng.uniform(19, 20, POINTS), rng.uniform(-8, -7, POINTS)]))


def test_queries_that_need_no_hold_do_not_mind_their_neighbours():
    """A block of measured points, then a block that mixes them with points beyond the range."""
    table = large_table(head=24.0)
    measured = np.array([point[1:] for point in table.points if point[0] == 24.0])[:HOLD_BLOCK]
    beyond = measured * np.where(np.arange(HOLD_BLOCK) % 2, 1.0, 1e4)[:, None]
    latency, code = ask([bound(table, ROOF, LEAVES)], [table], np.concatenate([measured, beyond]).T, rates_of(ROOF))
    want = [table.points[24.0, length, batch] for length, batch in measured.tolist()]
    np.testing.assert_array_equal(latency[0][:HOLD_BLOCK], np.array(want, np.float32))
    np.testing.assert_array_equal(latency[0][HOLD_BLOCK + 1 :: 2], np.array(want[1::2], np.float32))
    assert (np.asarray(code[0])[HOLD_BLOCK::2] == Provenance.HELD).all()
