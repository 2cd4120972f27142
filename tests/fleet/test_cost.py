# SPDX-License-Identifier: Apache-2.0
"""Prices of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.fleet.cost import cost, tokens_per_usd, usd_per_million

POSITIVE = st.floats(1e-3, 1e6)


def test_price_of_output_tokens_of_one_deployment():
    assert usd_per_million(20.0, 6000.0) == pytest.approx(0.9259, abs=5e-5)


@given(POSITIVE, POSITIVE)
def test_tokens_for_a_dollar_are_the_reciprocal_of_the_price(usd_per_hour, tokens_per_s):
    bought = tokens_per_usd(usd_per_million(usd_per_hour, tokens_per_s))
    assert bought * usd_per_hour / 3600 == pytest.approx(tokens_per_s)


@given(POSITIVE, POSITIVE, POSITIVE, st.floats(0, 1))
def test_bill_of_the_two_prices_adds_up_to_the_cost(usd_per_hour, input_per_s, output_per_s, prefill_share):
    found = cost(usd_per_hour, input_per_s, output_per_s, prefill_share)
    bill = (found.input_price * input_per_s + found.output_price * output_per_s) * 3600 / 1e6
    assert bill == pytest.approx(usd_per_hour)
    assert found.per_year == pytest.approx(24 * 365 * usd_per_hour)
    whole = 1 / found.per_million_input + 1 / found.per_million_output
    assert found.per_million_total * whole == pytest.approx(1)
