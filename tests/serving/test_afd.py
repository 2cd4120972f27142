# SPDX-License-Identifier: Apache-2.0
"""The pipeline between attention and feed-forward pools: its definition in plain Python, bounds and gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.serving.afd import (
    PIPELINES,
    LayerTimes,
    balance,
    chosen_cycle,
    decode_step_ms,
    layer_cycle,
    prefill_step_ms,
)

MS = st.floats(1e-3, 1e2)
TIMES = st.tuples(MS, MS, MS, MS)
FLOAT32 = 1e-5  # relative, of short sums


def plain_cycle(times: tuple[float, ...], microbatches: int, pipeline: str) -> tuple[float, bool]:
    """The beat of one layer as it is defined, and whether transfers are hidden."""
    attention, ffn, there, back = times
    if pipeline == "serial":
        return attention + there + ffn + back, False
    if pipeline == "optimistic" and microbatches >= 2 + (there + back) / max(attention, ffn):
        return max(attention, ffn, there + back), there + back <= max(attention, ffn)
    return max(attention + there, ffn + back), False


def layer(times: tuple[float, ...]) -> LayerTimes:
    return LayerTimes(*(np.array([ms]) for ms in times))


def first(values: Any) -> Any:
    """The only one of several values."""
    return np.asarray(values)[0]


def clear(times: tuple[float, ...], microbatches: int) -> bool:
    """Whether no comparison hangs on a rounding."""
    attention, ffn, there, back = times
    busy, network = max(attention, ffn), there + back
    return abs((microbatches - 2) * busy - network) > 1e-3 * network and abs(busy - network) > 1e-3 * network


@pytest.mark.parametrize("pipeline", PIPELINES)
@given(TIMES, st.integers(1, 6), st.integers(1, 96))
def test_steps_are_those_of_the_definition(pipeline, times, microbatches, layers):
    if not clear(times, microbatches):
        return
    cycle = layer_cycle(layer(times), microbatches, pipeline)
    beat, hidden = plain_cycle(times, microbatches, pipeline)
    assert first(cycle.cycle_ms) == pytest.approx(beat, rel=FLOAT32)
    assert bool(first(cycle.hidden)) == hidden
    step = first(decode_step_ms(layer(times), cycle, layers, microbatches))
    assert step == pytest.approx(sum(times) + beat * (microbatches * layers - 1), rel=FLOAT32)
    assert first(prefill_step_ms(cycle, layers)) == pytest.approx(layers * beat, rel=FLOAT32)


@given(TIMES, st.integers(1, 6))
def test_more_overlap_is_never_slower_and_no_pool_is_outrun(times, microbatches):
    optimistic, conservative, serial = (
        first(layer_cycle(layer(times), microbatches, pipeline).cycle_ms) for pipeline in PIPELINES
    )
    slack = 1 + FLOAT32
    assert max(times[:2]) <= conservative * slack
    assert conservative <= serial * slack
    assert max(times[:2]) <= optimistic * slack
    assert optimistic <= max(conservative, times[2] + times[3]) * slack


def test_one_call_serves_candidates_and_samples():
    times = LayerTimes(*(jnp.arange(1.0, 13.0).reshape(3, 4) * scale for scale in (1.0, 2.0, 0.1, 0.1)))
    microbatches = jnp.array([[2.0], [3.0], [4.0]])
    together = decode_step_ms(times, layer_cycle(times, microbatches, "optimistic"), 10.0, microbatches)
    for candidate in range(3):
        own = LayerTimes(*(np.asarray(values)[candidate] for values in times))
        count = microbatches[candidate]
        alone = decode_step_ms(own, layer_cycle(own, count, "optimistic"), 10.0, count)
        np.testing.assert_allclose(np.asarray(together)[candidate], alone, rtol=FLOAT32)


def test_step_is_differentiable_in_the_layer_times():
    def step(attention_ms, ffn_ms):
        times = LayerTimes(attention_ms, ffn_ms, jnp.float32(0.1), jnp.float32(0.1))
        return decode_step_ms(times, layer_cycle(times, 3.0, "optimistic"), 10.0, 3.0)

    by_attention, by_ffn = jax.grad(step, argnums=(0, 1))(jnp.float32(1.0), jnp.float32(2.0))
    assert (float(by_attention), float(by_ffn)) == (1.0, 30.0)


def test_balance_is_one_for_equal_pools():
    assert first(balance(layer((2.0, 2.0, 1.0, 1.0)))) == 1.0
    assert first(balance(layer((1.0, 4.0, 1.0, 1.0)))) == 0.25


def test_candidates_may_differ_in_their_pipeline():
    times = LayerTimes(*(np.full(len(PIPELINES), ms, np.float32) for ms in (2.0, 1.0, 0.5, 0.5)))
    together = chosen_cycle(times, np.float32(3.0), np.arange(len(PIPELINES)))
    alone = [layer_cycle(times, np.float32(3.0), name) for name in PIPELINES]
    assert together.cycle_ms.tolist() == [float(np.asarray(cycle.cycle_ms)[at]) for at, cycle in enumerate(alone)]
    assert together.hidden.tolist() == [True, False, False]
