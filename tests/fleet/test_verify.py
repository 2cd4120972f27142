# SPDX-License-Identifier: Apache-2.0
"""Candidates checked by simulation: steady from the start, intervals that hold, a confidence that means something."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.fleet.capacity import Target
from aicjax.fleet.erlang import erlang_c
from aicjax.fleet.pool_queue import simulate_queues
from aicjax.fleet.service_times import ServiceLaw
from aicjax.fleet.sizing import Demand, thinned
from aicjax.fleet.verify import share_confidence, verified
from tests.fleet.sizing_programs import pools, rows

KEY = jax.random.key(3)


def test_settled_runs_wait_as_in_the_long_run_from_their_first_requests():
    """Runs of three mean service times before 48 servers, four fifths busy."""
    quantiles = -np.log1p(-(np.arange(400) + 0.5) / 400)
    law = ServiceLaw(jnp.asarray(quantiles), jnp.zeros(400), jnp.full(400, 1 / 400))
    rate, servers = 0.8 * 48, 48

    def waiting(settled: bool) -> float:
        sample = simulate_queues(KEY, law, rate, servers, requests=120, seeds=400, settled=settled)
        return float((sample.wait_s > 0).mean())

    wanted = float(erlang_c(float(servers), rate * float(quantiles.mean())))
    assert waiting(settled=True) == pytest.approx(wanted, rel=0.3)
    assert waiting(settled=False) < 0.3 * wanted


def test_more_replicas_are_as_good_on_common_random_numbers():
    demand, target = Demand(300.0), Target(0.3)
    counts = jnp.asarray([[14.0, 22.0], [15.0, 23.0], [18.0, 30.0]])
    found = verified(KEY, rows(pools(), pools(), pools()), counts, demand, target, requests=1000, seeds=8)
    assert (np.diff(found.ttft_s.value, axis=0) <= 1e-6).all()
    assert (np.diff(found.within_limit, axis=0) >= 0).all()
    assert (found.ttft_s.low <= found.ttft_s.value).all()
    assert (found.ttft_s.value <= found.ttft_s.high).all()


def test_a_limit_far_away_is_certain_and_one_out_of_reach_is_not_met():
    counts = jnp.asarray([[18.0, 30.0]] * 3)
    far = verified(KEY, rows(pools(), pools(), pools()), counts, Demand(300.0), Target(60.0), requests=1000, seeds=8)
    near = verified(KEY, rows(pools(), pools(), pools()), counts, Demand(300.0), Target(1e-3), requests=1000, seeds=8)
    assert far.met.all()
    assert far.all_confidence[0] > 0.99
    assert not near.met.any()
    assert near.confidence.max() < 0.01


def test_each_pool_is_as_bursty_as_its_share_of_the_arrivals():
    fleet, counts, demand = rows(pools()), jnp.asarray([[4.0, 6.0]]), Demand(185.0, 6.0)
    found = verified(KEY, fleet, counts, demand, Target(0.3), requests=1000, seeds=8)
    for place, share in enumerate(np.asarray(fleet.share[0])):
        own = Demand(*thinned(demand, float(share)))
        whole = fleet._replace(share=jnp.ones_like(fleet.share))
        alone = verified(KEY, whole, counts, own, Target(0.3), requests=1000, seeds=8)
        assert found.ttft_s.value[0, place] == pytest.approx(alone.ttft_s.value[0, place], rel=1e-3)
    smooth = verified(KEY, fleet, counts, demand._replace(arrival_cv2=1.0), Target(0.3), requests=1000, seeds=8)
    assert found.ttft_s.value[0, 1] > 1.2 * smooth.ttft_s.value[0, 1]


def test_confidence_is_students_law_of_the_runs():
    least, shares = 0.9, np.array([0.93, 0.91, 0.95, 0.93, 0.91, 0.95, 0.93, 0.93])
    t = (shares.mean() - least) / (shares.std(ddof=1) / np.sqrt(8))
    draws = np.random.default_rng(0).standard_t(7, 400_000)
    assert float(share_confidence(shares, least, 10_000)) == pytest.approx((draws < t).mean(), abs=0.003)
    assert float(share_confidence(2 * least - shares, least, 10_000)) == pytest.approx((draws < -t).mean(), abs=0.003)


def test_few_runs_that_agree_are_no_certainty():
    assert float(share_confidence(np.full(4, 0.992), 0.99, 100)) < 0.75
    assert float(share_confidence(np.full(4, 0.992), 0.99, 1_000_000)) > 0.999
