# SPDX-License-Identifier: Apache-2.0
"""The KV cache of one sequence as a curve of its length: a record of coefficients that every attention kind fits."""

from dataclasses import dataclass

UNBOUNDED = 2**62  # window of attention that sees every token


@dataclass(frozen=True)
class KvTerm:
    """One share of the cache: `rate_bytes * (min(length, window) // stride)`.

    Attributes:
        rate_bytes: Bytes of one cached entry on one GPU, summed over the layers of the kind.
        window: Tokens kept, `UNBOUNDED` for full attention.
        stride: Tokens that share one entry, above 1 for compressed attention.
    """

    rate_bytes: float
    window: int = UNBOUNDED
    stride: int = 1


@dataclass(frozen=True)
class KvCache:
    """Bytes of one sequence on one GPU: a part that does not grow and terms that do.

    Attributes:
        terms: Growing parts.
        state_bytes: Recurrent state, whatever the length.
    """

    terms: tuple[KvTerm, ...]
    state_bytes: float = 0.0
