# SPDX-License-Identifier: Apache-2.0
"""Step times on other hardware at the same utilisation: what a faster memory, peak or link would be worth.

Measured latencies are facts of one GPU. Read as a roofline over a utilisation, they move to other hardware as their
rooflines do, whichever way a table answered: at a point, between points, or beyond them. Operators whose latency is
itself a formula in the hardware (memory traffic, point to point) follow that formula.
"""

import jax.numpy as jnp
from jaxtyping import Float

from aicjax._types import Array, FloatScalar
from aicjax.constants import OpConstants
from aicjax.forward.steps import (
    BoundArrays,
    RowTimes,
    StepQueries,
    StepTimes,
    row_times,
    sequence_points,
    summed_times,
    token_counts,
)
from aicjax.ops.roofline import Hardware
from aicjax.ops.sequences import sequence_paces
from aicjax.ops.tokens import token_paces


def scaled_step_times(
    bound: BoundArrays,
    queries: StepQueries,
    constants: OpConstants,
    hardware: Hardware,
    *,
    unbounded: FloatScalar | float = 1.0,
    roofline: bool = False,
) -> StepTimes:
    """`step_times` with every latency multiplied by the ratio of its roofline on `hardware` to that on the bound one.

    Pure, and differentiable in `hardware`, `constants` and `unbounded`.

    Args:
        bound, queries, constants, roofline: As in `step_times`.
        hardware: The other hardware.
        unbounded: Factor on the operators that have no roofline: exchanges of tokens between experts over many GPUs.
    """
    sequences, tokens = row_times(bound, queries, constants, roofline=roofline)
    counts = token_counts(bound, queries)

    def paces(hardware: Hardware) -> list[Float[Array, "row point"]]:
        parts = [sequence_paces(rows, points, hardware, constants) for rows, points in sequence_points(bound, queries)]
        return [*parts, token_paces(bound.tokens, *counts, hardware, constants, roofline=roofline)]

    scaled = [
        _scaled(rows, before, after, unbounded)
        for rows, before, after in zip([*sequences, tokens], paces(bound.hardware), paces(hardware), strict=True)
    ]
    return summed_times(bound, queries, scaled[:-1], scaled[-1])


def _scaled(rows: RowTimes, before, after, unbounded) -> RowTimes:
    """Latencies times the ratio of paces; nothing known multiplies nothing, lest NaN reach a gradient."""
    moves, known = before > 0, ~jnp.isnan(rows.latency_ms)
    ratio = jnp.where(moves, after, 1.0) / jnp.where(moves, before, 1.0)
    ratio = jnp.where(jnp.isnan(before), unbounded, ratio)
    return RowTimes(jnp.where(known, jnp.where(known, rows.latency_ms, 0.0) * ratio, jnp.nan), rows.provenance)
