# SPDX-License-Identifier: Apache-2.0
"""Power of the replicas of a pool at the load that they have."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax._results import InputError
from aicjax._types import FloatScalar
from aicjax.fleet.power import PowerLaw, power_w
from aicjax.fleet.profile import Profile
from aicjax.fleet.rules import SANE, Rules


class PoolPower(NamedTuple):
    """Replicas of a pool at their mean load.

    Attributes:
        running: Requests that a replica runs in the mean.
        gpu_w: Power of a GPU with so many.
        pool_w: Power of all GPUs of the pool.
    """

    running: Float[Array, "*axes"]
    gpu_w: Float[Array, "*axes"]
    pool_w: Float[Array, "*axes"]


def power_law(profile: Profile) -> PowerLaw:
    """The power law of a profile.

    Raises:
        InputError: It has none.
    """
    if profile.power is None:
        raise InputError("replica", profile.name, "a replica with a power law: state idle and nominal watts")
    return profile.power


def pool_power(
    profile: Profile,
    replicas: FloatScalar,
    slots: FloatScalar,
    utilization: FloatScalar,
    context_tokens: FloatScalar,
    rules: Rules = SANE,
) -> PoolPower:
    """Power at the mean of the running requests.

    Args:
        profile: The replica; its law is that of one of its GPUs.
        replicas: Replicas that are up.
        slots: Requests that a replica runs at once.
        utilization: Share of the slots that are busy; counts as 1 where it is more.
        context_tokens: Mean context of the running requests.
        rules: `least_integer_load` reads the law at whole requests.
    """
    running = jnp.minimum(jnp.asarray(utilization, float), 1.0) * slots
    gpu_w = power_w(power_law(profile), running, context_tokens, rules)
    return PoolPower(running, gpu_w, gpu_w * profile.gpus * replicas)
