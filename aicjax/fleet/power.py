# SPDX-License-Identifier: Apache-2.0
"""Power of one GPU against the requests that run, and the requests that a power limit allows."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aicjax.fleet.rules import SANE, Rules

Evidence = Literal["high", "fair", "low", "none"]
Number = float | np.ndarray | Array
_HALVINGS = 20  # of the fleet reference's inverse


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
    law: PowerLaw, running: Number, mean_tokens: Number | None = None, rules: Rules = SANE
) -> Float[Array, "..."]:
    """Power of one GPU [W]; differentiable but at a load of one request and where the load is full.

    Args:
        law: The law.
        running: Requests that run, a real number: below 1 the share of the time in which one runs.
        mean_tokens: Their mean context [tokens]; that of the law where None.
        rules: `least_integer_load` reads the law at whole requests, one or more.
    """
    running = _real(law, running)
    if rules.least_integer_load:
        running = jnp.maximum(jnp.floor(running), 1.0)
    whole = jnp.maximum(running, 1.0)
    kv = _kv_per_request(law, mean_tokens)
    shared = jnp.minimum(whole * (law.compute_per_request + kv) / (1.0 + whole * kv), 1.0)
    logistic = jax.nn.sigmoid(law.steepness * (jnp.log2(whole) - law.midpoint))
    load = jnp.where(jnp.asarray(law.steepness) > 0, logistic, shared)
    return law.idle_w + (law.nominal_w - law.idle_w) * load * jnp.clip(running, 0.0, 1.0)


def running_at(
    law: PowerLaw, limit_w: Number, mean_tokens: Number | None = None, rules: Rules = SANE
) -> Float[Array, "..."]:
    """Most requests, a whole number from 1 to `most_running`, with which a GPU draws no more than `limit_w`.

    The answer is 1 also where one request draws more: a limit below that needs fewer replicas, not fewer requests.

    Args:
        law: The law.
        limit_w: The limit; counts as idle or nominal power where it is beyond.
        mean_tokens: Mean context of the requests [tokens]; that of the law where None.
        rules: `halving_inverse` searches as the fleet reference does.
    """
    limit = jnp.clip(_real(law, limit_w), law.idle_w, law.nominal_w)
    if rules.halving_inverse:
        return _halved(law, limit, mean_tokens)
    load = (limit - law.idle_w) / (law.nominal_w - law.idle_w)
    kv = _kv_per_request(law, mean_tokens)
    free = law.compute_per_request + kv * (1.0 - load)  # of load, per request
    shared = jnp.where(load < 1.0, load / jnp.where(free > 0, free, 1.0), jnp.inf)
    inside = (load > 0) & (load < 1) & (jnp.asarray(law.steepness) > 0)
    odds = jnp.where(inside, load, 0.5) / (1.0 - jnp.where(inside, load, 0.5))
    doublings = law.midpoint + jnp.log(odds) / jnp.where(inside, law.steepness, 1.0)
    logistic = jnp.where(inside, jnp.exp2(doublings), jnp.where(load < 1.0, 1.0, jnp.inf))
    found = jnp.clip(jnp.where(jnp.asarray(law.steepness) > 0, logistic, shared), 1.0, law.most_running)
    nearest = jnp.round(found)  # the law decides where rounding has moved a whole number down
    return jnp.where(power_w(law, nearest, mean_tokens) <= limit, nearest, jnp.floor(found))


def _halved(law: PowerLaw, limit: Float[Array, "..."], mean_tokens: Number | None) -> Float[Array, "..."]:
    """The fleet reference's inverse: it stalls where one request is left to decide."""

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = jnp.floor((low + high) / 2.0)
        allowed = power_w(law, middle, mean_tokens) <= limit
        found = low >= high
        return jnp.where(found | ~allowed, low, middle), jnp.where(found | allowed, high, middle - 1.0)

    low, high = jnp.ones_like(limit), jnp.broadcast_to(_real(law, law.most_running), limit.shape)
    return jnp.maximum(jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))[0], 1.0)


def _kv_per_request(law: PowerLaw, mean_tokens: Number | None) -> Float[Array, "..."]:
    kv = _real(law, law.kv_per_request)
    return kv if mean_tokens is None else kv * _real(law, mean_tokens) / law.calibration_tokens


def _real(law: PowerLaw, number: Number) -> Float[Array, "..."]:
    return jnp.asarray(number).astype(jnp.result_type(law.idle_w, float))
