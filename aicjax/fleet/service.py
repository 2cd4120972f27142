# SPDX-License-Identifier: Apache-2.0
"""Law of the time a request holds a slot, jointly with the prefill that it needs before its first token."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.profile import Profile, first_token_s, mean_context, service_s, slots
from aicjax.fleet.rules import SANE, Rules


class ServiceLaw(NamedTuple):
    """A joint law as weighted points.

    Attributes:
        service_s: Time a request holds a slot [point].
        prefill_s: Time from its start to its first token [point].
        weight: Probabilities that sum to 1 [point].
    """

    service_s: Float[Array, " point"]
    prefill_s: Float[Array, " point"]
    weight: Float[Array, " point"]


def service_law(
    profile: Profile,
    lengths: Lengths,
    max_tokens: FloatScalar,
    *,
    running: FloatScalar | None = None,
    rules: Rules = SANE,
    whole: bool = True,
) -> ServiceLaw:
    """The law of service times of a pool at full slots.

    Args:
        profile: The replica.
        lengths: Law of isl and osl.
        max_tokens: Context limit of the pool, which sets its slots.
        running: Requests that run beside a prompt, itself included; all slots where None, so that prefill is part of
            the service time.
        rules: `prefill_without_compute` prices prompts alone on their replica, at the calibration context.
        whole: Whole slots and chunks; else real numbers, differentiable.
    """
    isl, osl = jnp.asarray(lengths.isl, float), jnp.asarray(lengths.osl, float)
    service = service_s(profile, isl, osl, max_tokens, rules=rules, whole=whole)
    if rules.prefill_without_compute:
        prefill = first_token_s(profile, isl, 1.0 if running is None else running, rules=rules, whole=whole)
    else:
        beside = slots(profile, max_tokens, whole=whole) if running is None else running
        context = mean_context(isl, osl, profile.chunk_tokens, whole=whole)
        prefill = first_token_s(profile, isl, beside, context, whole=whole)
    return ServiceLaw(service, prefill, jnp.asarray(lengths.weight, service.dtype))


def moments(law: ServiceLaw) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean service time [s] and its squared coefficient of variation."""
    mean_s = jnp.sum(law.service_s * law.weight)
    return mean_s, jnp.sum(law.weight * (law.service_s / mean_s - 1.0) ** 2)


def mean_prefill_s(law: ServiceLaw) -> Float[Array, ""]:
    """Mean prefill [s]."""
    return jnp.sum(law.prefill_s * law.weight)
