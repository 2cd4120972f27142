# SPDX-License-Identifier: Apache-2.0
"""The law of the wait: exact limits, stored simulations, monotony, gradients."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.fleet import lengths
from aicjax.fleet.dispersion import index_of_dispersion, service_spread
from aicjax.fleet.erlang import erlang_c
from aicjax.fleet.presets import preset
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.service_times import ServiceLaw, moments, service_law
from aicjax.fleet.waiting import kimura_wait, mean_wait_s, survival, wait_law, wait_quantile_s

SIMULATED = Path(__file__).parents[1] / "references" / "fleet" / "queue_percentiles.json"
LAWS = ("azure", "agent_heavy", "lmsys")


def points(times: np.ndarray, weight: np.ndarray | None = None) -> ServiceLaw:
    weight = np.full(len(times), 1.0 / len(times)) if weight is None else weight
    return ServiceLaw(*(jnp.asarray(leaf, float) for leaf in (times, np.zeros(len(times)), weight)))


def exponential(mean_s: float = 1.0, count: int = 2_000) -> ServiceLaw:
    times = -np.log1p(-(np.arange(count) + 0.5) / count)
    return points(times / times.mean() * mean_s)


def pool(name: str) -> ServiceLaw:
    return service_law(preset("a100"), lengths.named(name), 65_536, rules=FLEET_REFERENCE)


@jax.jit
def waits(servers, rate, service, quantile, arrival_cv2=1.0):
    law = wait_law(servers, rate, service, arrival_cv2)
    return law.probability, wait_quantile_s(law, quantile), mean_wait_s(law)


def at_load(service: ServiceLaw, servers: float, rho: float, quantile: float = 0.99, arrival_cv2: float = 1.0):
    rate = rho * servers / float(moments(service)[0])
    return [float(x) for x in waits(servers, rate, service, quantile, arrival_cv2)]


@pytest.mark.parametrize("servers", [1.0, 4.0, 32.0, 1000.0])
@pytest.mark.parametrize("rho", [0.7, 0.95])
def test_exponential_service_waits_as_in_m_m_c(servers: float, rho: float):
    chance = float(erlang_c(servers, rho * servers))
    probability, p999, mean_s = at_load(exponential(), servers, rho, 0.999)
    assert probability == pytest.approx(chance, rel=1e-3)
    decay = servers * (1.0 - rho)
    assert mean_s == pytest.approx(chance / decay, rel=0.02)
    assert p999 == pytest.approx(max(np.log(chance / 0.001) / decay, 0.0), rel=0.02)


@pytest.mark.parametrize(("times", "weight"), [([1.0], None), ([0.2, 4.2], [0.8, 0.2]), ([0.5, 1.5], None)])
@pytest.mark.parametrize("rho", [0.5, 0.8, 0.95])
def test_one_server_has_the_mean_of_pollaczek_and_khinchine(times: list, weight: list | None, rho: float):
    service = points(np.asarray(times), None if weight is None else np.asarray(weight))
    mean_s, cv2 = (float(x) for x in moments(service))
    probability, _, mean_wait = at_load(service, 1.0, rho)
    assert probability == pytest.approx(rho, rel=1e-5)
    assert mean_wait == pytest.approx(rho * mean_s * (1.0 + cv2) / (2.0 * (1.0 - rho)), rel=0.08)


def test_long_queues_are_kimuras():
    """Near overload all variability is felt, and the two laws meet."""
    service = pool("azure")
    mean_s, cv2 = moments(service)
    rate = 0.9995 * 32.0 / float(mean_s)
    kimura = wait_quantile_s(kimura_wait(32.0, rate, mean_s, cv2), 0.99)
    assert at_load(service, 32.0, 0.9995)[1] == pytest.approx(float(kimura), rel=0.02)


def test_short_queues_do_not_feel_rare_long_services():
    """With many servers the queue is gone before a long service ends: Kimura's wait is several times too long."""
    service = pool("lmsys")
    mean_s, cv2 = moments(service)
    rate = 0.95 * 640.0 / float(mean_s)
    kimura = float(wait_quantile_s(kimura_wait(640.0, rate, mean_s, cv2), 0.99))
    assert kimura > 5.0 * at_load(service, 640.0, 0.95)[1]


def test_waits_are_those_of_long_simulations():
    """Median error 3 %, largest 25 %, of percentiles that the simulation itself knows within a tenth."""
    stored = json.loads(SIMULATED.read_text(encoding="utf-8"))
    services = {name: pool(name) for name in LAWS}
    errors = []
    for row in stored["rows"]:
        for quantile, wait_s, half_width_s in row["waits_s"]:
            if half_width_s < 0.1 * wait_s:
                found = at_load(services[row["lengths"]], row["servers"], row["rho"], quantile)[1]
                errors.append(abs(found / wait_s - 1.0))
    assert len(errors) > 40
    assert np.median(errors) < 0.03
    assert max(errors) < 0.25


