# SPDX-License-Identifier: Apache-2.0
"""Probability of waiting with many servers (Erlang's C formula) for a real number of servers, differentiable."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax._types import FloatScalar

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)  # enough for 1e-12 over the window below
_DROP = 42.0  # the integrand is left out where it is exp(-_DROP) of its largest value: below float64
_EXP_TERMS = tuple(1.0 / np.cumprod(np.arange(1.0, 21.0))[1:])  # of (exp(x) - 1 - x) / x^2
_SMALL = 0.5  # |x| up to which the series are used
_LOG_TERMS = tuple(1.0 / (2.0 * np.arange(1, 18) + 1.0))  # of (atanh(r) / r - 1) / r^2


def _excess_exp(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """exp(x) - 1 - x, exact to rounding near 0."""
    near = jnp.where(jnp.abs(x) < _SMALL, x, 0.0)
    series = jnp.zeros_like(x)
    for term in reversed(_EXP_TERMS):
        series = series * near + term
    return jnp.where(jnp.abs(x) < _SMALL, series * near * near, jnp.exp(x) - 1.0 - x)


def _excess_log(idle: Float[Array, "..."]) -> Float[Array, "..."]:
    """-idle - log(1 - idle) for idle in [0, 1), exact to rounding near 0."""
    near = jnp.where(idle < _SMALL, idle, 0.0)
    ratio = near / (2.0 - near)
    series = jnp.zeros_like(idle)
    for term in reversed(_LOG_TERMS):
        series = series * ratio * ratio + term
    far = jnp.where(idle < _SMALL, 0.0, idle)
    return jnp.where(idle < _SMALL, 2.0 * ratio**2 * (1.0 / (1.0 + ratio) + ratio * series), -far - jnp.log1p(-far))


def log_erlang_c(servers: FloatScalar, offered: FloatScalar) -> Float[Array, ""]:
    """Logarithm of `erlang_c`; -inf without load."""
    servers, offered = jnp.asarray(servers, float), jnp.asarray(offered, float)
    inside = (offered > 0) & (offered < servers)
    c = jnp.where(servers > 0, servers, 1.0)
    a = jnp.where(inside, offered, c / 2.0)
    idle = (c - a) / c
    log_rho = jnp.where(idle < _SMALL, jnp.log1p(-jnp.where(idle < _SMALL, idle, 0.0)), jnp.log(a / c))
    # 1 / B = c exp(c (rho - 1 - log rho)) Int exp(s - c (exp(s) - 1 - s)) ds from log rho, B being Erlang's loss.
    high = jnp.minimum((1.0 + jnp.sqrt(1.0 + 2.0 * c * _DROP)) / c, jnp.log1p((_DROP + 4.0) / c) + 1.0)
    low = jnp.maximum(log_rho, -jnp.maximum(jnp.sqrt(2.0 * _DROP / c), (_DROP + c) / (c + 1.0)))
    half = (high - low) / 2.0
    s = low + half * (1.0 + jnp.asarray(_NODES, c.dtype))
    integral = half * jnp.sum(jnp.asarray(_WEIGHTS, c.dtype) * jnp.exp(s - c * _excess_exp(s)))
    log_inverse_loss = c * _excess_log(idle) + jnp.log(c * integral)
    value = -jnp.logaddexp(log_rho, jnp.log(idle) + log_inverse_loss)
    return jnp.where(inside, value, jnp.where(offered > 0, 0.0, -jnp.inf))


def erlang_c(servers: FloatScalar, offered: FloatScalar) -> Float[Array, ""]:
    """Probability that a request waits in M/M/c, for real c.

    1 / C = rho + (1 - rho) / B with Erlang's loss B, whose inverse is Fortet's integral a Int exp(-a t) (1 + t)^c dt,
    taken by Gauss-Legendre nodes about its peak, in log space. The cost does not depend on c.

    Args:
        servers: Servers c > 0, real.
        offered: Mean number of busy servers a = rate x mean service time; 0 without load, at least c is overload.

    Returns:
        The probability: 0 without load, 1 from a = c.
    """
    return jnp.exp(log_erlang_c(servers, offered))
