# SPDX-License-Identifier: Apache-2.0
"""Law of the time a request holds a slot, jointly with the prefill that it needs before its first token."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.profile import Profile, first_token_s, service_s


class ServiceLaw(NamedTuple):
    """A joint law as weighted points.

    Attributes:
        service_s: Time a request holds a slot [point].
        prefill_s: Time from its start to its first token, alone on its replica [point].
        weight: Probabilities that sum to 1 [point].
    """

    service_s: Float[Array, " point"]
    prefill_s: Float[Array, " point"]
    weight: Float[Array, " point"]


def service_law(profile: Profile, lengths: Lengths, max_tokens: FloatScalar, running: FloatScalar = 1.0) -> ServiceLaw:
    """The law of service times of a pool.

    Args:
        profile: The replica.
        lengths: Law of isl and osl.
        max_tokens: Context limit of the pool, which sets its slots.
        running: Requests that run beside a prompt, itself included: 1 alone, the slots for the busiest replica.
    """
    service = jax.vmap(lambda isl, osl: service_s(profile, isl, osl, max_tokens))(lengths.isl, lengths.osl)
    prefill = jax.vmap(lambda isl: first_token_s(profile, isl, running))(lengths.isl)
    return ServiceLaw(service, prefill, jnp.asarray(lengths.weight, service.dtype))


def moments(law: ServiceLaw) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean service time [s] and its squared coefficient of variation."""
    mean_s = jnp.sum(law.service_s * law.weight)
    return mean_s, jnp.sum(law.weight * (law.service_s / mean_s - 1.0) ** 2)


def mean_prefill_s(law: ServiceLaw) -> Float[Array, ""]:
    """Mean prefill [s]."""
    return jnp.sum(law.prefill_s * law.weight)
