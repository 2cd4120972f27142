# SPDX-License-Identifier: Apache-2.0
"""Tables of thresholds, their front, and what other rates and GPUs take."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicjax.fleet.capacity import Target
from aicjax.fleet.cdf import Knots
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import stacked
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.sizing import Demand
from aicjax.fleet.thresholds import knot_thresholds, on_front, threshold_sweep
from aicjax.fleet.what_if import breaking_rate_per_s, stacked_fleets, what_if
from tests.fleet.sizing_programs import (
    COMPRESSION,
    LENGTHS,
    MAX_TOKENS,
    PROFILES,
    SIZED,
    STATED,
    THRESHOLDS,
    leaves_agree,
    pools,
)

A100, H100 = preset("a100"), preset("h100")
GAMMAS = jnp.asarray([1.0, 1.5])
TARGET, DEMAND = Target(1.0), Demand(300.0)
_front = jax.jit(on_front, static_argnums=2)
ROW = st.tuples(st.integers(1, 4), st.integers(1, 4))


@settings(max_examples=50)
@given(st.lists(ROW, min_size=7, max_size=7))
def test_front_is_what_nothing_beats(rows: list[tuple[int, int]]):
    usd, ttft_s = np.array(rows, float).T

    def beaten(row: int, strict: bool) -> bool:
        others = [(usd[k] - usd[row], ttft_s[k] - ttft_s[row]) for k in range(len(rows))]
        if strict:
            return any(money < 0 and time < 0 for money, time in others)
        return any(money <= 0 and time <= 0 and (money < 0 or time < 0) for money, time in others)

    wanted = [not beaten(row, strict=False) for row in range(len(rows))]
    assert np.asarray(_front(usd, ttft_s)).tolist() == wanted
    reference = [not beaten(row, strict=True) for row in range(len(rows))]
    assert np.asarray(_front(usd, ttft_s, FLEET_REFERENCE)).tolist() == reference


def test_sweep_is_each_threshold_by_itself():
    thresholds = jnp.asarray([[600.0], [2000.0]])
    sweep = jax.jit(threshold_sweep)(PROFILES, LENGTHS, thresholds, MAX_TOKENS, GAMMAS, DEMAND, TARGET, COMPRESSION)
    for (row, threshold), (column, gamma) in itertools.product(enumerate([600.0, 2000.0]), enumerate(GAMMAS.tolist())):
        alone = SIZED(pools(gamma, threshold), DEMAND, TARGET)
        leaves_agree(jax.tree.map(lambda leaf, at=(row, column): leaf[at], sweep.sizing), alone)


def test_thresholds_leave_requests_to_either_pool():
    knots = Knots(np.array([64, 128, 256, 512, 1024]), np.array([0.001, 0.01, 0.5, 0.9995, 1.0]))
    assert knot_thresholds(knots).tolist() == [128, 256]


@pytest.mark.slow
def test_what_if_is_the_cheapest_of_each_sweep():
    fleets = [[A100, A100], [A100, H100]]
    rates = jnp.asarray([100.0, 300.0])
    found = jax.jit(what_if)(
        stacked_fleets(fleets), LENGTHS, THRESHOLDS, MAX_TOKENS, GAMMAS, rates, DEMAND, TARGET, COMPRESSION
    )
    for (row, profiles), (column, rate) in itertools.product(enumerate(fleets), enumerate(rates.tolist())):
        each = [
            SIZED(pools(gamma)._replace(profile=stacked(profiles)), Demand(rate), TARGET) for gamma in GAMMAS.tolist()
        ]
        best = int(np.argmin([float(sizing.usd_per_hour) for sizing in each]))
        assert all(bool(sizing.met) for sizing in each)
        assert float(found.gamma[row, column]) == float(GAMMAS[best])
        leaves_agree(jax.tree.map(lambda leaf, at=(row, column): leaf[at], found.sizing), each[best])


def test_fleet_breaks_at_its_breaking_rate():
    fleet = pools()
    replicas = jnp.asarray([12.0, 14.0])
    rate = float(jax.jit(breaking_rate_per_s)(fleet, replicas, DEMAND, TARGET))
    assert rate > 0
    assert bool(STATED(fleet, replicas, Demand(rate * 0.999), TARGET).met)
    assert not bool(STATED(fleet, replicas, Demand(rate * 1.001), TARGET).met)
