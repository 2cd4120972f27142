# SPDX-License-Identifier: Apache-2.0
"""Growth over quarters: how many replicas each one needs, and which of them to buy and which to rent.

The replicas are counted as layers: the m-th layer is in use in every quarter that needs at least m replicas. Layers do
not share costs, so the best plan is the best one of each layer, found among all quarters in which it may be ordered.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from aicjax._types import FloatScalar
from aicjax._units import HOURS_PER_YEAR

HOURS_PER_QUARTER = HOURS_PER_YEAR / 4


class Terms(NamedTuple):
    """What replicas cost.

    Attributes:
        rent_usd_per_hour: Price of a rented replica; paid only while it is in use.
        buy_usd: Price of a replica that is bought, paid with the order.
        own_usd_per_hour: Power, space and people of an owned replica; paid whether it is in use or not.
        lead_quarters: Quarters between order and use.
        life_quarters: Quarters that an owned replica serves.
        resale: Share of the straight-line book value that is paid back at the end of the plan, in [0, 1].
    """

    rent_usd_per_hour: FloatScalar
    buy_usd: FloatScalar
    own_usd_per_hour: FloatScalar
    lead_quarters: FloatScalar
    life_quarters: FloatScalar
    resale: FloatScalar


class GrowthPlan(NamedTuple):
    """The cheapest plan in the mean over the scenarios.

    Attributes:
        order_quarter: Quarter in which each layer is ordered; the number of quarters for layers that are always rented.
        owned: Owned replicas in each quarter.
        rented: Mean of the rented replicas in each quarter.
        utilization: Mean share of the owned replicas in use in each quarter; zero where none are owned.
        usd: Mean cost of the plan.
        rent_only_usd: Mean cost when all replicas are rented.
    """

    order_quarter: Int[Array, " layer"]
    owned: Float[Array, " quarter"]
    rented: Float[Array, " quarter"]
    utilization: Float[Array, " quarter"]
    usd: Float[Array, ""]
    rent_only_usd: Float[Array, ""]


class Spending(NamedTuple):
    """Mean cost of a plan by quarter; the sum of all less `resale_usd` is that of the plan.

    Attributes:
        buy_usd: Orders of each quarter.
        own_usd: Owned replicas in each quarter.
        rent_usd: Rented replicas in each quarter.
        resale_usd: Paid back at the end.
    """

    buy_usd: Float[Array, " quarter"]
    own_usd: Float[Array, " quarter"]
    rent_usd: Float[Array, " quarter"]
    resale_usd: Float[Array, ""]


def rates_per_s(
    rate_per_s: FloatScalar, growth_per_quarter: Float[Array, " scenario"], quarters: int
) -> Float[Array, "scenario quarter"]:
    """Arrival rates of quarters 0, 1 ... of each scenario of constant relative growth."""
    elapsed = jnp.arange(quarters, dtype=growth_per_quarter.dtype)
    return jnp.asarray(rate_per_s) * (1 + growth_per_quarter[:, None]) ** elapsed


def breakeven_utilization(terms: Terms) -> FloatScalar:
    """Share of its life that a replica must be in use so that owning costs no more than renting; above one: never."""
    hours = terms.life_quarters * HOURS_PER_QUARTER
    return (terms.buy_usd / hours + terms.own_usd_per_hour) / terms.rent_usd_per_hour


def growth_plan(
    needs: Float[Array, "scenario quarter"], weights: Float[Array, " scenario"], terms: Terms, layers: int
) -> GrowthPlan:
    """The cheapest plan that serves every scenario, decided before it is known which one comes.

    Args:
        needs: Replicas that each quarter needs in each scenario.
        weights: Probabilities of the scenarios; they sum to 1.
        terms: Prices and times.
        layers: Most replicas considered, at least the largest of `needs`; static.
    """
    quarters = needs.shape[1]
    layer = jnp.arange(1, layers + 1, dtype=needs.dtype)
    wanted = (needs[None] >= layer[:, None, None]).astype(needs.dtype)
    used = jnp.einsum("s,lsq->lq", weights, wanted, precision="highest")
    owned = _owned(terms, quarters).astype(needs.dtype)
    rent_usd = terms.rent_usd_per_hour * HOURS_PER_QUARTER * jnp.matmul(used, (1 - owned).T, precision="highest")
    usd = rent_usd + _own_usd(terms, owned)
    order = jnp.argmin(usd, axis=1)
    served = owned[order]
    in_use, held = (used * served).sum(axis=0), served.sum(axis=0)
    return GrowthPlan(
        order_quarter=order,
        owned=held,
        rented=(used * (1 - served)).sum(axis=0),
        utilization=in_use / jnp.maximum(held, 1),
        usd=usd.min(axis=1).sum(),
        rent_only_usd=usd[:, -1].sum(),
    )


def spending(plan: GrowthPlan, terms: Terms) -> Spending:
    """What a plan costs in each quarter, with the prices that it was made for."""
    quarters = plan.owned.size
    owned = _owned(terms, quarters).astype(plan.owned.dtype)
    bought = jnp.sum(plan.order_quarter[:, None] == jnp.arange(quarters + 1), axis=0).astype(owned.dtype)
    return Spending(
        buy_usd=jnp.asarray(terms.buy_usd) * bought[:-1],
        own_usd=jnp.asarray(terms.own_usd_per_hour) * HOURS_PER_QUARTER * plan.owned,
        rent_usd=jnp.asarray(terms.rent_usd_per_hour) * HOURS_PER_QUARTER * plan.rented,
        resale_usd=jnp.asarray(terms.buy_usd) * jnp.sum(bought * _book_value(terms, owned)),
    )


def _owned(terms: Terms, quarters: int) -> Bool[Array, "order quarter"]:
    """Whether a replica ordered in a quarter serves in another; the last order is never made."""
    order, quarter = jnp.arange(quarters + 1)[:, None], jnp.arange(quarters)
    age = quarter - order - terms.lead_quarters
    return (age >= 0) & (age < terms.life_quarters) & (order < quarters)


def _own_usd(terms: Terms, owned: Float[Array, "order quarter"]) -> Float[Array, " order"]:
    """What a replica of each order costs within the plan, less what its book value at the end brings."""
    served = owned.sum(axis=1)
    bought = jnp.arange(owned.shape[0]) < owned.shape[1]
    price_usd = jnp.where(bought, terms.buy_usd * (1 - _book_value(terms, owned)), 0.0)
    return price_usd + terms.own_usd_per_hour * HOURS_PER_QUARTER * served


def _book_value(terms: Terms, owned: Float[Array, "order quarter"]) -> Float[Array, " order"]:
    """What the end of the plan pays back of the price of a replica of each order, as a share."""
    served = owned.sum(axis=1)
    return jnp.where(served > 0, terms.resale * (1 - served / terms.life_quarters), 0.0)
