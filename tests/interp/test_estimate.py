# SPDX-License-Identifier: Apache-2.0
"""Estimates from the two nearest points: against the definition, and what must hold for any table."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.interp.estimate import BLOCK, Samples, bind_samples, estimated_utilization, no_samples
from tests.oracles import estimate as oracle

SEEDS = st.integers(0, 2**20)
TOLERANCE = 1e-5  # float32 against float64
LEAVES, POINTS = 64, 32
AXES = ((1.0, 2.0, 5.0, 8.0), (16.0, 100.0, 333.0, 4096.0), (1.0, 3.0, 7.0, 20.0))

estimate = jax.jit(estimated_utilization)


def table(seed: int, points: int = 40) -> dict[oracle.Point, float]:
    """Utilisation of some points of a lattice, in ascending order of coordinates."""
    rng = np.random.default_rng(seed)
    lattice = np.stack(np.meshgrid(*AXES, indexing="ij"), -1).reshape(-1, 3)
    chosen = lattice[np.sort(rng.permutation(len(lattice))[:points])]
    return {tuple(p): float(u) for p, u in zip(chosen.tolist(), rng.uniform(0.05, 1.3, points), strict=True)}


def bound(samples: dict[oracle.Point, float]) -> Samples:
    return bind_samples(tuple(np.array(list(samples)).T), np.array(list(samples.values())), LEAVES)


def ask(rows: list[Samples], queries: np.ndarray, needed=None) -> np.ndarray:
    """Estimates of every row at its own queries [row, point, axis]."""
    stack = jax.tree.map(lambda *leaf: np.stack(leaf), *rows)
    return np.asarray(estimate(stack, tuple(np.moveaxis(queries, -1, 0).astype(np.float32)), needed))


def anywhere(rng: np.random.Generator) -> np.ndarray:
    return np.floor(2 ** rng.uniform(0, [4, 14, 6], (POINTS, 3)))


@given(SEEDS)
def test_any_query_agrees_with_the_definition(seed: int):
    rng = np.random.default_rng(seed)
    tables, queries = [table(seed), table(seed + 1, points=17)], np.stack([anywhere(rng), anywhere(rng)])
    want = [[oracle.utilization(t, tuple(q)) for q in row] for t, row in zip(tables, queries.tolist(), strict=True)]
    np.testing.assert_allclose(ask([bound(t) for t in tables], queries), want, rtol=TOLERANCE)


def test_measured_point_answers_for_itself():
    samples = table(4, points=POINTS)
    got = ask([bound(samples)], np.array(list(samples))[None])
    np.testing.assert_array_equal(got[0], np.array(list(samples.values()), np.float32))


def test_query_beyond_the_range_counts_as_at_its_edge():
    samples = bound(table(5))
    inner = np.array([[1.0, 333.0, 7.0], [8.0, 16.0, 20.0]] * (POINTS // 2))
    outer = np.array([[0.0, 333.0, 7.0], [500.0, 1.0, 4000.0]] * (POINTS // 2))
    np.testing.assert_array_equal(ask([samples], outer[None]), ask([samples], inner[None]))


def test_axis_of_one_value_tells_queries_apart_up_to_e_times_it():
    samples = {(16.0, 100.0): 0.2, (16.0, 400.0): 0.8}
    heads = np.array([4.0, 16.0, 20.0, 32.0, 43.0, 44.0, 100.0, 4096.0] * (POINTS // 8))
    queries = np.stack([heads, np.full(POINTS, 120.0)], -1)[None]
    want = [oracle.utilization(samples, tuple(query)) for query in queries[0].tolist()]
    np.testing.assert_allclose(ask([bound(samples)], queries)[0], want, rtol=TOLERANCE)


@pytest.mark.parametrize("turn", [1, -1])
def test_first_of_equally_near_points_counts(turn: int):
    samples = {(2.0, 16.0): 0.3, (8.0, 16.0): 0.5, (2.0, 64.0): 0.7, (8.0, 64.0): 0.9}
    ordered = dict(list(samples.items())[::turn])
    first, second = list(ordered.values())[:2]
    got = ask([bound(ordered)], np.full((1, POINTS, 2), [4.0, 32.0]))
    np.testing.assert_allclose(got, (first + second) / 2, rtol=TOLERANCE)


def test_of_two_values_an_equal_factor_away_the_one_that_float64_rounds_nearer_counts():
    axis = 2.0 ** np.arange(12)
    samples = {(2.0, key): float(at + 1) for at, key in enumerate(axis)} | {(64.0, 1.0): 99.0}
    place = np.log(axis) / np.ptp(np.log(axis))
    upper = np.diff(place)[1:] < np.diff(place)[:-1]
    assert upper.any()
    assert not upper.all()
    gap = math.log(3 / 2) / math.log(64 / 2), 1 / (axis.size - 1)
    away = gap[0], math.hypot(*gap)
    want = [
        (u / away[0] + (u + 1 if up else u - 1) / away[1]) / (1 / away[0] + 1 / away[1])
        for u, up in zip(np.arange(2.0, axis.size), upper, strict=True)
    ]
    queries = np.pad(axis[1:-1], (0, POINTS - axis.size + 2), constant_values=1.0)
    got = ask([bound(dict(sorted(samples.items())))], np.stack([np.full(POINTS, 3.0), queries], -1)[None])
    np.testing.assert_allclose(got[0, : axis.size - 2], want, rtol=TOLERANCE)


def test_single_point_answers_everywhere_and_none_nowhere():
    queries = np.stack([anywhere(np.random.default_rng(7))] * 2)
    got = ask([bound({(2.0, 100.0, 3.0): 0.25}), no_samples(3, LEAVES)], queries)
    np.testing.assert_array_equal(got[0], np.full(POINTS, 0.25, np.float32))
    assert np.isnan(got[1]).all()


def test_points_without_a_utilization_do_not_count():
    kept = {(2.0, 100.0, 3.0): 0.25, (5.0, 100.0, 3.0): 0.75}
    odd = {(1.0, 1.0, 1.0): 0.0, (3.0, 100.0, 3.0): float("nan"), (9.0, 9.0, 9.0): float("inf")}
    queries = anywhere(np.random.default_rng(8))[None]
    np.testing.assert_array_equal(ask([bound(kept | odd)], queries), ask([bound(kept)], queries))


def test_blocks_that_need_nothing_are_skipped():
    queries = np.full((1, 2 * BLOCK, 3), [2.0, 50.0, 3.0])
    got = ask([bound(table(9))], queries, np.arange(2 * BLOCK)[None] >= BLOCK)
    assert np.isnan(got[0, :BLOCK]).all()
    assert np.isfinite(got[0, BLOCK:]).all()


def test_gradients_are_finite_on_a_measured_point_and_beside_it():
    samples = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], bound({(2.0, 16.0): 0.3, (8.0, 16.0): 0.5}))

    def total(utilization, query):
        moved = eqx.tree_at(lambda s: s.utilization, samples, utilization)
        return estimated_utilization(moved, (query, jnp.full_like(query, 16.0))).sum()

    slopes = jax.grad(total, (0, 1))(samples.utilization, jnp.array([[2.0, 3.0, 4.0, 8.0, 20.0]]))
    assert all(np.isfinite(slope).all() for slope in slopes)
    np.testing.assert_allclose(slopes[0].sum(), 5.0, rtol=TOLERANCE)  # weights sum to one
