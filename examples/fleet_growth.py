# SPDX-License-Identifier: Apache-2.0
"""For the capacity planner: two years of growth that nobody knows for sure; which replicas to buy, which to rent.

The replicas of every quarter of every scenario are sized in one call; the plan that is cheapest in the mean follows.

    python examples/fleet_growth.py
"""

import jax
import jax.numpy as jnp
import numpy as np

from aicjax.fleet import (
    Demand,
    Target,
    Terms,
    breakeven_utilization,
    growth_plan,
    lengths,
    only_pool,
    preset,
    rates_per_s,
    sized,
)

RATE_PER_S, QUARTERS = 400.0, 8
GROWTH, CHANCES = jnp.array([-0.05, 0.08, 0.20]), jnp.array([0.25, 0.5, 0.25])
TERMS = Terms(
    rent_usd_per_hour=2.21,
    buy_usd=18_000.0,
    own_usd_per_hour=0.45,
    lead_quarters=1,
    life_quarters=16,
    resale=0.5,
)


def main() -> None:
    pool = only_pool(preset("a100"), lengths.named("lmsys"), 8192.0)
    pools = jax.tree.map(lambda leaf: jnp.asarray(leaf, float)[None], pool)
    target = Target(limit_s=0.5)

    def replicas(rate_per_s: jax.Array) -> jax.Array:
        return sized(pools, Demand(rate_per_s, availability=0.99), target).load.replicas[0]

    rates = rates_per_s(RATE_PER_S, GROWTH, QUARTERS)
    needs = jax.jit(jax.vmap(jax.vmap(replicas)))(rates)
    found = growth_plan(needs, CHANCES, TERMS, layers=int(needs.max()))

    for growth, chance, row in zip(GROWTH, CHANCES, np.asarray(needs), strict=True):
        print(f"{growth:+5.0%} a quarter, chance {chance:.0%}: replicas " + " ".join(f"{n:3.0f}" for n in row))
    ordered = np.bincount(np.asarray(found.order_quarter), minlength=QUARTERS + 1)
    for name, values in (("order", ordered[:-1]), ("owned", found.owned), ("rented", found.rented)):
        print(f"{name:>35} " + " ".join(f"{value:3.0f}" for value in values))
    print(f"{'owned in use':>35} " + " ".join(f"{value:.0%}" for value in found.utilization))
    print(f"mean cost {found.usd:,.0f} USD; all rented {found.rent_only_usd:,.0f} USD")
    print(f"owning pays from {breakeven_utilization(TERMS):.0%} of the time in use on")


if __name__ == "__main__":
    main()
