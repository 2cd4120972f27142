# SPDX-License-Identifier: Apache-2.0
"""For the researcher: what moves the cost and the P99 TTFT of a fleet, by one gradient.

Two pools share the requests by length. The replicas that the limits need are the root of an equation; the implicit
function theorem gives its derivatives. The last column solves again with one percent more; it spans kinks of the law of
lengths, whose points lie some 40 tokens apart.

    python examples/fleet_gradients.py
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from aicjax.fleet import (
    Compression,
    Demand,
    Design,
    Pool,
    Problem,
    Target,
    excess,
    lengths,
    pool_load,
    preset,
    service_of,
    slots,
    split,
    stacked,
    thinned,
)

A100 = stacked([preset("a100")] * 2)  # the short and the long pool
AZURE = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), lengths.named("azure"))
MAX_TOKENS = jnp.asarray(65536.0)
MOST_LOG = 10.0  # logarithm of the most replicas of a pool


class Knobs(NamedTuple):
    """What is varied."""

    threshold_tokens: Array
    gamma: Array
    rate_per_s: Array
    base_s: Array
    per_sequence_s: Array
    price_per_hour: Array
    limit_s: Array


def problem_of(knobs: Knobs) -> Problem:
    """The fleet with these numbers, the same replica in both pools."""
    own = {name: jnp.full(2, getattr(knobs, name)) for name in ("base_s", "per_sequence_s", "price_per_hour")}
    target = Target(knobs.limit_s, quantile=jnp.asarray(0.99), rho_max=jnp.asarray(0.99))
    compression = Compression(knobs.gamma, jnp.asarray(0.75), jnp.asarray(0.003))
    return Problem(
        dataclasses.replace(A100, **own), AZURE, MAX_TOKENS, Demand(knobs.rate_per_s, jnp.asarray(1.0)), target,
        compression,
    )  # fmt: skip


def replicas(knobs: Knobs) -> Array:
    """Real numbers of replicas of both pools at which the tighter of the two limits, P99 or load, just holds."""

    def over(log_replicas: Array) -> Array:
        design = Design(knobs.threshold_tokens[None], knobs.gamma[None], jnp.exp(log_replicas))
        return jnp.maximum(*excess(design, problem_of(knobs)))  # of each pool; falls with its own replicas

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        few = over(middle) > 0
        return jnp.where(few, middle, low), jnp.where(few, high, middle)

    low, high = jax.lax.fori_loop(0, 24, halve, (jnp.zeros(2), jnp.full(2, MOST_LOG)))
    root = jax.lax.stop_gradient((low + high) / 2)
    value, slope = jax.jvp(over, (root,), (jnp.ones(2),))
    return jnp.exp(root - value / jax.lax.stop_gradient(slope))


def usd_per_hour(knobs: Knobs) -> tuple[Array, Array]:
    """Price of the replicas that the limits need, and these."""
    count = replicas(knobs)
    return jnp.sum(count) * knobs.price_per_hour, count


def p99_s(knobs: Knobs, replicas: Array) -> Array:
    """P99 TTFT of both pools with stated replicas."""
    problem = problem_of(knobs)
    pools = split(problem.profiles, AZURE, knobs.threshold_tokens[None], MAX_TOKENS, problem.compression)

    def of_pool(pool: Pool, count: Array) -> Array:
        rate_per_s, cv2 = thinned(problem.demand, pool.share)
        room = slots(pool.profile, pool.max_tokens, whole=False)
        return pool_load(count, room, rate_per_s, service_of(pool, whole=False), problem.target, cv2).ttft_s

    return jax.vmap(of_pool)(pools, replicas)


def main() -> None:
    preset_numbers = (A100.base_s[0], A100.per_sequence_s[0], A100.price_per_hour[0])
    knobs = Knobs(*(jnp.asarray(x, float) for x in (3800, 1.4, 200, *preset_numbers, 0.5)))
    solved = jax.jit(jax.value_and_grad(usd_per_hour, has_aux=True))
    (cost, count), by_cost = solved(knobs)
    late, by_late = jax.jit(lambda knobs: (p99_s(knobs, count), jax.jacrev(p99_s)(knobs, count)))(knobs)
    print(f"{count[0]:.2f} + {count[1]:.2f} replicas, {cost:.2f} USD/h, P99 TTFT {late[0]:.3f} and {late[1]:.3f} s")
    print("change in percent for one percent more")
    print(f"{'':>18}  P99 short  P99 long    cost   cost, solved again")
    for place, (name, value) in enumerate(knobs._asdict().items()):
        again = solved(Knobs(*(v * 1.01 if i == place else v for i, v in enumerate(knobs))))[0][0]
        short, long = value * by_late[place] / late
        per_cent = value * by_cost[place] / cost, 100 * (again / cost - 1)
        print(f"{name:>18} {short:+10.3f} {long:+9.3f} {per_cent[0]:+8.3f} {per_cent[1]:+10.3f}")


if __name__ == "__main__":
    main()
