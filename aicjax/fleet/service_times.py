# SPDX-License-Identifier: Apache-2.0
"""Law of the time a request holds a slot, jointly with the prefill that it needs before its first token."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._types import FloatScalar
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.profile import Profile, first_token_s, mean_context, running_context, service_s, slots
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

    Iterations are shared: all requests that run together take the same time for one, that of their mean context.

    Args:
        profile: The replica.
        lengths: Law of isl and osl.
        max_tokens: Context limit of the pool, which sets its slots.
        running: Requests that run beside a prompt, itself included; all slots where None, so that prefill is part of
            the service time.
        rules: `final_length` prices the iterations of each request as if all that run were like it;
            `prefill_without_compute` prices prompts alone on their replica, at the calibration context.
        whole: Whole slots and chunks; else real numbers, differentiable.
    """
    isl, osl, weight = (jnp.asarray(leaf, float) for leaf in lengths)
    shared = None if rules.final_length else running_context(isl, osl, weight, profile.chunk_tokens, whole=whole)
    service = service_s(profile, isl, osl, max_tokens, mean_tokens=shared, rules=rules, whole=whole)
    if rules.prefill_without_compute:
        prefill = first_token_s(profile, isl, 1.0 if running is None else running, rules=rules, whole=whole)
    else:
        beside = slots(profile, max_tokens, whole=whole) if running is None else running
        own = mean_context(isl, osl, profile.chunk_tokens, whole=whole) if shared is None else shared
        prefill = first_token_s(profile, isl, beside, own, whole=whole)
    return ServiceLaw(service, prefill, weight)


def moments(law: ServiceLaw) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean service time [s] and its squared coefficient of variation."""
    mean_s = jnp.sum(law.service_s * law.weight)
    return mean_s, jnp.sum(law.weight * (law.service_s / mean_s - 1.0) ** 2)


def mean_prefill_s(law: ServiceLaw) -> Float[Array, ""]:
    """Mean prefill [s]."""
    return jnp.sum(law.prefill_s * law.weight)
