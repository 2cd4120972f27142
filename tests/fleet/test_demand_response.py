# SPDX-License-Identifier: Apache-2.0
"""What a fleet sheds, and what its power yields."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax._results import InputError
from aicjax.fleet.capacity import Target, Verdict
from aicjax.fleet.cdf import Knots
from aicjax.fleet.computed import Serving, computed_profile
from aicjax.fleet.demand_response import FixedFleet, Response, demand_response, most_cut
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.gpu_facts import gpu
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.model_facts import published_model
from aicjax.fleet.pool_queue import simulate_queues
from aicjax.fleet.pools import only_pool
from aicjax.fleet.power import power_w
from aicjax.fleet.presets import preset
from aicjax.fleet.profile import Profile
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.service_times import service_law
from aicjax.fleet.statistics import after_warm_up, quantile_interval
from aicjax.fleet.tokens_per_watt import Efficiency, at_utilization, binned_mean_osl, pool_efficiency

CUTS = jnp.array([0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5])
LENGTHS = Lengths(np.array([400.0, 1600.0, 5000.0]), np.array([100.0, 400.0, 800.0]), np.array([0.5, 0.4, 0.1]))
FLEET = FixedFleet(24.0, 8192.0, LENGTHS, 140.0)
TARGET = Target(1.0)


def _response(profile: Profile, fleet: FixedFleet = FLEET) -> Response:
    return demand_response(profile, fleet, CUTS, TARGET)


def test_no_cut_leaves_every_slot():
    found = _response(preset("h100"))
    law = preset("h100").power
    assert law is not None
    assert float(found.cap[0]) == 128
    assert float(found.cap_gpu_w[0]) == pytest.approx(float(power_w(law, 128.0)))


def test_short_contexts_leave_more_slots_than_the_law_was_made_for():
    found = _response(preset("h100"), FLEET._replace(max_tokens=2048.0))
    assert float(found.cap[0]) == 512
    assert found.load.utilization[0] < found.load.utilization[1]


def test_deeper_cuts_cap_more_and_never_draw_more_than_asked():
    found = _response(preset("h100"))
    assert (np.diff(found.cap) < 0).all()
    limits = float(found.cap_gpu_w[0]) * (1 - np.asarray(CUTS))
    reached = np.asarray(found.reached)
    assert reached.tolist() == [True] * 6 + [False]  # half the power is less than a GPU draws without load
    assert (np.asarray(found.cap_gpu_w)[reached] <= limits[reached] * (1 + 1e-6)).all()
    assert (np.asarray(found.gpu_w) <= np.asarray(found.cap_gpu_w) * (1 + 1e-6)).all()
    assert (np.diff(found.load.utilization) > 0).all()
    np.testing.assert_allclose(found.fleet_w, 24 * np.asarray(found.gpu_w), rtol=1e-6)


def test_the_largest_cut_within_the_limit_is_found():
    found = _response(preset("h100"))
    best = most_cut(found)
    assert best is not None
    verdicts = np.asarray(found.load.verdict)
    assert verdicts[best] == Verdict.MET
    assert (verdicts[best + 1 :] != Verdict.MET).all()
    assert verdicts[-1] == Verdict.OVERLOADED
    assert np.isinf(found.load.ttft_s[-1])
    assert most_cut(demand_response(preset("h100"), FLEET, CUTS, Target(1e-5))) is None


def test_a_linear_law_sheds_with_more_requests_left_than_a_logistic_one():
    # the reference's documents compute with a linear law, its code with a logistic one
    law = preset("h100").power
    assert law is not None
    linear = dataclasses.replace(law, steepness=0.0, compute_per_request=1 / 128, most_running=128.0)
    ours, other = _response(preset("h100")), _response(dataclasses.replace(preset("h100"), power=linear))
    assert float(other.cap[0]) == float(ours.cap[0]) == 128
    assert (np.asarray(other.cap[1:-1]) > np.asarray(ours.cap[1:-1])).all()


def test_simulation_of_the_same_law_agrees():
    few = jax.tree.map(lambda leaf: leaf[jnp.array([2, 4])], _response(preset("h100")))
    assert (np.asarray(few.load.utilization) < 0.9).all()
    capped = [dataclasses.replace(preset("h100"), max_slots=float(cap)) for cap in few.cap]
    services = [service_law(profile, LENGTHS, FLEET.max_tokens) for profile in capped]
    laws = jax.tree.map(lambda *leaves: np.stack(leaves), *services)
    servers = np.asarray(few.cap * FLEET.replicas, int)
    sample = simulate_queues(jax.random.key(0), laws, 140.0, servers, requests=4000, seeds=4)
    interval = quantile_interval(after_warm_up(sample.ttft_s), 0.99)
    assert interval is not None
    np.testing.assert_allclose(interval.value, few.load.ttft_s, rtol=0.1)


def test_computed_profiles_shed_too():
    constants = load_fleet_constants()
    model = published_model("meta-llama/Meta-Llama-3.1-70B")
    profile = computed_profile(gpu("h100"), model, Serving(tp=8, max_slots=256), constants)
    found = demand_response(profile, FLEET._replace(rate_per_s=400.0), CUTS, TARGET)
    assert float(found.cap[0]) == pytest.approx(176, abs=1)
    assert float(found.cap_w[0]) == pytest.approx(24 * 8 * float(found.cap_gpu_w[0]))
    assert float(found.cap[2]) < float(found.cap[1])


def test_a_replica_without_power_is_refused():
    with pytest.raises(InputError, match="power law"):
        _response(dataclasses.replace(preset("a100"), power=None))


def test_other_fleets_compile_nothing():
    _response(preset("h100"))
    with jax.no_tracing():
        _response(preset("a10g"), FLEET._replace(rate_per_s=12, replicas=9))


@pytest.mark.parametrize(("share", "replicas"), [(0.2, None), (0.8, None), (0.01, "as 0.05"), (1.0, "as 0.95")])
def test_replicas_for_a_utilisation(share: float, replicas: str | None):
    pool = only_pool(preset("h100"), LENGTHS, 8192.0)
    found = at_utilization(pool, share, 140.0, TARGET, rules=FLEET_REFERENCE)
    if replicas is None:
        assert float(found.utilization) <= share * (1 + 1e-6)
        assert float(found.utilization) * float(found.replicas) / (float(found.replicas) - 1) > share
    else:
        other = at_utilization(pool, float(replicas.removeprefix("as ")), 140.0, TARGET, rules=FLEET_REFERENCE)
        assert float(found.replicas) == float(other.replicas)


def test_tokens_per_joule_and_price_of_a_pool():
    profile = preset("h100")
    pool = only_pool(profile, LENGTHS, 8192.0)
    load = at_utilization(pool, 0.7, 140.0, TARGET, rules=FLEET_REFERENCE)
    found, power = pool_efficiency(pool, load, 140.0)
    osl = float(np.dot(LENGTHS.weight, LENGTHS.osl))
    running = float(load.utilization) * 128
    assert profile.power is not None
    watts = float(load.replicas) * float(power_w(profile.power, running))
    assert float(power.running) == pytest.approx(running, rel=1e-5)
    assert float(found.tokens_per_joule) == pytest.approx(140 * osl / watts, rel=1e-5)
    dollars = float(load.replicas) * 4.02 / 3600 / (140 * osl) * 1e6
    assert float(found.usd_per_million_tokens) == pytest.approx(dollars, rel=1e-5)
    below = pool_efficiency(pool, load, 140.0, rules=FLEET_REFERENCE)[1]
    assert float(below.gpu_w) == pytest.approx(float(power_w(profile.power, np.floor(running))), rel=1e-6)


def test_replicas_that_are_down_draw_nothing_but_are_paid():
    pool = only_pool(preset("h100"), LENGTHS, 8192.0)
    load = at_utilization(pool, 0.7, 140.0, TARGET, rules=FLEET_REFERENCE)
    all_up, some = (pool_efficiency(pool, load, 140.0, share)[0] for share in (1.0, 0.9))
    assert float(some.watts) == pytest.approx(0.9 * float(all_up.watts), rel=1e-6)
    assert float(some.usd_per_hour) == float(all_up.usd_per_hour)


def test_a_fleet_is_the_sum_of_its_pools_and_nothing_divides_by_zero():
    pools = Efficiency(jnp.array([100.0, 50.0, 0.0]), jnp.array([10.0, 40.0, 0.0]), jnp.array([1.0, 2.0, 0.0]))
    total = pools.total()
    assert float(total.tokens_per_joule) == pytest.approx(3.0)
    assert float(total.usd_per_million_tokens) == pytest.approx(3.0 / 3600 / 150 * 1e6)
    np.testing.assert_allclose(pools.tokens_per_joule, [10.0, 1.25, 0.0])


def test_mean_output_of_bins():
    knots = Knots(np.array([100.0, 300.0]), np.array([0.5, 1.0]))
    assert binned_mean_osl(knots) == 25.0  # a fifth of (50 + 200) / 2
    assert binned_mean_osl(Knots(np.array([2.0]), np.array([1.0]))) == 1.0
