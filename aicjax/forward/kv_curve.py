# SPDX-License-Identifier: Apache-2.0
"""KV cache of one sequence as a function of its length, for every layout at once, and its inverse."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from aicjax.models import KvCache

_LENGTH_BITS = 40  # beyond any context: a cache that still fits there has stopped growing


@dataclass(frozen=True)
class KvCurve:
    """Bytes of one sequence: `state + sum over terms of rate * (min(length, window) // stride)`.

    Attributes:
        rate_bytes: Bytes of one entry, float64 [config, term].
        window: Tokens kept, int64 [config, term].
        stride: Tokens that share one entry, int64 [config, term].
        state_bytes: Part that does not grow, float64 [config].
        context_length: Longest sequence the model accepts [tokens].
    """

    rate_bytes: np.ndarray
    window: np.ndarray
    stride: np.ndarray
    state_bytes: np.ndarray
    context_length: int

    @classmethod
    def stack(cls, caches: Sequence[KvCache], context_length: int) -> "KvCurve":
        """The curves of one model in several layouts; they have the same terms."""
        terms = [[(term.rate_bytes, term.window, term.stride) for term in cache.terms] for cache in caches]
        rate, window, stride = (np.array([[term[place] for term in row] for row in terms]) for place in range(3))
        state = np.array([cache.state_bytes for cache in caches], dtype=np.float64)
        return cls(rate.astype(np.float64), window, stride, state, context_length)

    def bytes(self, length: ArrayLike) -> np.ndarray:
        """Bytes of one sequence, float64 [config, point].

        Args:
            length: Tokens, int [point] or [config, point].
        """
        points = np.atleast_1d(np.maximum(length, 0))[..., None, :]
        entries = np.minimum(points, self.window[..., None]) // self.stride[..., None]
        return self.state_bytes[:, None] + (self.rate_bytes[..., None] * entries).sum(axis=-2)

    def longest(self, budget_bytes: np.ndarray) -> np.ndarray:
        """Longest sequence that fits a budget [tokens], int64 [config]; the context length when any would.

        Args:
            budget_bytes: Room for the cache, float64 [config].
        """
        length = np.zeros(len(self.state_bytes), dtype=np.int64)
        for bit in reversed(range(_LENGTH_BITS)):
            trial = length + (1 << bit)
            length = np.where(self.bytes(trial[:, None])[:, 0] <= budget_bytes, trial, length)
        return np.where(length == (1 << _LENGTH_BITS) - 1, self.context_length, length)
