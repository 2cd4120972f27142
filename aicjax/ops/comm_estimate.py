# SPDX-License-Identifier: Apache-2.0
"""Estimates of collectives: the utilisation of the two nearest message sizes of the group that was collected.

A group larger than any collected borrows from the largest: its own roofline then accounts for the difference.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.interp.axis import PAD_KNOT
from aicjax.interp.curve_estimate import (
    CurveChoice,
    UtilizationCurves,
    bind_utilization_curves,
    curve_utilization,
    stack_choices,
)
from aicjax.ops.estimated_rows import fill_rows, take_rows

ROW_BUCKET = 8
KNOT_BUCKET = 32


class LentCurve(NamedTuple):
    """Measured sizes of one group.

    Attributes:
        size: Elements, ascending [knot].
        utilization: Roofline of that group over latency [knot]; 0 where there is none.
    """

    size: np.ndarray
    utilization: np.ndarray


class CommEstimates(eqx.Module):
    """Collectives that no curve answers for, with the points that then answer.

    Attributes:
        row: Which collective each estimate is for; beyond all on padding [estimate].
        choice: Its curve [estimate].
        curves: Utilisation over elements.
        knots: Sizes that the curves share [knot].
    """

    row: Int[Array, " estimate"]
    choice: CurveChoice
    curves: UtilizationCurves
    knots: Float[Array, " knot"]


def bind_comm_estimates(lent: Sequence[LentCurve | None], *, rows: int) -> CommEstimates | None:
    """Estimates for the collectives that somebody lends to, padded to `rows` collectives; None when nobody does."""
    usable = [
        (row, curve.size[at], curve.utilization[at])
        for row, curve in enumerate(lent)
        if curve is not None and (at := curve.utilization > 0).any()
    ]
    if not usable:
        return None
    knots = np.unique(np.concatenate([size for _, size, _ in usable]))
    count = -(-len(usable) // ROW_BUCKET) * ROW_BUCKET
    dense = np.full((count, -(-knots.size // KNOT_BUCKET) * KNOT_BUCKET), np.nan)
    for curve, (_, size, utilization) in enumerate(usable):
        dense[curve, np.searchsorted(knots, size)] = utilization
    choices = [(np.array([curve]), np.zeros(1)) for curve in range(len(usable))]
    return CommEstimates(
        row=np.array([row for row, *_ in usable] + [rows] * (count - len(usable)), np.int32),
        choice=stack_choices(choices, [(size[0], size[-1]) for _, size, _ in usable], rows=count),
        curves=bind_utilization_curves(dense),
        knots=np.pad(knots.astype(np.float32), (0, dense.shape[1] - knots.size), constant_values=PAD_KNOT),
    )


def with_comm_estimates(
    estimates: CommEstimates,
    size: Float[Array, "row point"],
    sol_ms: Float[Array, "row point"],
    latency_ms: Float[Array, "row point"],
    code: Int[Array, "row point"],
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency and provenance of all collectives, with an estimate wherever a row that has one has no answer."""
    sizes, roof = (take_rows(values, estimates.row) for values in (size, sol_ms))
    utilization = curve_utilization(estimates.curves, estimates.knots, estimates.choice, sizes)
    near = jnp.full(estimates.row.shape, Provenance.EMPIRICAL, jnp.int32)
    return fill_rows(estimates.row, roof, utilization, near, latency_ms, code)
