# SPDX-License-Identifier: Apache-2.0
"""Power of one GPU against the requests that run, and the requests that a power limit allows."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aicjax.fleet.rules import SANE, Rules

Evidence = Literal["high", "fair", "low", "none"]


class PowerLaw(eqx.Module):
    """Watts of one GPU as `idle_w + (nominal_w - idle_w) load(n)` with n requests running.

    With `steepness` k > 0 the load is logistic, `1 / (1 + exp(-k (log2 n - midpoint)))`. With k = 0 it is a share of
    work done in an iteration that n lengthens, `min(1, n (compute + kv) / (1 + n kv))`: linear where `kv` is 0.

    Attributes:
        idle_w, nominal_w: Without load and at full load [W].
        steepness: k, per doubling of n; 0 for the other law.
        midpoint: log2 of the n with half the load.
        compute_per_request: Time of arithmetic that a request adds, in iterations without requests.
        kv_per_request: Time of reading that a request of `calibration_tokens` adds, in iterations without requests.
        calibration_tokens: Context at which `kv_per_request` is stated; it grows in proportion.
        most_running: Largest n the law was made for: where an inverse ends.
        evidence: How well the law is known. Static.
    """

    idle_w: float
    nominal_w: float
    steepness: float = 0.0
    midpoint: float = 0.0
    compute_per_request: float = 0.0
    kv_per_request: float = 0.0
    calibration_tokens: float = 1.0
    most_running: float = float("inf")
    evidence: Evidence = eqx.field(static=True, default="none")


def linear_power(idle_w: float, nominal_w: float, most_running: float, evidence: Evidence = "none") -> PowerLaw:
    """The law that rises in proportion to the running requests up to `most_running`."""
    return PowerLaw(
        idle_w, nominal_w, compute_per_request=1.0 / most_running, most_running=most_running, evidence=evidence
    )


def power_w(
    law: PowerLaw, running: Float[Array, "..."], mean_tokens: Float[Array, "..."] | None = None, rules: Rules = SANE
) -> Float[Array, "..."]:
    """Power of one GPU [W]; differentiable but at a load of one request and where the load is full.

    Args:
        law: The law.
        running: Requests that run, a real number: below 1 the share of the time in which one runs.
        mean_tokens: Their mean context [tokens]; that of the law where None.
        rules: `least_integer_load` reads the law at whole requests, one or more.
    """
    dtype = jnp.result_type(law.idle_w, float)
    running = jnp.asarray(running).astype(dtype)
    if rules.least_integer_load:
        running = jnp.maximum(jnp.floor(running), 1.0)
    whole = jnp.maximum(running, 1.0)
    context = 1.0 if mean_tokens is None else jnp.asarray(mean_tokens).astype(dtype) / law.calibration_tokens
    kv = law.kv_per_request * context
    shared = jnp.minimum(whole * (law.compute_per_request + kv) / (1.0 + whole * kv), 1.0)
    logistic = jax.nn.sigmoid(law.steepness * (jnp.log2(whole) - law.midpoint))
    load = jnp.where(jnp.asarray(law.steepness) > 0, logistic, shared)
    return law.idle_w + (law.nominal_w - law.idle_w) * load * jnp.clip(running, 0.0, 1.0)
