# SPDX-License-Identifier: Apache-2.0
"""Pairs of queries and keys: counted one by one, and in float32 behind long prefixes."""

import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.ops.sparse_rooflines import causal_pairs, compressed_pairs

POINTS = [(1, 0), (1, 1), (3, 0), (5, 2), (7, 30), (40, 0), (64, 17), (200, 5), (9, 1000)]


@pytest.mark.parametrize("limit", [0, 1, 4, 16, 10**6])
def test_causal_pairs_are_the_sum_over_tokens(limit: int):
    for new, prefix in POINTS:
        told = sum(min(token, limit) for token in range(prefix + 1, prefix + new + 1))
        assert causal_pairs(3.0, new, prefix, limit, xp=np) == 3 * told


@pytest.mark.parametrize("ratio", [4, 128])
@pytest.mark.parametrize("limit", [0, 1, 3, 50, 10**6])
def test_compressed_pairs_are_the_sum_over_tokens(ratio: int, limit: int):
    for new, prefix in POINTS:
        told = sum(min(token // ratio, limit) for token in range(prefix + 1, prefix + new + 1))
        assert compressed_pairs(3.0, new, prefix, ratio, limit, xp=np) == 3 * told


@pytest.mark.parametrize("new", [1, 5, 1000, 131072])
def test_pairs_hold_in_float32_behind_a_long_prefix(new: int):
    prefix = 1_048_575
    single = [jnp.asarray(x, jnp.float32) for x in (1, new, prefix)]
    double = [float(x) for x in (1, new, prefix)]
    for limit in (2048.0, 1e9):
        exact = causal_pairs(*double, limit=limit, xp=np)
        np.testing.assert_allclose(causal_pairs(*single, limit=limit), exact, rtol=1e-6)
        for ratio in (4.0, 128.0):
            exact = compressed_pairs(*double, ratio=ratio, limit=limit, xp=np)
            np.testing.assert_allclose(compressed_pairs(*single, ratio=ratio, limit=limit), exact, rtol=1e-6)