@pytest.mark.parametrize("arrival_cv2", [0.0, 0.3, 4.0])
def test_arrivals_count_as_service_does_near_overload(arrival_cv2: float):
    service = exponential()
    even, bursty = (at_load(service, 8.0, 0.98, 0.99, cv2)[1] for cv2 in (1.0, arrival_cv2))
    assert bursty / even == pytest.approx((arrival_cv2 + 1.0) / 2.0, rel=0.06)


@given(
    st.sampled_from(LAWS),
    st.floats(2.0, 3_000.0),
    st.floats(0.3, 0.985),
    st.floats(0.5, 0.999),
    st.floats(0.0, 5.0),
)
def test_waits_are_monotone_and_finite(name: str, servers: float, rho: float, quantile: float, arrival_cv2: float):
    service = pool(name)
    rate = rho * servers / float(moments(service)[0])
    probability, wait_s, mean_s = waits(servers, rate, service, quantile, arrival_cv2)
    assert 0.0 <= float(probability) <= 1.0
    assert np.isfinite([wait_s, mean_s]).all()
    for more in (
        waits(servers, rate * 1.01, service, quantile, arrival_cv2),
        waits(servers * 0.99, rate, service, quantile, arrival_cv2),
        waits(servers, rate, service, quantile + 0.5 * (1.0 - quantile), arrival_cv2),
    ):
        assert float(more[1]) >= float(wait_s) * (1.0 - 1e-4)


@pytest.mark.parametrize("rho", [1.0, 1.7])
def test_overload_waits_for_ever(rho: float):
    probability, wait_s, mean_s = at_load(pool("azure"), 16.0, rho)
    assert (probability, wait_s, mean_s) == (1.0, np.inf, np.inf)


def test_no_load_does_not_wait():
    assert [float(x) for x in waits(16.0, 0.0, pool("azure"), 0.99)] == [0.0, 0.0, 0.0]


def test_survival_and_quantile_are_inverse():
    service = pool("agent_heavy")
    law = wait_law(128.0, 0.95 * 128.0 / moments(service)[0], service)
    for quantile in (0.6, 0.9, 0.99, 0.999):
        assert float(survival(law, wait_quantile_s(law, quantile))) == pytest.approx(1.0 - quantile, rel=1e-3)
    assert float(survival(law, 0.0)) == pytest.approx(float(law.probability))


def test_gradients_equal_differences():
    servers = 64.0
    with jax.enable_x64(True):
        service = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), pool("azure"))
        rate = 0.95 * servers / moments(service)[0]

        def p99(servers, rate, stretch):
            stretched = service._replace(service_s=service.service_s * stretch)
            return wait_quantile_s(wait_law(servers, rate, stretched), 0.99)

        at = (servers, float(rate), 1.0)
        slopes = jax.jit(jax.grad(p99, argnums=(0, 1, 2)))(*at)
        compiled = jax.jit(p99)
        for place, slope in enumerate(slopes):
            step = 1e-6 * at[place]
            up, down = (compiled(*(x + s * step * (i == place) for i, x in enumerate(at))) for s in (1.0, -1.0))
            assert float(slope) == pytest.approx(float((up - down) / (2.0 * step)), rel=2e-3)


def test_a_spread_serves_many_counts():
    service = pool("azure")
    spread = service_spread(service)
    rate = 0.9 * 64.0 / moments(service)[0]
    once, again = (wait_quantile_s(wait_law(64.0, rate, law), 0.99) for law in (service, spread))
    assert float(once) == pytest.approx(float(again), rel=1e-6)


def test_dispersion_goes_from_one_to_the_variability_of_service():
    service = pool("azure")
    mean_s, cv2 = (float(x) for x in moments(service))
    times = jnp.geomspace(1e-4 * mean_s, 1e4 * mean_s, 80)
    index = index_of_dispersion(service.service_s, service.weight, times)
    assert float(index[0]) == pytest.approx(1.0, rel=0.01)
    assert float(index[-1]) == pytest.approx(cv2, rel=0.03)


def test_dispersion_of_random_departures_is_one():
    service = exponential()
    index = index_of_dispersion(service.service_s, service.weight, jnp.geomspace(1e-3, 1e3, 60))
    np.testing.assert_allclose(index, 1.0, rtol=0.02)


def test_dispersion_is_that_of_counted_departures():
    """Two kinds of service, 20 to 1: counts of a renewal process that is stationary at time 0."""
    times, weight = np.array([0.5, 10.0]), np.array([0.9, 0.1])
    random = np.random.default_rng(7)
    span, intervals = 20.0, 20_000
    services = random.choice(times, (intervals, 80), p=weight)
    first = random.choice(times, intervals, p=weight * times / (weight @ times)) * random.random(intervals)
    ends = first[:, None] + np.concatenate([np.zeros((intervals, 1)), np.cumsum(services, axis=1)], axis=1)
    assert ends[:, -1].min() > span
    counts = (ends <= span).sum(axis=1)
    counted = counts.var() / counts.mean()
    around = jnp.asarray([span / 1.2, span, span * 1.2], float)
    found = float(index_of_dispersion(jnp.asarray(times, float), jnp.asarray(weight, float), around)[1])
    assert found == pytest.approx(counted, rel=0.12)
