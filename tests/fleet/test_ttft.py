# SPDX-License-Identifier: Apache-2.0
"""Percentiles of the time to first token from the joint law of wait and prefill."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.fleet.service_times import ServiceLaw, mean_prefill_s, moments
from aicjax.fleet.ttft import ttft_quantile_s, ttft_survival
from aicjax.fleet.waiting import WaitLaw, kimura_wait, wait_law, wait_quantile_s

quantile_s = jax.jit(ttft_quantile_s)


def law(prefill_s: list[float] | np.ndarray, weight: list[float] | np.ndarray) -> ServiceLaw:
    prefill = jnp.asarray(prefill_s, float)
    return ServiceLaw(10.0 * prefill, prefill, jnp.asarray(weight, float))


def exponential_wait(probability: float, decay_per_s: float) -> WaitLaw:
    knots = jnp.asarray([0.0, 1.0 / decay_per_s], float)
    return WaitLaw(jnp.asarray(probability, float), knots, jnp.asarray([0.0, 1.0], float))


@pytest.mark.parametrize(("quantile", "wanted"), [(0.4, 0.1), (0.6, 0.2), (0.85, 0.2), (0.95, 0.7), (0.999, 0.7)])
def test_without_waits_it_is_the_percentile_of_prefill(quantile: float, wanted: float):
    found = quantile_s(exponential_wait(0.0, 1.0), law([0.1, 0.2, 0.7], [0.5, 0.4, 0.1]), quantile)
    assert float(found) == pytest.approx(wanted, rel=1e-5)


def test_without_prefill_it_is_the_percentile_of_the_wait():
    wait = exponential_wait(0.6, 3.0)
    assert float(quantile_s(wait, law([0.0], [1.0]), 0.99)) == pytest.approx(np.log(60.0) / 3.0, rel=1e-5)


def test_it_is_the_percentile_of_sums_of_draws():
    random = np.random.default_rng(3)
    prefill, weight = np.array([0.05, 0.3, 1.5]), np.array([0.7, 0.25, 0.05])
    wait = np.where(random.random(2_000_000) < 0.3, random.exponential(0.5, 2_000_000), 0.0)
    ttft = wait + random.choice(prefill, 2_000_000, p=weight)
    for quantile in (0.5, 0.9, 0.99, 0.999):
        found = float(quantile_s(exponential_wait(0.3, 2.0), law(prefill, weight), quantile))
        assert found == pytest.approx(np.quantile(ttft, quantile), rel=0.01)


def test_it_is_far_from_the_wait_plus_the_mean_prefill():
    """Where nobody waits, long prompts decide: a mean hides them."""
    service = law([0.02, 0.5], [0.95, 0.05])
    wait = exponential_wait(0.001, 1.0)
    assert float(wait_quantile_s(wait, 0.99) + mean_prefill_s(service)) < 0.05
    assert float(quantile_s(wait, service, 0.99)) == pytest.approx(0.5, rel=1e-4)


@given(
    st.lists(st.floats(0.001, 5.0), min_size=6, max_size=6),
    st.floats(0.0, 1.0),
    st.floats(0.05, 50.0),
    st.floats(0.01, 0.999),
)
def test_the_share_beyond_a_percentile_is_what_it_says(
    prefill: list[float], probability: float, decay: float, quantile: float
):
    with jax.enable_x64(True):
        wait, service = exponential_wait(probability, decay), law(prefill, np.full(6, 1 / 6))
        found = quantile_s(wait, service, quantile)
        assert float(ttft_survival(wait, service, found * (1.0 + 1e-9))) <= 1.0 - quantile + 1e-9
        assert float(ttft_survival(wait, service, found * (1.0 - 1e-6))) >= 1.0 - quantile - 1e-4
        assert float(found) >= float(wait_quantile_s(wait, quantile)) * (1.0 - 1e-9)


def test_gradients_equal_differences():
    with jax.enable_x64(True):
        prefill, weight = np.linspace(0.05, 0.9, 40), np.full(40, 1 / 40)

        def p99(servers, rate, stretch):
            service = ServiceLaw(jnp.asarray(prefill) * 20.0, jnp.asarray(prefill) * stretch, jnp.asarray(weight))
            return ttft_quantile_s(wait_law(servers, rate, service), service, 0.99)

        at = (32.0, 3.2, 1.0)
        slopes = jax.jit(jax.grad(p99, argnums=(0, 1, 2)))(*at)
        compiled = jax.jit(p99)
        for place, slope in enumerate(slopes):
            step = 1e-5 * at[place]
            up, down = (compiled(*(x + s * step * (i == place) for i, x in enumerate(at))) for s in (1.0, -1.0))
            assert float(slope) == pytest.approx(float((up - down) / (2.0 * step)), rel=5e-3)


def test_where_nobody_waits_it_moves_with_the_prefill_alone():
    def p99(stretch, decay):
        service = law([0.02, 0.5], [0.95, 0.05])
        service = service._replace(prefill_s=service.prefill_s * stretch)
        return ttft_quantile_s(
            WaitLaw(jnp.asarray(1e-4), jnp.stack([0.0 * decay, 1.0 / decay]), jnp.arange(2.0)), service, 0.99
        )

    slopes = jax.jit(jax.grad(p99, argnums=(0, 1)))(1.0, 5.0)
    assert float(slopes[0]) == pytest.approx(0.5, rel=1e-5)
    assert float(slopes[1]) == 0.0


def test_overload_never_answers():
    service = law([0.1, 0.2], [0.5, 0.5])
    rate = 1.2 / float(moments(service)[0])
    assert float(quantile_s(kimura_wait(1.0, rate, *moments(service)), service, 0.5)) == np.inf
    slope = jax.jit(jax.grad(lambda r: ttft_survival(wait_law(1.0, r, service), service, 1.0)))(rate)
    assert np.isfinite(slope)
