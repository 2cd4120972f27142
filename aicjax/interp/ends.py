# SPDX-License-Identifier: Apache-2.0
"""Measured curves of tokens with a roofline of one's own, held beyond each end.

An end keeps the utilisation of the last point measured there; beyond the upper one latency may go on along its line.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.interp.curve import SizeCurves, last_slope, size_latency, stack_size_curves

KNOT_BUCKET = 32

Curve = tuple[np.ndarray, np.ndarray]
NO_CURVE: Curve = (np.zeros(0), np.zeros(0))


class EndCurves(eqx.Module):
    """Latency over tokens, one curve a row, with a roofline of one's own.

    Attributes:
        points: The measured points of each curve.
        first_utilization: Roofline over latency of the first point [row]; NaN where nothing may be held.
        last_utilization: The same of the last point [row].
        straight: Whether latency beyond the last point goes on along the line of `points` instead [row].
    """

    points: SizeCurves
    first_utilization: Float[Array, " row"]
    last_utilization: Float[Array, " row"]
    straight: Bool[Array, " row"]


def bind_end_curves(
    curves: Sequence[Curve], sol_ms: Sequence[np.ndarray], *, rows: int, straight: bool = False
) -> EndCurves:
    """Curves padded to `rows`, on the host in float64. A curve of one point answers nothing below it.

    Args:
        curves: `(tokens, latency_ms)` of each row, ascending; `NO_CURVE` where nothing was measured.
        sol_ms: Roofline of the same points.
        rows: Padded number of rows.
        straight: Whether curves of two points or more go on along the line of their last octave, or of that of their
            roofline where it is steeper.
    """
    first, last = np.full(rows, np.nan, np.float32), np.full(rows, np.nan, np.float32)
    for row, ((_, latency), sol) in enumerate(zip(curves, sol_ms, strict=True)):
        if latency.size > 1 and latency[0] > 0:
            first[row] = sol[0] / latency[0]
        if latency.size and latency[-1] > 0:
            last[row] = sol[-1] / latency[-1]
    longest = max([tokens.size for tokens, _ in curves] + [1])
    points = stack_size_curves(list(curves), rows, -(-longest // KNOT_BUCKET) * KNOT_BUCKET, straight=straight)
    lines = np.zeros(rows, bool)
    if straight:
        lines[: len(curves)] = [tokens.size > 1 for tokens, _ in curves]
        roofs = [last_slope(t, sol) if t.size > 1 else 0.0 for (t, _), sol in zip(curves, sol_ms, strict=True)]
        steeper = np.maximum(points.slope, np.pad(np.array(roofs, np.float32), (0, rows - len(roofs))))
        points = eqx.tree_at(lambda p: p.slope, points, steeper)
    return EndCurves(points, first, last, lines)


def end_latency(
    curves: EndCurves, tokens: Float[Array, "row point"], sol_ms: Float[Array, "row point"]
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each row at its own token counts and how it was obtained.

    Args:
        curves: Bound curves.
        tokens: Queries.
        sol_ms: Roofline of each query; one that is not positive cannot be held.
    """
    latency, code = size_latency(curves.points, tokens)
    below = tokens < jnp.asarray(curves.points.size)[:, :1]
    utilization = jnp.where(below, curves.first_utilization[:, None], curves.last_utilization[:, None])
    outside = code == Provenance.HELD
    outside = outside & (below | ~curves.straight[:, None])
    usable = outside & (utilization > 0) & (sol_ms > 0)
    held = sol_ms / jnp.where(usable, utilization, 1.0)
    latency = jnp.where(outside, jnp.where(usable, held, jnp.nan), latency)
    return latency, jnp.where(outside & ~usable, Provenance.MISSING, code).astype(jnp.int32)
