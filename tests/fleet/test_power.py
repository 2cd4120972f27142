# SPDX-License-Identifier: Apache-2.0
"""Power against running requests, and its inverse."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from aicjax._results import InputError
from aicjax.fleet.computed import Serving, computed_profile
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.gpu_facts import gpu
from aicjax.fleet.model_facts import reference_model
from aicjax.fleet.power import PowerLaw, linear_power, power_w, running_at
from aicjax.fleet.presets import manual_power, preset
from aicjax.fleet.rules import FLEET_REFERENCE

LAWS = {
    "logistic": preset("a100").power,
    "linear": linear_power(120.0, 300.0, 80.0),
    "roofline": PowerLaw(301.0, 602.0, compute_per_request=0.003, kv_per_request=0.005, most_running=500.0),
}


_watts, _inverse = jax.jit(power_w), jax.jit(running_at)
_slopes = jax.jit(jax.vmap(jax.grad(power_w, argnums=(0, 1)), in_axes=(None, 0)))


def _traced(name: str) -> PowerLaw:
    """The law as arrays, without what is static: one compiled program for all."""
    law = dataclasses.replace(_law(name), evidence="none")
    with jax.enable_x64(True):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, float), law)


def _law(name: str) -> PowerLaw:
    law = LAWS[name]
    assert law is not None
    return law


@pytest.mark.parametrize(("tokens", "watts"), [(2048, 362), (8192, 429)])
def test_power_at_the_load_of_a_context_is_not_what_the_text_of_the_reference_says(tokens: int, watts: int):
    # its text has "n=32 about 450 W" and "420 W"; a computed H100 with 70B and 32 requests draws these
    model = reference_model("llama-3.1-70b")
    profile = computed_profile(gpu("h100"), model, Serving(tp=8), load_fleet_constants(), FLEET_REFERENCE)
    assert profile.power is not None
    assert float(power_w(profile.power, 32, tokens)) == pytest.approx(watts, abs=0.5)


@pytest.mark.parametrize("name", LAWS)
def test_power_rises_from_idle_to_nominal(name: str):
    law = _law(name)
    watts = np.asarray(power_w(law, jnp.linspace(0.0, 600.0, 1201)))
    assert watts[0] == pytest.approx(law.idle_w)
    assert (np.diff(watts) >= -1e-4).all()
    assert watts[-1] <= law.nominal_w * (1 + 1e-6)


def test_linear_law_is_linear_up_to_its_most_requests():
    law = linear_power(120.0, 300.0, 80.0)
    np.testing.assert_allclose(power_w(law, np.array([0.0, 20.0, 40.0, 80.0, 200.0])), [120, 165, 210, 300, 300])


def test_longer_context_draws_more_power_where_reading_it_counts():
    law = _law("roofline")
    assert float(power_w(law, 20, 4.0)) > float(power_w(law, 20, 1.0))
    assert float(power_w(law, 20, 1.0)) == pytest.approx(float(power_w(law, 20)))


def test_a_share_of_a_request_draws_its_share_of_power():
    law = _law("logistic")
    half = (law.idle_w + float(power_w(law, 1.0))) / 2
    assert float(power_w(law, 0.5)) == pytest.approx(half, rel=1e-6)
    assert float(power_w(law, 0.5, rules=FLEET_REFERENCE)) == pytest.approx(float(power_w(law, 1.0)))


@pytest.mark.parametrize(("name", "most"), [("logistic", 128), ("linear", 79), ("roofline", 300)])  # below full load
def test_inverse_gives_back_every_whole_number_of_requests(name: str, most: int):
    law, running = _traced(name), np.minimum(np.arange(1.0, 301.0), most)
    with jax.enable_x64(True):
        watts = _watts(law, running)
        np.testing.assert_array_equal(_inverse(law, watts), running)
        np.testing.assert_array_equal(_inverse(law, watts - 1e-6), np.maximum(running - 1.0, 1.0))


@pytest.mark.parametrize("name", LAWS)
@settings(max_examples=5)
@given(shares=arrays(np.float64, 300, elements=st.floats(0.0, 1.0)))
def test_inverse_is_the_most_that_the_limit_allows(name: str, shares: np.ndarray):
    known, law = _law(name), _traced(name)
    limit = known.idle_w + shares * (known.nominal_w - known.idle_w)
    with jax.enable_x64(True):
        found = np.asarray(_inverse(law, limit))
        allowed, next_w = np.asarray(_watts(law, found)), np.asarray(_watts(law, found + 1.0))
    assert ((found >= 1) & (found <= known.most_running)).all()
    assert ((found == 1) | (allowed <= limit * (1 + 1e-12))).all()
    assert ((found == known.most_running) | (next_w > limit * (1 - 1e-12))).all()


def test_halving_stops_one_request_short():
    law = _law("logistic")
    assert float(running_at(law, law.nominal_w)) == 128
    assert float(running_at(law, law.nominal_w, rules=FLEET_REFERENCE)) == 127


def test_inverse_takes_the_context_into_account():
    law = _law("roofline")
    with jax.enable_x64(True):
        assert float(running_at(law, power_w(law, 37.0, 4.0), 4.0)) == 37


@pytest.mark.parametrize("name", LAWS)
def test_power_has_finite_gradients(name: str):
    law = dataclasses.replace(_law(name), evidence="none")
    by_law, by_running = _slopes(
        jax.tree.map(lambda leaf: jnp.asarray(leaf, float), law), jnp.array([0.0, 0.5, 1.0, 30.0, 600.0])
    )
    assert np.isfinite(by_running).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(by_law))


@pytest.mark.parametrize(
    ("argument", "facts"),
    [
        ("nominal_w", {"idle_w": 300.0, "nominal_w": 200.0, "most_running": 8.0}),
        ("most_running", {"idle_w": 100.0, "nominal_w": 200.0, "most_running": 0.0}),
        ("steepness", {"idle_w": 100.0, "nominal_w": 200.0, "most_running": 8.0, "steepness": -1.0}),
    ],
)
def test_laws_that_no_card_has_are_refused(argument: str, facts: dict[str, Any]):
    with pytest.raises(InputError, match=argument):
        manual_power(**facts)
