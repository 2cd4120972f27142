# SPDX-License-Identifier: Apache-2.0
"""Replicas that hold for every mixture of lengths within a distance of the expected one."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aicjax.fleet.capacity import Target
from aicjax.fleet.lengths import from_pairs, joined
from aicjax.fleet.pools import Compression
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import stacked
from aicjax.fleet.robust import mixtures_within, robust_sizing
from aicjax.fleet.sizing import Demand

CHAT = from_pairs([100, 400, 800], [20, 100, 100])
DOCUMENTS = from_pairs([3500, 5000, 7000], [100, 300, 500])
CODE = from_pairs([1500, 1700, 2600], [30, 30, 30])
EXPECTED = np.array([0.6, 0.1, 0.3])


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=4), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_mixtures_reach_as_far_as_any_within_the_radius(raw: list[float], radius: float, seed: int):
    expected = np.array(raw) / sum(raw)
    mixtures = mixtures_within(expected, radius)
    np.testing.assert_allclose(mixtures.sum(axis=1), 1, atol=1e-9)
    assert mixtures.min() >= -1e-9
    moved = np.abs(mixtures - expected).sum(axis=1) / 2
    assert moved.max() <= radius + 1e-9
    # What is linear in the mixture, such as the load, is largest at an extreme one.
    rng = np.random.default_rng(seed)
    value = rng.normal(size=len(expected))
    other = rng.dirichlet(np.ones(len(expected)))
    distance = np.abs(other - expected).sum() / 2
    inside = expected + (other - expected) * min(1.0, radius / max(distance, 1e-12))
    assert inside @ value <= (mixtures @ value).max() + 1e-9


def test_joined_law_holds_each_law():
    points, weights = joined([CHAT, DOCUMENTS, CODE])
    assert (np.diff(np.asarray(points.total)) >= 0).all()
    for law, row in zip([CHAT, DOCUMENTS, CODE], weights, strict=True):
        np.testing.assert_allclose(row.sum(), 1)
        np.testing.assert_allclose(row @ np.asarray(points.isl), law.weight @ law.isl, rtol=1e-6)


def test_replicas_are_the_most_that_any_mixture_needs():
    mixtures = mixtures_within(EXPECTED, 0.1, steps=2)
    found = robust_sizing(
        stacked([preset("a100")] * 2),
        [CHAT, DOCUMENTS, CODE],
        mixtures,
        jnp.asarray([2000.0]),
        8000.0,
        Demand(200.0),
        Target(1.0),
        Compression(1.0, 0.75, 0.003),
    )
    needs = np.asarray(found.sizing.load.replicas)
    assert np.asarray(found.replicas).tolist() == needs.max(axis=0).tolist()
    assert (needs[0] < np.asarray(found.replicas)).any(), "the expected mixture needs less"
    assert float(found.worst[1, 1]) > EXPECTED[1], "documents are what the long pool fears"
    assert float(found.usd_per_hour) >= float(found.sizing.usd_per_hour.max()) - 1e-3
