# SPDX-License-Identifier: Apache-2.0
"""Time to first token from the joint law of the wait for a slot and the request's own prefill."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.service_times import ServiceLaw
from aicjax.fleet.waiting import WaitLaw, survival, wait_quantile_s
from aicjax.serving.fixed_point import halved

_JUMP = 1e-4  # share of the requests beyond a quantile that makes a step of the law there a jump


def ttft_survival(wait: WaitLaw, service: ServiceLaw, ttft_s: FloatScalar) -> Float[Array, ""]:
    """P(wait + prefill > ttft_s); the wait of a request does not depend on its own prefill."""
    left_s = ttft_s - service.prefill_s
    late = jnp.where(left_s < 0.0, 1.0, survival(wait, jnp.maximum(left_s, 0.0)))
    return jnp.sum(service.weight * late)


def ttft_quantile_s(wait: WaitLaw, service: ServiceLaw, quantile: FloatScalar) -> Float[Array, ""]:
    """Time to first token that a share `quantile` of the requests does not exceed [s]; infinite in overload.

    By halving; its gradient by the implicit function theorem. Where the quantile is a jump of the law (requests that
    do not wait, whole chunks), it moves with the prefill of the requests at the jump.
    """
    beyond = 1.0 - jnp.asarray(quantile, float)
    stable = wait.stable
    wait_s = wait_quantile_s(wait, quantile)
    low = jnp.min(service.prefill_s)
    high = jnp.max(service.prefill_s) + jnp.where(stable, wait_s, 0.0)
    ends = halved(lambda t: ttft_survival(wait, service, t) > beyond, *jax.lax.stop_gradient((low, high)))
    return jnp.where(stable, _implicit(wait, service, beyond, *ends), jnp.inf)


def _implicit(
    wait: WaitLaw, service: ServiceLaw, beyond: Float[Array, ""], low: Float[Array, ""], high: Float[Array, ""]
) -> Float[Array, ""]:
    """`high`, with the derivatives of the t at which P(TTFT > t) = beyond, or of the prefill of a jump there."""
    low, high = jax.lax.stop_gradient((low, high))
    value, slope = jax.jvp(lambda t: ttft_survival(wait, service, t), (high,), (jnp.ones_like(high),))
    slope = jax.lax.stop_gradient(slope)
    falls = ttft_survival(wait, service, low) - value
    smooth = (slope < 0.0) & (falls < _JUMP * beyond)
    excess = value - beyond
    moved = (excess - jax.lax.stop_gradient(excess)) / jnp.where(smooth, -slope, 1.0)
    nearest = service.prefill_s[jnp.argmin(jnp.abs(service.prefill_s - high))]
    return high + jnp.where(smooth, moved, nearest - jax.lax.stop_gradient(nearest))
