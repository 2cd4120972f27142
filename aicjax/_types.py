# SPDX-License-Identifier: Apache-2.0
"""Array aliases and the axis vocabulary of the package.

Axis names: `config` (a model in one layout), `row` (distinct operators), `point` (queries), `curve` and `knot`
(measured curves), `leaf` (measured points of a slice), `site` (shapes of a GEMM table).
"""

from typing import Protocol

import jax
import numpy as np
from jaxtyping import Float

# What kernels take: bound on the host as numpy, traced by `jit` as jax arrays.
Array = jax.Array | np.ndarray
FloatScalar = Float[Array, ""] | float


class Device(Protocol):
    """A device of jax, as far as it matters here."""

    @property
    def platform(self) -> str:
        """Such as `cpu` or `gpu`."""
        ...

    @property
    def device_kind(self) -> str:
        """Its model."""
        ...


__all__ = ["Array", "Device", "FloatScalar"]
