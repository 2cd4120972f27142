# SPDX-License-Identifier: Apache-2.0
"""Lengths as the fleet reference draws them, from the same streams of the standard library's generator; host side."""

import random

import numpy as np

from aicjax.fleet.cdf import DEFAULT_INPUT_SHARE, Knots
from aicjax.fleet.lengths import Lengths, from_pairs, from_weighted, split

DRAWS = 3000
SEED = 42


def reference_draws(knots: Knots, pool_max: int, lowest: int = 1, *, draws: int = DRAWS, seed: int = SEED) -> Lengths:
    """The law of the draws from which the reference takes the moments of a pool.

    A draw picks an interval of knots, then a whole length in the part of it from `lowest` to `pool_max`: so requests
    beyond the pool's context count as shorter ones of their interval, and as `pool_max` where nothing is left of it.
    Draws above the last share are skipped.

    Args:
        knots: Distribution of total tokens.
        pool_max: Context limit of the pool.
        lowest: Least total tokens.
        draws: Number of draws.
        seed: Seed of the generator.
    """
    stream = random.Random(seed)
    bounds = _bounds(knots, pool_max, lowest)
    shares = knots.shares.tolist()
    totals = []
    for _ in range(draws):
        u = stream.random()
        place = next((number for number, share in enumerate(shares) if u <= share), None)
        if place is None:
            continue
        low, high = bounds[place]
        totals.append(stream.randint(low, high) if low <= high else pool_max)
    return from_pairs(*split(np.asarray(totals, np.float64), DEFAULT_INPUT_SHARE))


def reference_bins(knots: Knots, pool_max: int, lowest: int = 1) -> Lengths:
    """The law that `reference_draws` samples: every whole length of every interval with its share."""
    totals, weights = [], []
    for (low, high), mass in zip(_bounds(knots, pool_max, lowest), np.diff(knots.shares, prepend=0.0), strict=True):
        total = np.arange(low, high + 1.0) if low <= high else np.array([float(pool_max)])
        totals.append(total)
        weights.append(np.full(total.size, mass / total.size))
    weight = np.concatenate(weights)
    return from_weighted(*split(np.concatenate(totals), DEFAULT_INPUT_SHARE), weight / weight.sum())


def _bounds(knots: Knots, pool_max: int, lowest: int) -> list[tuple[int, int]]:
    """Least and largest whole length of each interval, inclusive; empty where the first is above the second."""
    tokens = knots.tokens.astype(int)
    least = np.maximum(np.append(0, tokens[:-1]) + 1, lowest)
    return list(zip(least.tolist(), np.minimum(tokens, pool_max).tolist(), strict=True))
