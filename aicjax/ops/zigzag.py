# SPDX-License-Identifier: Apache-2.0
"""Causal prefill on whole-prompt tables: what a cached prefix saves, and how context-parallel ranks share a prompt."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from aicjax._types import Array
from aicjax.interp.counts import ceil_div


class Chunks(NamedTuple):
    """The parts of a prompt that one rank computes, side by side: its first and its last.

    Without context parallelism the first part is the whole prompt, and the last does not count.

    Attributes:
        full: Length up to the end of each part [row, 2 * point].
        cached: Length before it [row, 2 * point].
        split: Whether the prompt is shared [row, 1].
    """

    full: Float[Array, "row parts"]
    cached: Float[Array, "row parts"]
    split: Bool[Array, "row 1"]

    def both(self, values: Float[Array, "row point"]) -> Float[Array, "row parts"]:
        """What the parts have in common, such as a batch."""
        return jnp.tile(values, 2)

    def uncached(self) -> Float[Array, "row parts"]:
        """Share of the causal triangle over `full` tokens that a part computes: `1 - (cached / full)^2`."""
        return (self.full - self.cached) * (self.full + self.cached) / (self.full * self.full)

    def total(self, parts_ms: Float[Array, "row parts"]) -> Float[Array, "row point"]:
        """Latency of a rank."""
        first, last = jnp.split(parts_ms, 2, 1)
        return first + jnp.where(self.split, last, 0.0)

    def worst(self, provenance: Int[Array, "row parts"]) -> Int[Array, "row point"]:
        """The worse provenance of the parts that count."""
        first, last = jnp.split(provenance, 2, 1)
        return jnp.where(self.split, jnp.maximum(first, last), first)


def chunks(new: Int[Array, "row point"], prefix: Int[Array, "row point"], cp: Int[Array, " row"]) -> Chunks:
    """First and last of the `2 cp` chunks of a prompt: the pairs of a zig-zag order, which all cost alike."""
    split = cp[:, None] > 1
    part = jnp.where(split, jnp.maximum(1, ceil_div(new, 2 * cp[:, None])), new)
    cached = jnp.concatenate([prefix, prefix + new - part], 1).astype(jnp.float32)
    return Chunks(cached + jnp.tile(part, 2).astype(jnp.float32), cached, split)
