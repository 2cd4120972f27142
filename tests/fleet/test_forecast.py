# SPDX-License-Identifier: Apache-2.0
"""Plans over quarters, against every plan of small cases."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.fleet.forecast import HOURS_PER_QUARTER, Terms, breakeven_utilization, growth_plan, rates_per_s, spending

TERMS = Terms(rent_usd_per_hour=2.5, buy_usd=9000.0, own_usd_per_hour=0.5, lead_quarters=1, life_quarters=3, resale=0.4)


def _usd(orders: tuple[int, ...], needs: np.ndarray, weights: np.ndarray, terms: Terms) -> float:
    """Mean cost of one plan, replica by replica and quarter by quarter."""
    quarters, total = needs.shape[1], 0.0
    for layer, order in enumerate(orders, start=1):
        serves = range(
            order + int(terms.lead_quarters), min(order + int(terms.lead_quarters + terms.life_quarters), quarters)
        )
        held = len(serves) if order < quarters else 0
        if order < quarters:
            book = terms.resale * (1 - held / terms.life_quarters) if held else 0.0
            total += terms.buy_usd * (1 - book) + held * terms.own_usd_per_hour * HOURS_PER_QUARTER
        for quarter in range(quarters):
            if not (held and quarter in serves):
                total += float(weights @ (needs[:, quarter] >= layer)) * terms.rent_usd_per_hour * HOURS_PER_QUARTER
    return float(total)


@pytest.mark.parametrize("terms", [TERMS, TERMS._replace(buy_usd=2000.0, lead_quarters=0), TERMS._replace(resale=0.0)])
def test_plan_is_the_cheapest_of_all_plans(terms):
    needs, weights = np.array([[1, 2, 3, 1], [1, 1, 2, 3.0]]), np.array([0.25, 0.75])
    found = growth_plan(jnp.asarray(needs, "float32"), jnp.asarray(weights, "float32"), terms, layers=3)
    cheapest = min(_usd(orders, needs, weights, terms) for orders in itertools.product(range(5), repeat=3))
    assert float(found.usd) == pytest.approx(cheapest, rel=1e-5)
    orders = tuple(np.asarray(found.order_quarter).tolist())
    assert _usd(orders, needs, weights, terms) == pytest.approx(cheapest, rel=1e-6)
    assert float(found.rent_only_usd) == pytest.approx(_usd((4, 4, 4), needs, weights, terms), rel=1e-5)
    paid = spending(found, terms)
    quarterly = np.asarray(paid.buy_usd) + np.asarray(paid.own_usd) + np.asarray(paid.rent_usd)
    assert quarterly.sum() - float(paid.resale_usd) == pytest.approx(cheapest, rel=1e-5)
    np.testing.assert_allclose(paid.buy_usd, terms.buy_usd * np.bincount(orders, minlength=5)[:-1])


def test_owned_and_rented_replicas_cover_the_mean_need():
    needs, weights = jnp.asarray([[4.0, 6, 9, 14], [4, 5, 6, 7]]), jnp.asarray([0.5, 0.5])
    found = growth_plan(needs, weights, TERMS._replace(life_quarters=16, buy_usd=4000.0), layers=14)
    np.testing.assert_allclose(found.rented + found.owned * found.utilization, weights @ needs, rtol=1e-6)
    assert found.owned[0] == 0, "nothing is there before the lead time is over"
    assert (np.asarray(found.utilization) <= 1).all()


def test_break_even_is_where_owning_costs_what_renting_costs():
    used = breakeven_utilization(TERMS)
    hours = TERMS.life_quarters * HOURS_PER_QUARTER
    assert used * hours * TERMS.rent_usd_per_hour == pytest.approx(TERMS.buy_usd + hours * TERMS.own_usd_per_hour)


def test_growth_compounds_each_quarter():
    np.testing.assert_allclose(rates_per_s(200.0, jnp.asarray([0.1, 0.0]), 3), [[200, 220, 242], [200] * 3], rtol=1e-6)


def test_dollars_are_summed_in_full_precision_on_every_device():
    needs, weights = jnp.ones((2, 6)), jnp.asarray([0.3, 0.7])
    steps = jax.make_jaxpr(lambda needs: growth_plan(needs, weights, TERMS, layers=3))(needs).eqns
    products = [step for step in steps if step.primitive.name == "dot_general"]
    assert len(products) == 2
    assert all(step.params["precision"] == (jax.lax.Precision.HIGHEST,) * 2 for step in products)
