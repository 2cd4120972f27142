# SPDX-License-Identifier: Apache-2.0
"""What measured iterations say of a replica, and how surely: iteration times with their uncertainty."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float

from aicjax.fleet.profile import Profile, iteration_s

_RTOL, _ATOL, _STEPS = 1e-5, 1e-5, 100


class Measured(NamedTuple):
    """Iterations, or times per output token, with so many requests running.

    Attributes:
        running: Requests that ran [point].
        mean_tokens: Their mean context [point].
        time_s: What was measured [point].
    """

    running: Float[Array, " point"]
    mean_tokens: Float[Array, " point"]
    time_s: Float[Array, " point"]


class TimesPosterior(NamedTuple):
    """A normal law of the logarithms of `base_s`, `per_sequence_s` and the relative error of a measurement.

    Attributes:
        mean: The likeliest values [3].
        covariance: Inverse of the curvature there [3 3].
    """

    mean: Float[Array, "3"]
    covariance: Float[Array, "3 3"]


def times_posterior(
    profile: Profile, measured: Measured, prior_spread: Float[Array, ""] | float, error: Float[Array, ""] | float
) -> TimesPosterior:
    """Laplace's approximation of the posterior of iteration times: errors are log-normal, and so are the priors.

    Args:
        profile: Where the priors of `base_s` and `per_sequence_s` are centred; gives the rest.
        measured: The measurements.
        prior_spread: Standard deviation of the logarithms of both before anything is measured.
        error: Expected relative error of a measurement; known to a factor e before anything is measured.
    """
    centre = jnp.log(jnp.stack([jnp.asarray(x, float) for x in (profile.base_s, profile.per_sequence_s, error)]))
    width = jnp.stack([jnp.asarray(x, float) for x in (prior_spread, prior_spread, 1.0)])

    def surprise(logs: Array, _: None) -> Array:
        """Negative logarithm of the posterior, but for a constant."""
        expected_s = iteration_s(_with(profile, logs), measured.running, measured.mean_tokens)
        off = (jnp.log(measured.time_s) - jnp.log(expected_s)) / jnp.exp(logs[2])
        return jnp.sum(off**2) / 2.0 + off.size * logs[2] + jnp.sum(((logs - centre) / width) ** 2) / 2.0

    solver = optx.BFGS(rtol=_RTOL, atol=_ATOL)
    mode = optx.minimise(surprise, solver, centre, max_steps=_STEPS, throw=False).value
    return TimesPosterior(mode, jnp.linalg.inv(jax.hessian(surprise)(mode, None)))


def drawn_profiles(key: Array, posterior: TimesPosterior, profile: Profile, n: int) -> Profile:
    """Profiles with iteration times drawn from a posterior; the rest is that of `profile` [n].

    Args:
        key: Random key.
        posterior: The posterior.
        profile: The replica.
        n: Number of draws; static.
    """
    logs = jax.random.multivariate_normal(key, posterior.mean, posterior.covariance, (n,))
    return jax.vmap(lambda row: jax.tree.map(lambda leaf: jnp.asarray(leaf, logs.dtype), _with(profile, row)))(logs)


def _with(profile: Profile, logs: Array) -> Profile:
    return dataclasses.replace(profile, base_s=jnp.exp(logs[0]), per_sequence_s=jnp.exp(logs[1]))
