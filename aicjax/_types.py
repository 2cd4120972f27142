# SPDX-License-Identifier: Apache-2.0
"""Array aliases and the axis vocabulary of the package.

Axis names: `config` (a model in one layout), `op` (operators of a pass), `point` (queries), `curve` and `knot`
(measured curves), `leaf` (measured points of a slice), `site` (shapes of a GEMM table).
"""

from jaxtyping import Array, Float, Int

FloatScalar = Float[Array, ""] | float
IntScalar = Int[Array, ""] | int

__all__ = ["Array", "Float", "FloatScalar", "Int", "IntScalar"]
