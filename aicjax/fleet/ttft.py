# SPDX-License-Identifier: Apache-2.0
"""Time to first token from the joint law of the wait for a slot and the request's own prefill."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.service import ServiceLaw
from aicjax.fleet.waiting import WaitLaw, survival

_HALVINGS = 48


def ttft_survival(wait: WaitLaw, service: ServiceLaw, ttft_s: FloatScalar) -> Float[Array, ""]:
    """P(wait + prefill > ttft_s); the wait does not depend on the request's own prefill."""
    left_s = ttft_s - service.prefill_s
    late = jax.vmap(lambda s: survival(wait, s))(jnp.maximum(left_s, 0.0))
    return jnp.sum(service.weight * jnp.where(left_s < 0, 1.0, late))


def ttft_quantile_s(wait: WaitLaw, service: ServiceLaw, quantile: FloatScalar) -> Float[Array, ""]:
    """Time to first token that a share `quantile` of the requests does not exceed [s]; infinite in overload."""
    q = 1.0 - jnp.asarray(quantile, float)
    slowest = jnp.min(wait.decay_per_s)
    stable = slowest > 0
    high = jnp.max(service.prefill_s) + jnp.log(1.0 / q) / jnp.where(stable, slowest, 1.0)

    def halve(_: int, ends):
        low, high = ends
        middle = (low + high) / 2.0
        above = ttft_survival(wait, service, middle) > q
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    _, high = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(high), high))
    return jnp.where(stable, high, jnp.inf)
