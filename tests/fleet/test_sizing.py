# SPDX-License-Identifier: Apache-2.0
"""Fleets sized pool by pool, sweeps as one evaluation, and the limits that no count of replicas meets."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.fleet.capacity import Target, Verdict
from aicjax.fleet.lengths import Lengths, constant, from_pairs
from aicjax.fleet.pools import Compression, Pool, only_pool, split
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import Profile, stacked
from aicjax.fleet.sizing import Demand, Sizing, cheapest, sized, stated, thinned
from aicjax.fleet.two_pool import gamma_sweep
from tests.compiles import counted

LENGTHS = from_pairs([100, 400, 800, 1500, 1700, 2600, 3500, 5000], [20, 100, 100, 300, 300, 300, 100, 900])
PROFILES = stacked([preset("a100"), preset("h100")])
COMPRESSION = Compression(1.5, 0.75, 0.003)
TARGET = Target(0.5)
_sized, _stated = jax.jit(sized), jax.jit(stated)


def _pools(gamma: float = 1.5) -> Pool:
    return split(PROFILES, LENGTHS, jnp.asarray([2000.0]), 8000.0, COMPRESSION._replace(gamma=gamma))


def _single(lengths: Lengths, max_tokens: float) -> Pool:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], only_pool(_plain(), lengths, max_tokens))


def _plain() -> Profile:
    return dataclasses.replace(preset("a100"), power=None)


def test_replicas_are_the_least_that_meet_the_limit():
    pools, demand = _pools(), Demand(300.0)
    found = _sized(pools, demand, TARGET)
    assert bool(found.met)
    for pool in range(2):
        fewer = found.load.replicas.at[pool].add(-1.0)
        load = _stated(pools, fewer, demand, TARGET).load
        assert load.verdict[pool] != Verdict.MET or load.utilization[pool] > TARGET.rho_max


def test_cost_is_that_of_the_replicas_of_each_profile():
    found = _sized(_pools(), Demand(300.0), TARGET)
    prices = [preset("a100").price_per_hour, preset("h100").price_per_hour]
    assert float(found.usd_per_hour) == pytest.approx(float(np.dot(found.load.replicas, prices)))


def test_pool_without_requests_has_no_replicas():
    pools = split(PROFILES, constant(100.0, 20.0), jnp.asarray([2000.0]), 8000.0, COMPRESSION)
    found = _sized(pools, Demand(300.0), TARGET)
    assert float(found.load.replicas[1]) == 0
    assert bool(found.met)
    assert np.isfinite(np.asarray(jax.tree.leaves(found.load))).all()


def test_more_is_bought_where_replicas_fail():
    bought = _sized(_pools(), Demand(300.0, availability=0.9), TARGET).load.replicas
    needed = _sized(_pools(), Demand(300.0), TARGET).load.replicas
    np.testing.assert_allclose(bought, np.ceil(np.asarray(needed) / 0.9))


def test_replicas_do_not_speed_up_one_request():
    """A prompt that takes longer than the limit misses it with any count: the count is not raised."""
    slow = dataclasses.replace(_plain(), base_s=0.9, per_sequence_s=0.0)
    pool = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], only_pool(slow, constant(500.0, 10.0), 1024.0))
    tight = _sized(pool, Demand(1.0), Target(0.5))
    loose = _sized(pool, Demand(1.0), Target(5.0))
    assert int(tight.load.verdict[0]) == Verdict.PREFILL_TOO_SLOW
    assert float(tight.load.replicas[0]) <= float(loose.load.replicas[0]) + 1
    assert int(loose.load.verdict[0]) == Verdict.MET


def test_limit_holds_for_the_first_token_not_only_for_the_wait():
    """The fleet reference sizes on the wait and then reports a TTFT that may miss the limit."""
    pool = _single(constant(20000.0, 100.0), 65536.0)
    load = _sized(pool, Demand(5.0), Target(30.0)).load
    prefill_s = float(load.ttft_s[0] - load.wait_s[0])
    assert prefill_s > 0.1
    missed = _sized(pool, Demand(5.0), Target(prefill_s * 0.9)).load
    assert float(missed.wait_s[0]) < prefill_s * 0.9
    assert int(missed.verdict[0]) == Verdict.PREFILL_TOO_SLOW


def test_a_share_of_bursty_arrivals_is_less_bursty():
    rate, cv2 = thinned(Demand(100.0, arrival_cv2=5.0), 0.25)
    assert (rate, cv2) == (25.0, 2.0)
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.gamma(1 / 5.0, 5.0 / 100.0, 400_000))[rng.random(400_000) < 0.25]
    gaps = np.diff(times)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(2.0, rel=0.05)


def test_sweep_is_each_reach_by_itself():
    gammas = jnp.asarray([1.0, 1.3, 2.0])
    sweep = jax.jit(gamma_sweep)(
        PROFILES, LENGTHS, jnp.asarray([2000.0]), 8000.0, gammas, Demand(300.0), TARGET, COMPRESSION
    )
    for row, gamma in enumerate(gammas.tolist()):
        alone = _sized(_pools(gamma), Demand(300.0), TARGET)
        for swept, one in zip(jax.tree.leaves(sweep), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(swept[row], one, rtol=1e-5, atol=1e-12)


def test_cheapest_meets_its_limits_where_one_does():
    base = _sized(_pools(), Demand(300.0), TARGET)
    verdict = jnp.asarray([[2, 0], [0, 0], [0, 0]])
    many = Sizing(
        load=jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), base.load)._replace(verdict=verdict),
        share=jnp.stack([base.share] * 3),
        usd_per_hour=jnp.asarray([1.0, 3.0, 3.0]),
    )
    assert int(cheapest(many)) == 1
    none = many._replace(load=many.load._replace(verdict=jnp.full((3, 2), 2)))
    assert int(cheapest(none)) == 0


def test_new_numbers_do_not_compile_anew():
    sweep = jax.jit(gamma_sweep)
    gammas = jnp.linspace(1.0, 2.0, 3)

    def run(rate: float, limit: float) -> Sizing:
        return sweep(
            PROFILES, LENGTHS, jnp.asarray([rate * 10]), 8000.0, gammas, Demand(rate), Target(limit), COMPRESSION
        )

    run(200.0, 0.5)
    with counted() as counts:
        run(300.0, 0.2)
    assert counts.compiled == 0
