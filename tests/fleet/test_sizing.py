# SPDX-License-Identifier: Apache-2.0
"""Fleets sized pool by pool, sweeps as one evaluation, and the limits that no count of replicas meets."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.fleet.capacity import Target, Verdict
from aicjax.fleet.presets import preset
from aicjax.fleet.sizing import Demand, Sizing, cheapest, thinned
from tests.compiles import counted
from tests.fleet.sizing_programs import (
    SIZED,
    STATED,
    one_length,
    pools,
)

TARGET = Target(0.5)


def test_replicas_are_the_least_that_meet_the_limit():
    fleet, demand = pools(), Demand(300.0)
    found = SIZED(fleet, demand, TARGET)
    assert bool(found.met)
    for pool in range(2):
        fewer = found.load.replicas.at[pool].add(-1.0)
        load = STATED(fleet, fewer, demand, TARGET).load
        assert load.verdict[pool] != Verdict.MET or load.utilization[pool] > TARGET.rho_max


def test_cost_is_that_of_the_replicas_of_each_profile():
    found = SIZED(pools(), Demand(300.0), TARGET)
    prices = [preset("a100").price_per_hour, preset("h100").price_per_hour]
    assert float(found.usd_per_hour) == pytest.approx(float(np.dot(found.load.replicas, prices)))


def test_pool_without_requests_has_no_replicas():
    found = SIZED(one_length(100.0, 20.0, 4000.0), Demand(300.0), TARGET)
    assert float(found.load.replicas[1]) == 0
    assert bool(found.met)
    assert np.isfinite(np.asarray(jax.tree.leaves(found.load))).all()


def test_more_is_bought_where_replicas_fail():
    bought = SIZED(pools(), Demand(300.0, availability=0.9), TARGET).load.replicas
    needed = SIZED(pools(), Demand(300.0), TARGET).load.replicas
    np.testing.assert_allclose(bought, np.ceil(np.asarray(needed) / 0.9))


def test_replicas_do_not_speed_up_one_request():
    """A prompt that takes longer than the limit misses it with any count: the count is not raised."""
    alike = one_length(500.0, 10.0, 1024.0)
    slow = dataclasses.replace(alike.profile, base_s=jnp.asarray([0.9, 0.9]), per_sequence_s=jnp.zeros(2))
    tight = SIZED(alike._replace(profile=slow), Demand(1.0), Target(0.5))
    loose = SIZED(alike._replace(profile=slow), Demand(1.0), Target(5.0))
    assert int(tight.load.verdict[0]) == Verdict.PREFILL_TOO_SLOW
    assert float(tight.load.replicas[0]) <= float(loose.load.replicas[0])
    assert int(loose.load.verdict[0]) == Verdict.MET


def test_limit_holds_for_the_first_token_not_only_for_the_wait():
    """The fleet reference sizes on the wait and then reports a TTFT that may miss the limit."""
    alike = one_length(20000.0, 100.0, 32768.0)
    load = SIZED(alike, Demand(5.0), Target(30.0)).load
    prefill_s = float(load.ttft_s[0] - load.wait_s[0])
    assert prefill_s > 0.1
    missed = SIZED(alike, Demand(5.0), Target(prefill_s * 0.9)).load
    assert float(missed.wait_s[0]) < prefill_s * 0.9
    assert int(missed.verdict[0]) == Verdict.PREFILL_TOO_SLOW


def test_a_share_of_bursty_arrivals_is_less_bursty():
    rate, cv2 = thinned(Demand(100.0, arrival_cv2=5.0), 0.25)
    assert (rate, cv2) == (25.0, 2.0)
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.gamma(1 / 5.0, 5.0 / 100.0, 400_000))[rng.random(400_000) < 0.25]
    gaps = np.diff(times)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(2.0, rel=0.05)


def test_new_numbers_do_not_compile_anew():
    SIZED(pools(1.5, 2000.0), Demand(300.0), Target(0.5))
    with counted() as counts:
        SIZED(pools(1.3, 900.0), Demand(200.0, 2.0, 0.9), Target(0.2))
    assert counts.compiled == 0


def test_cheapest_meets_its_limits_where_one_does():
    base = SIZED(pools(), Demand(300.0), TARGET)
    verdict = jnp.asarray([[2, 0], [0, 0], [0, 0]])
    many = Sizing(
        load=jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), base.load)._replace(verdict=verdict),
        share=jnp.stack([base.share] * 3),
        usd_per_hour=jnp.asarray([1.0, 3.0, 3.0]),
    )
    assert int(cheapest(many)) == 1
    none = many._replace(load=many.load._replace(verdict=jnp.full((3, 2), 2)))
    assert int(cheapest(none)) == 0
