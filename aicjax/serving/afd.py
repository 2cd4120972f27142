# SPDX-License-Identifier: Apache-2.0
"""Attention and feed-forward layers on GPUs of their own: the ping-pong pipeline of microbatches between two pools.

Written for any shape: candidates and sampled decode steps broadcast. Pure: use it inside `jit`, `vmap` and `grad`.
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from aicjax._types import FloatScalar

Values = Float[Array | np.ndarray, "..."] | np.floating
Pipeline = Literal["optimistic", "conservative", "serial"]
PIPELINES: tuple[Pipeline, ...] = ("optimistic", "conservative", "serial")
_STAGES = 2.0  # microbatches that keep both pools busy while nothing travels


class LayerTimes(NamedTuple):
    """One layer of one microbatch [ms]; all of one shape.

    Attributes:
        attention_ms: On an attention worker.
        ffn_ms: In the feed-forward pool.
        to_ffn_ms: Transfer from attention to feed-forward.
        to_attention_ms: Transfer back.
    """

    attention_ms: Values
    ffn_ms: Values
    to_ffn_ms: Values
    to_attention_ms: Values

    @property
    def transfer_ms(self) -> Values:
        """Both ways."""
        return self.to_ffn_ms + self.to_attention_ms

    @property
    def total_ms(self) -> Values:
        """A microbatch alone through a layer."""
        return self.attention_ms + self.ffn_ms + self.transfer_ms


class Cycle(NamedTuple):
    """The beat of the pipeline.

    Attributes:
        cycle_ms: Time between two microbatches at a layer.
        hidden: Whether transfers never make a pool wait.
    """

    cycle_ms: Values
    hidden: Bool[Array | np.ndarray, "..."]


def layer_cycle(times: LayerTimes, microbatches: FloatScalar | Values, pipeline: Pipeline) -> Cycle:
    """The beat of the pipeline.

        serial        attention + ffn + transfers
        conservative  max(attention + to ffn, ffn + to attention): a pool waits for what it sends
        optimistic    max(attention, ffn, transfers): a stage of their own, where microbatches fill it:
                      M >= 2 + transfers / max(attention, ffn); else as conservative

    Args:
        times: A layer.
        microbatches: Microbatches M in flight.
        pipeline: Which of the three. Static.
    """
    never = jnp.zeros(jnp.shape(times.attention_ms), bool)
    if pipeline == "serial":
        return Cycle(times.total_ms, never)
    waiting = jnp.maximum(times.attention_ms + times.to_ffn_ms, times.ffn_ms + times.to_attention_ms)
    if pipeline == "conservative":
        return Cycle(waiting, never)
    busy = jnp.maximum(times.attention_ms, times.ffn_ms)
    filled = (microbatches - _STAGES) * busy >= times.transfer_ms
    cycle = jnp.where(filled, jnp.maximum(busy, times.transfer_ms), waiting)
    return Cycle(cycle, filled & (times.transfer_ms <= busy))


def chosen_cycle(times: LayerTimes, microbatches: Values, pipeline: Int[Array | np.ndarray, "..."]) -> Cycle:
    """The beat of candidates that differ in their pipeline.

    Args:
        times: A layer.
        microbatches: Microbatches in flight.
        pipeline: Position in `PIPELINES`.
    """
    found = layer_cycle(times, microbatches, PIPELINES[0])
    for at, name in enumerate(PIPELINES[1:], start=1):
        other = layer_cycle(times, microbatches, name)
        found = Cycle(*(jnp.where(pipeline == at, new, old) for new, old in zip(other, found, strict=True)))
    return found


def may_overlap(microbatches: int) -> bool:
    """Whether transfers that take any time can be a stage of their own."""
    return microbatches > _STAGES


def decode_step_ms(
    times: LayerTimes, cycle: Cycle, layers: FloatScalar | Values, microbatches: FloatScalar | Values
) -> Values:
    """One decode step of all microbatches: the first fills the pipeline, the others follow at its beat; the TPOT."""
    return times.total_ms + cycle.cycle_ms * (microbatches * layers - 1.0)


def prefill_step_ms(cycle: Cycle, layers: FloatScalar | Values) -> Values:
    """One prefill of a microbatch at the beat of the pipeline; the TTFT."""
    return layers * cycle.cycle_ms


def balance(times: LayerTimes) -> Values:
    """How evenly the pools work: the shorter of their times over the longer, 1 where they are the same."""
    longer = jnp.maximum(times.attention_ms, times.ffn_ms)
    return jnp.minimum(times.attention_ms, times.ffn_ms) / jnp.where(longer > 0, longer, 1.0)
