# SPDX-License-Identifier: Apache-2.0
"""Replicas that are up, against the binomial law counted out."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.fleet.capacity import Target, Verdict
from aicjax.fleet.failures import availability, degraded, enough_up, least_spare, up_probabilities
from aicjax.fleet.sizing import Demand
from tests.fleet.sizing_programs import STATED, leaves_agree, pools

_enough_up = jax.jit(enough_up)
_least_spare = jax.jit(least_spare, static_argnames="most")


def _enough(bought: int, needed: int, up: float) -> float:
    return sum(math.comb(bought, k) * up**k * (1 - up) ** (bought - k) for k in range(max(needed, 0), bought + 1))


@given(st.integers(1, 60), st.integers(-2, 62), st.floats(0.5, 0.999))
def test_enough_up_is_the_tail_of_the_binomial_law(bought, needed, up):
    with jax.enable_x64(True):
        assert _enough_up(float(bought), float(needed), up) == pytest.approx(_enough(bought, needed, up), abs=1e-12)


def test_probabilities_of_failures_are_the_binomial_law():
    with jax.enable_x64(True):
        found = up_probabilities(12.0, 0.9, jnp.arange(14.0))
    wanted = [math.comb(12, down) * 0.1**down * 0.9 ** (12 - down) for down in range(13)]
    np.testing.assert_allclose(found, [*wanted, 0.0], atol=1e-12)


@pytest.mark.parametrize(("needed", "up", "probability"), [(20, 0.95, 0.999), (57, 0.987, 0.99), (1, 0.5, 0.9)])
def test_least_spare_is_the_first_that_suffices(needed, up, probability):
    spare, chance = _least_spare(float(needed), up, probability, most=20)
    enough = [_enough(needed + count, needed, up) >= probability for count in range(21)]
    assert int(spare) == enough.index(True)
    assert float(chance) == pytest.approx(_enough(needed + int(spare), needed, up), abs=1e-5)


def test_spares_that_do_not_suffice_say_their_chance():
    spare, chance = _least_spare(20.0, 0.5, 0.999, most=3)
    assert int(spare) == 3
    assert float(chance) == pytest.approx(_enough(23, 20, 0.5), abs=1e-5)


def test_replica_of_more_parts_is_down_more_often():
    one = availability(1000.0, 4.0)
    assert one == pytest.approx(1000 / 1004)
    assert availability(1000.0, 4.0, parts=8.0) == pytest.approx(one**8)
    assert availability(math.inf, 4.0) == 1.0


def test_state_with_replicas_down_is_that_of_the_rest():
    fleet, demand, target = pools(), Demand(80.0), Target(1.0)
    replicas, down = jnp.asarray([12.0, 22.0]), jnp.asarray([0.0, 2.0, 12.0])
    load = jax.jit(degraded)(fleet, replicas, demand, target, down)
    leaves_agree(jax.tree.map(lambda leaf: leaf[1], load), STATED(fleet, replicas - 2, demand, target).load)
    assert load.verdict[2, 0] == Verdict.OVERLOADED
    assert np.isinf(load.ttft_s[2, 0])
    assert (np.diff(np.asarray(load.utilization)[:, 1]) > 0).all()
