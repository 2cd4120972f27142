# SPDX-License-Identifier: Apache-2.0
"""Fleets as users of predictors asked for them: what their questions' answers must be.

Sources: threads of AIConfigurator, inference-sim, vLLM, AIPerf, inference-perf and InferenceX.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax.fleet import lengths
from aicjax.fleet.capacity import PoolLoad, Target, Verdict, pool_load
from aicjax.fleet.cost import cost, tokens_per_usd
from aicjax.fleet.pool_queue import simulate_queues
from aicjax.fleet.presets import manual_profile, preset
from aicjax.fleet.profile import Profile
from aicjax.fleet.service_times import ServiceLaw, mean_prefill_s, service_law
from aicjax.fleet.slot_queue import slot_waits
from aicjax.fleet.statistics import after_warm_up, mean_interval, nearest_rank
from aicjax.fleet.step_queue import simulate_steps
from aicjax.fleet.step_run import StepLimits, open_load
from aicjax.fleet.step_times import profile_steps
from aicjax.fleet.waiting import mean_wait_s, wait_law

pytestmark = pytest.mark.as_shipped

STEP_S = 0.1
CONSTANT = ServiceLaw(jnp.array([STEP_S]), jnp.array([STEP_S]), jnp.ones(1))
MIXED, ALIKE = lengths.from_pairs([1000, 7000], [1, 1]), lengths.constant(4000, 1)


def figures_ms(ttft_s: np.ndarray) -> list[float]:
    """Mean, largest and nearest-rank median."""
    median = nearest_rank(ttft_s, 0.5)
    assert median is not None
    return [1e3 * float(value) for value in (ttft_s.mean(), ttft_s.max(), median)]


class TestSimultaneousArrivals:
    """Requests prefilled one at a time in 100 ms each: eight that come at once, and eight that come alone."""

    GAPS_S = jnp.stack([jnp.zeros(8), jnp.ones(8)])

    def test_slots(self):
        ttft_s = np.asarray(slot_waits(self.GAPS_S, jnp.full((2, 8), STEP_S), 1)) + STEP_S
        assert figures_ms(ttft_s[0]) == pytest.approx([450, 800, 400])
        assert figures_ms(ttft_s[1]) == pytest.approx([100, 100, 100])

    def test_steps(self):
        serial = manual_profile("serial", base_s=STEP_S, per_sequence_s=0.0, price_per_hour=1.0)
        limits = StepLimits(slots=8, kv_blocks=4096, block_tokens=16, step_tokens=520)
        tokens = jnp.full((2, 8), 512, jnp.int32)
        run = simulate_steps(profile_steps(serial), limits, open_load(tokens, jnp.ones_like(tokens), self.GAPS_S))
        assert figures_ms(np.asarray(run.ttft_s)[0]) == pytest.approx([450, 800, 400])
        assert figures_ms(np.asarray(run.ttft_s)[1]) == pytest.approx([100, 100, 100])


@jax.jit
def one_server(rate_per_s: jax.Array) -> tuple[PoolLoad, jax.Array]:
    """State and mean wait of a single server with constant service."""
    return pool_load(1.0, 1.0, rate_per_s, CONSTANT, Target(1.0)), mean_wait_s(wait_law(1.0, rate_per_s, CONSTANT))


class TestConstantServiceAtOneServer:
    """Poisson arrivals of 8/s and service of 0.1 s: 80 % busy, mean wait 0.2 s."""

    def test_law(self):
        load, mean_s = one_server(jnp.asarray(8.0))
        assert load.utilization == pytest.approx(0.8)
        assert mean_s == pytest.approx(0.2, rel=0.02)

    def test_simulation(self):
        sample = simulate_queues(jax.random.key(1), CONSTANT, 8.0, 1, requests=25_000, seeds=10)
        mean = mean_interval(after_warm_up(sample.wait_s[0]))
        assert mean is not None
        assert mean.value == pytest.approx(0.2, rel=0.05)
        assert mean.low < 0.2 < mean.high
        assert sample.utilization == pytest.approx(0.8)


@pytest.mark.parametrize("rate_per_s", [10.0, 15.0])
def test_overload_is_a_verdict(rate_per_s: float):
    load, mean_s = one_server(jnp.asarray(rate_per_s))
    assert load.verdict == Verdict.OVERLOADED
    assert load.utilization >= 1
    assert np.isinf(load.ttft_s)
    assert np.isinf(mean_s)


class TestMixtureIsNotItsMean:
    """Half the prompts of 1000 tokens and half of 7000, against all of 4000."""

    @pytest.mark.parametrize(("token_s", "pair_s", "ratio"), [(1e-5, 0.0, 1.0), (0.0, 1e-8, 1.5625)])
    @pytest.mark.parametrize("chunk_tokens", [500.0, 512.0, 8192.0])
    def test_arithmetic(self, token_s: float, pair_s: float, ratio: float, chunk_tokens: float):
        """Attention grows with the square of the prompt, the rest in proportion."""
        room = 8192.0, chunk_tokens, 16.0, 65536.0
        profile = Profile(0.0, 0.0, *room, 1.0, prefill_token_s=token_s, prefill_pair_s=pair_s)
        mixed, alike = (mean_prefill_s(service_law(profile, law, 8192.0)) for law in (MIXED, ALIKE))
        assert mixed / alike == pytest.approx(ratio, rel=1e-4)

    def test_tail_is_that_of_the_long_prompts(self):
        mixed, alike = (service_law(preset("a100"), law, 8192.0).prefill_s.max() for law in (MIXED, ALIKE))
        assert mixed > 1.5 * alike


def test_cost_is_stated_for_input_output_and_all_tokens():
    """20 USD/h and 6000 output tokens/s: 0.9259 USD for a million output tokens."""
    paid = cost(20.0, 54_000.0, 6_000.0, prefill_share=0.3)
    assert paid.per_million_output == pytest.approx(0.9259, abs=5e-5)
    assert paid.per_million_input == pytest.approx(20 / 3600 / 54_000 * 1e6)
    assert paid.per_million_total == pytest.approx(20 / 3600 / 60_000 * 1e6)
    assert tokens_per_usd(paid.per_million_output) == 1e6 / paid.per_million_output
    assert paid.input_price * 54_000 + paid.output_price * 6_000 == pytest.approx(20 / 3600 * 1e6)
