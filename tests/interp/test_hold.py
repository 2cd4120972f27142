# SPDX-License-Identifier: Apache-2.0
"""Holds in blocks: which points a block searches never shows in an answer."""

from collections.abc import Sequence

import jax
import numpy as np

from aicjax.interp.hold import CANDIDATES, FAR_LOG2, HOLD_BLOCK, Held, held_utilization
from tests.oracles import grid as oracle

TOLERANCE = 1e-4  # weights are differences of distances, in float32
POINTS = 2 * HOLD_BLOCK
LEAVES = 384


def held(leaf_log2, leaf_utilization, places, needed):
    """Utilisation of the queries of one stack."""
    return search([Held(leaf_log2, leaf_utilization, places, needed)])[0]


search = jax.jit(held_utilization)


def large_table() -> dict[oracle.Point, float]:
    """Utilisation at more points than a block keeps as candidates, on a jittered lattice of three axes."""
    rng = np.random.default_rng(3)
    lattice = np.stack(np.meshgrid([0.25, 1, 4], 2.0 ** np.arange(4, 15), 2.0 ** np.arange(0, 9)), -1).reshape(-1, 3)
    points = lattice * 2 ** rng.uniform(-0.2, 0.2, lattice.shape)
    assert len(points) > 2 * CANDIDATES
    return {tuple(p): float(u) for p, u in zip(points.tolist(), rng.uniform(0.1, 1.2, len(points)), strict=True)}


def stack(table: dict[oracle.Point, float], places: Sequence[np.ndarray], needed: np.ndarray) -> Held:
    """Points by coordinates, the outermost as a ratio to the value asked for, and queries on the other axes."""
    leaves = np.full((1, 1 + len(places), LEAVES), FAR_LOG2, np.float32)
    leaves[0, :, : len(table)] = np.log2(np.array(list(table))).T
    utilization = np.zeros((1, LEAVES), np.float32)
    utilization[0, : len(table)] = list(table.values())
    return Held(leaves, utilization, tuple(np.log2(x).astype(np.float32)[None] for x in places), needed[None])


def answers(table: dict[oracle.Point, float], outer: np.ndarray, inner: np.ndarray, needed: np.ndarray) -> np.ndarray:
    return np.asarray(held([stack(table, (outer, inner), needed)])[0])[0]


def check(outer: np.ndarray, inner: np.ndarray) -> None:
    table = large_table()
    got = answers(table, outer, inner, np.ones(POINTS, bool))
    latency = {point: 1.0 / utilization for point, utilization in table.items()}  # under a roofline of one
    want = [1 / oracle.hold(latency, (1.0, o, i), lambda *_: 1.0)[0] for o, i in zip(outer, inner, strict=True)]
    np.testing.assert_allclose(got, want, rtol=TOLERANCE)


def test_close_queries_find_their_anchors_among_candidates():
    rng = np.random.default_rng(5)
    check(20000.0 * 2 ** rng.uniform(-0.3, 0.3, POINTS), 200.0 * 2 ** rng.uniform(-0.3, 0.3, POINTS))


def test_scattered_queries_find_their_anchors_among_all_points():
    rng = np.random.default_rng(6)
    check(2 ** rng.uniform(0, 18, POINTS), 2 ** rng.uniform(-2, 11, POINTS))


def test_far_queries_find_their_anchors():
    rng = np.random.default_rng(8)
    check(2 ** rng.uniform(25, 26, POINTS), 2 ** rng.uniform(-12, -11, POINTS))


def test_block_that_needs_nothing_is_skipped():
    at = np.full(POINTS, 3.0)
    got = answers(large_table(), at, at, np.arange(POINTS) >= HOLD_BLOCK)
    assert np.isnan(got[:HOLD_BLOCK]).all()
    assert np.isfinite(got[HOLD_BLOCK:]).all()


def test_stacks_of_other_lengths_and_axes_answer_as_if_alone():
    rng = np.random.default_rng(9)
    needed = np.ones(POINTS, bool)
    pairs = stack(large_table(), 2 ** rng.uniform(0, 18, (2, POINTS)), needed)
    few = {(1.0, 2.0**a, 2.0**b, 2.0**c): 1.0 + a + b / 3 + c / 9 for a in range(3) for b in range(3) for c in range(3)}
    triples = stack(few, 2 ** rng.uniform(-2, 5, (3, 70)), np.ones(70, bool))
    short = Held(triples.leaf_log2[..., :64], triples.leaf_utilization[..., :64], *triples[2:])
    for asked, alone in zip(held([pairs, short]), (held([pairs])[0], held([triples])[0]), strict=True):
        np.testing.assert_allclose(asked, alone, rtol=1e-6)
    want = [
        1 / oracle.hold({p: 1 / u for p, u in few.items()}, (1.0, *q), lambda *_: 1.0)[0]
        for q in zip(*_counts(short), strict=True)
    ]
    np.testing.assert_allclose(held([triples])[0][0], want, rtol=TOLERANCE)


def _counts(asked: Held) -> list[list[float]]:
    """Coordinates of the queries."""
    return [(2.0 ** place[0].astype(np.float64)).tolist() for place in asked.places]
