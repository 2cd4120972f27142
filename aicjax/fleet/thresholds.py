# SPDX-License-Identifier: Apache-2.0
"""Where to part the pools: every threshold with every reach of compression at once, and the front of cost and TTFT."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from aicjax._types import Array as AnyArray
from aicjax._types import FloatScalar
from aicjax.fleet.capacity import Target
from aicjax.fleet.cdf import Knots
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.pools import Compression
from aicjax.fleet.profile import Profile
from aicjax.fleet.rules import SANE, Rules
from aicjax.fleet.sizing import Demand
from aicjax.fleet.two_pool import Sweep, gamma_sweep

LEAST_SHARE, MOST_SHARE = 0.01, 0.999  # of the requests in the short pool, for a threshold to be tried


def knot_thresholds(knots: Knots) -> Float[np.ndarray, " threshold"]:
    """Knots of a distribution, but the last, that leave some requests to either pool."""
    inside = (knots.shares >= LEAST_SHARE) & (knots.shares <= MOST_SHARE)
    return knots.tokens[:-1][inside[:-1]]


def threshold_sweep(
    profiles: Profile,
    lengths: Lengths,
    thresholds: Float[Array, "threshold pool_but_last"],
    max_tokens: FloatScalar,
    gammas: Float[Array, " gamma"],
    demand: Demand,
    target: Target,
    compression: Compression,
) -> Sweep:
    """Fleets for all thresholds and reaches; arguments as those of `gamma_sweep`, with rows of thresholds."""

    def at(row: Float[Array, " pool_but_last"]) -> Sweep:
        return gamma_sweep(profiles, lengths, row, max_tokens, gammas, demand, target, compression)

    return jax.vmap(at)(jnp.asarray(thresholds, float))


def on_front(usd: Float[AnyArray, " row"], ttft_s: Float[AnyArray, " row"], rules: Rules = SANE) -> Bool[Array, " row"]:
    """Rows that no other beats: none is at least as good in both columns and better in one.

    Args:
        usd: Costs.
        ttft_s: Times; infinite ones are beaten by any finite one of the same cost.
        rules: Static: under `strict_front` only a row that is better in both columns beats another.
    """
    usd, ttft_s = jnp.asarray(usd), jnp.asarray(ttft_s)
    cheaper, faster = usd[:, None] < usd, ttft_s[:, None] < ttft_s
    if rules.strict_front:
        beats = cheaper & faster
    else:
        beats = (usd[:, None] <= usd) & (ttft_s[:, None] <= ttft_s) & (cheaper | faster)
    return ~beats.any(axis=0)
