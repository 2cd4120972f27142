# SPDX-License-Identifier: Apache-2.0
"""Queueing as in the fleet reference: two moments, a wait at the percentile, and a count that starts with a spare."""

from typing import Protocol

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from aicjax._types import FloatScalar
from aicjax.fleet.least_count import least_count
from aicjax.fleet.waiting import WaitLaw, kimura_wait, wait_quantile_s

SPARE_REPLICAS = 1.0  # above the least that is stable, whatever the limit
LEAST_CV2 = 0.01  # of service times
MOST_REPLICAS = 5001.0  # where it stops looking


class WaitTarget(Protocol):
    """What is read of a target."""

    @property
    def limit_s(self) -> FloatScalar:
        """Limit on the wait at the percentile."""
        ...

    @property
    def quantile(self) -> FloatScalar:
        """The percentile as a share."""
        ...

    @property
    def rho_max(self) -> FloatScalar:
        """Largest share of the slots that may be busy; no limit from 1."""
        ...


def reference_wait(
    servers: FloatScalar, rate_per_s: FloatScalar, mean_s: FloatScalar, service_cv2: FloatScalar
) -> WaitLaw:
    """Kimura's law with the reference's least variability."""
    return kimura_wait(servers, rate_per_s, mean_s, jnp.maximum(service_cv2, LEAST_CV2))


def reference_replicas(
    rate_per_s: FloatScalar,
    replica_rate_per_s: FloatScalar,
    service_cv2: FloatScalar,
    slots: FloatScalar,
    target: WaitTarget,
) -> Float[Array, ""]:
    """The least replicas, from one more than are stable, whose wait meets a limit; prefill is not budgeted.

    Args:
        rate_per_s: Arrivals; 1 replica without any.
        replica_rate_per_s: Requests per second of a replica with every slot in use.
        service_cv2: Squared coefficient of variation of service times.
        slots: Requests that a replica runs at once.
        target: Limit on the wait at a percentile.
    """
    rate = jnp.asarray(rate_per_s, float)
    mean_s = slots / replica_rate_per_s

    def meets(count: Float[Array, ""]) -> Bool[Array, ""]:
        wait = reference_wait(count * slots, rate, mean_s, service_cv2)
        return wait_quantile_s(wait, target.quantile) <= target.limit_s

    stable = jnp.ceil(rate / replica_rate_per_s)
    floor = jnp.maximum(stable + SPARE_REPLICAS, 1.0)
    count = least_count(meets, floor, jnp.maximum(floor, MOST_REPLICAS))
    by_rho = jnp.where(target.rho_max < 1.0, jnp.ceil(rate / (replica_rate_per_s * target.rho_max)), count)
    return jnp.where(rate > 0, jnp.maximum(count, by_rho), 1.0)
