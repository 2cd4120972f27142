# SPDX-License-Identifier: Apache-2.0
"""Thresholds, reaches of compression and replicas chosen together: by gradient, then rounded to what can be built."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optimistix as optx
from jax.scipy.special import logit
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.objective import Design, Problem, Softness, objective
from aicjax.fleet.pools import split
from aicjax.fleet.sizing import Sizing, cheapest, sized

STEPS = 200
RTOL, ATOL = 1e-4, 1e-3  # of the objective's arguments and of its value in USD per hour
_EDGE = 0.01  # share of its range that gamma keeps from its bounds at a start
GAMMA_STEP = 0.05  # grid of the reaches of compression that are tried in rounding


class RoundedDesign(NamedTuple):
    """A fleet that can be built.

    Attributes:
        thresholds: Whole context limits of all pools but the last [pool_but_last].
        gamma: Reach of compression at each threshold [pool_but_last].
        sizing: Its whole replicas and what they do.
    """

    thresholds: Float[Array, " pool_but_last"]
    gamma: Float[Array, " pool_but_last"]
    sizing: Sizing


def continuous_optimum(
    starts: Design, problem: Problem, softness: Softness, most_gamma: FloatScalar
) -> tuple[Design, Float[Array, ""]]:
    """The best of the local optima that descents from several starts reach, and its objective [USD/h].

    Args:
        starts: Designs to start from [start ...].
        problem: What is given.
        softness: How missed limits are charged.
        most_gamma: Largest reach of compression, above 1.
    """
    solver = optx.BFGS(rtol=RTOL, atol=ATOL)
    limits = jnp.asarray(problem.max_tokens, float), jnp.asarray(most_gamma, float)

    def cost(free: Design, _: None) -> Float[Array, ""]:
        return objective(_design(free, *limits), problem, softness)

    def descend(start: Design) -> tuple[Design, Float[Array, ""]]:
        forward = {"autodiff_mode": "fwd"}  # few numbers are free, and it compiles faster
        free = _free(start, *limits)
        found = optx.minimise(cost, solver, free, max_steps=STEPS, options=forward, throw=False).value
        return _design(found, *limits), cost(found, None)

    designs, usd = jax.vmap(descend)(starts)
    best = jnp.nanargmin(usd)
    return jax.tree.map(lambda leaf: leaf[best], designs), usd[best]


def rounded(design: Design, problem: Problem, most_gamma: FloatScalar) -> RoundedDesign:
    """The cheapest fleet with whole replicas among the neighbours of a design.

    Neighbours of a threshold are the whole numbers around it and the longest contexts that give the next whole numbers
    of slots; neighbours of gamma are the points of a grid around it up to the largest, and no compression. Each
    combination is sized by itself, so that its replicas are the least that hold the limits.

    Args:
        design: Real numbers.
        problem: What is given.
        most_gamma: Largest reach of compression, as in `continuous_optimum`.
    """
    thresholds, gammas = _neighbours(design, problem, most_gamma)

    def at(thresholds: Float[Array, " pool_but_last"], gamma: Float[Array, " pool_but_last"]) -> Sizing:
        compression = problem.compression._replace(gamma=gamma)
        pools = split(problem.profiles, problem.lengths, thresholds, problem.max_tokens, compression)
        return sized(pools, problem.demand, problem.target)

    sizings = jax.vmap(at)(thresholds, gammas)
    best = cheapest(sizings)
    return RoundedDesign(thresholds[best], gammas[best], jax.tree.map(lambda leaf: leaf[best], sizings))


def _neighbours(design: Design, problem: Problem, most_gamma: FloatScalar) -> tuple[Array, Array]:
    """Rows of thresholds and of gammas, all combinations [row pool_but_last]."""
    profiles = jax.tree.map(lambda leaf: leaf[:-1], problem.profiles)
    limit = design.thresholds
    blocks = profiles.kv_blocks * profiles.block_tokens
    count = jnp.floor(blocks / limit)[:, None] + jnp.arange(-1.0, 3.0)
    corners = jnp.floor(profiles.kv_blocks[:, None] / jnp.maximum(count, 1.0)) * profiles.block_tokens[:, None]
    tried = jnp.concatenate([jnp.floor(limit)[:, None], jnp.ceil(limit)[:, None], corners], axis=1)
    tried = jnp.clip(tried, 1.0, problem.max_tokens)
    step = jnp.floor(design.gamma / GAMMA_STEP)[:, None]
    reaches = jnp.append((step + jnp.arange(-1.0, 3.0)) * GAMMA_STEP, jnp.ones_like(step), axis=1)
    reaches = jnp.clip(reaches, 1.0, most_gamma)
    axes = [*tried, *reaches]
    grid = jnp.stack([axis.ravel() for axis in jnp.meshgrid(*axes, indexing="ij")], axis=1)
    return grid[:, : limit.size], grid[:, limit.size :]


def _free(design: Design, max_tokens: Float[Array, ""], most_gamma: Float[Array, ""]) -> Design:
    """A design in numbers without bounds: each threshold as a share of the next, gamma of its largest."""
    longer = jnp.append(design.thresholds[1:], max_tokens)
    reach = jnp.clip((design.gamma - 1.0) / (most_gamma - 1.0), _EDGE, 1.0 - _EDGE)
    return Design(logit(design.thresholds / longer), logit(reach), jnp.log(design.replicas))


def _design(free: Design, max_tokens: Float[Array, ""], most_gamma: Float[Array, ""]) -> Design:
    """The inverse of `_free`."""
    share = jax.nn.sigmoid(free.thresholds)
    return Design(
        thresholds=max_tokens * jnp.cumprod(share[::-1])[::-1],
        gamma=1.0 + (most_gamma - 1.0) * jax.nn.sigmoid(free.gamma),
        replicas=jnp.exp(free.replicas),
    )
