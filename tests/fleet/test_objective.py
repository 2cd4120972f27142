# SPDX-License-Identifier: Apache-2.0
"""The smooth objective: its slopes, its optimum, and the fleet that can be built beside it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.fleet.capacity import Target
from aicjax.fleet.continuous import continuous_optimum, rounded
from aicjax.fleet.lengths import Lengths, from_pairs
from aicjax.fleet.objective import Design, Problem, Softness, objective, softplus
from aicjax.fleet.pools import Compression, split
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import stacked
from aicjax.fleet.sizing import Demand, stated

ISL, OSL = np.linspace(80, 5000, 60).round(), np.linspace(20, 900, 60).round()
SOFT = Softness(usd_per_hour=300.0, width=0.01)
MOST_GAMMA = 2.0
ROUNDED = jax.jit(rounded)


def _problem() -> Problem:
    """Of the dtype of the moment."""
    lengths = from_pairs(ISL, OSL)
    return Problem(
        profiles=stacked([preset("a100"), preset("h100")]),
        lengths=Lengths(*(jnp.asarray(leaf, float) for leaf in lengths)),
        max_tokens=jnp.asarray(8192.0),
        demand=Demand(jnp.asarray(30.0)),
        target=Target(jnp.asarray(1.0)),
        compression=Compression(jnp.asarray(1.0), jnp.asarray(0.75), jnp.asarray(0.003)),
    )


def _design() -> Design:
    return Design(jnp.asarray([2003.7]), jnp.asarray([1.31]), jnp.asarray([2.3, 4.1]))


@pytest.mark.slow
def test_slopes_are_those_of_differences():
    """In thresholds, gamma, replicas, rate, limit, prices and the times of an iteration (W and H)."""
    with jax.enable_x64(True):
        design, problem = _design(), _problem()
        value = jax.jit(lambda design, problem: objective(design, problem, SOFT))
        slopes = jax.jit(jax.grad(value, argnums=(0, 1)))(design, problem)
        places = {
            "threshold": (0, lambda tree: tree[0].thresholds, 0),
            "gamma": (0, lambda tree: tree[0].gamma, 0),
            "replicas short": (0, lambda tree: tree[0].replicas, 0),
            "replicas long": (0, lambda tree: tree[0].replicas, 1),
            "rate": (1, lambda tree: tree[1].demand.rate_per_s, ()),
            "limit": (1, lambda tree: tree[1].target.limit_s, ()),
            "price": (1, lambda tree: tree[1].profiles.price_per_hour, 1),
            "W": (1, lambda tree: tree[1].profiles.base_s, 0),
            "H": (1, lambda tree: tree[1].profiles.per_sequence_s, 1),
            "success": (1, lambda tree: tree[1].compression.success, ()),
        }
        for name, (_, where, index) in places.items():
            leaf = where((design, problem))
            step = 1e-6 * float(leaf[index])

            def moved(by: float, where=where, leaf=leaf, index=index) -> float:
                changed = leaf.at[index].add(by)
                tree = jax.tree.map(lambda x: changed if x is leaf else x, (design, problem))
                return float(value(*tree))

            difference = (moved(step) - moved(-step)) / (2 * step)
            assert float(where(slopes)[index]) == pytest.approx(difference, rel=1e-4, abs=1e-6), name
            assert np.isfinite(difference)


def test_softplus_is_the_excess_but_for_its_width():
    np.testing.assert_allclose(softplus(jnp.asarray([-1.0, 0.0, 2.0]), 0.05), [0, 0.05 * np.log(2), 2], atol=1e-6)


def test_rounded_reach_is_at_most_the_largest():
    """Also where the cheapest neighbour compresses further."""
    for most_gamma in (1.08, 1.33, 1.58, 1.83, 2.0):
        design = _design()._replace(gamma=jnp.asarray([most_gamma]))
        assert 1.0 <= float(ROUNDED(design, _problem(), most_gamma).gamma[0]) <= most_gamma * (1 + 1e-6)


@pytest.mark.slow
def test_rounded_optimum_is_that_of_brute_force():
    problem = _problem()
    starts = Design(jnp.asarray([[1200.0], [3000.0]]), jnp.full((2, 1), 1.3), jnp.asarray([[1.5, 4.0], [4.0, 2.5]]))
    design, usd = jax.jit(continuous_optimum)(starts, problem, SOFT, MOST_GAMMA)
    found = ROUNDED(design, problem, MOST_GAMMA)
    assert bool(found.sizing.met)
    assert float(usd) <= float(found.sizing.usd_per_hour) * 1.02, "whole replicas cost more than parts of them"

    thresholds, gammas = np.arange(500.0, 6000.0, 500.0), np.array([1.0, 1.5, 2.0])
    counts = np.array(list(itertools.product(range(1, 9), range(1, 9))), float)

    def met(threshold: jax.Array, gamma: jax.Array, replicas: jax.Array) -> jax.Array:
        compression = problem.compression._replace(gamma=gamma)
        pools = split(problem.profiles, problem.lengths, threshold[None], problem.max_tokens, compression)
        fleet = stated(pools, replicas, problem.demand, problem.target)
        return fleet.met & (fleet.load.utilization <= problem.target.rho_max).all()

    over_counts = jax.vmap(met, in_axes=(None, None, 0))
    over_gammas = jax.vmap(over_counts, in_axes=(None, 0, None))
    holds = jax.jit(jax.vmap(over_gammas, in_axes=(0, None, None)))(
        jnp.asarray(thresholds, float), jnp.asarray(gammas, float), jnp.asarray(counts, float)
    )
    prices = counts @ np.array([preset("a100").price_per_hour, preset("h100").price_per_hour])
    cheapest = np.where(np.asarray(holds), prices, np.inf).min()
    assert float(found.sizing.usd_per_hour) <= cheapest * (1 + 1e-5)
