# SPDX-License-Identifier: Apache-2.0
"""Estimates of the activation scales that static FP8 products save, from the points nearest in (tokens, k).

Both costs are traffic of `tokens * k` elements. Computing the scales costs what the one nearest point does, zeros
included, in proportion; applying them, what the two nearest do, as in `interp.estimate`.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._types import Array
from aicjax.interp.axis import PAD_KNOT, interval
from aicjax.interp.counts import pick
from aicjax.interp.curve_estimate import (
    CurveChoice,
    UtilizationCurves,
    bind_utilization_curves,
    curve_utilization,
    knot_patterns,
    nearest_curves,
    stack_choices,
)
from aicjax.interp.estimate import LEAST, TIE, log_ratio

ScaleTable = tuple[np.ndarray, np.ndarray, np.ndarray]  # knots of tokens, knots of k, latency [tokens, k]


class NearestCost(eqx.Module):
    """Cost of computing scales by the nearest point.

    Attributes:
        knots: Token counts [knot].
        count: Number of them.
        per_token_ms: Cost per token at each, at the product's k [row, knot].
    """

    knots: Float[Array, " knot"]
    count: Int[Array, ""]
    per_token_ms: Float[Array, "row knot"]


class NearestUtilization(eqx.Module):
    """Cost of applying scales by the two nearest points.

    Attributes:
        knots: Token counts [knot].
        curves: Elements of a point over its latency, a curve a measured k [1/ms].
        choice: Which of them can hold the nearest points [row].
        k: Elements per token; 0 for products that apply no scales [row].
    """

    knots: Float[Array, " knot"]
    curves: UtilizationCurves
    choice: CurveChoice
    k: Float[Array, " row"]


class ScaleEstimates(eqx.Module):
    """Estimated costs of each product with static scales.

    Attributes:
        compute: Cost of computing scales; None when nothing was measured.
        apply: Cost of applying them; None when nothing was measured.
        needed: Whether a product computes and whether it applies scales [table=2, row].
    """

    compute: NearestCost | None
    apply: NearestUtilization | None
    needed: Int[Array, "2 row"]


def bind_scale_estimates(
    compute: ScaleTable | None, apply: ScaleTable | None, k: np.ndarray, needed: np.ndarray, knots: int
) -> ScaleEstimates:
    """Estimates from whichever tables were measured.

    Args:
        compute, apply: The tables; None when not measured.
        k: `k` of each product [row].
        needed: Whether a product computes and whether it applies scales [table=2, row].
        knots: Length that token counts are padded to a multiple of.
    """
    return ScaleEstimates(
        None if compute is None else _bind_nearest(compute, k, knots),
        None if apply is None else _bind_utilization(apply, np.where(needed[1], k, 0.0), knots),
        needed.astype(np.int32),
    )


def _padded(knots: np.ndarray, bucket: int) -> np.ndarray:
    return np.pad(knots.astype(np.float32), (0, -knots.size % bucket), constant_values=PAD_KNOT)


def _bind_nearest(table: ScaleTable, k: np.ndarray, bucket: int) -> NearestCost:
    tokens, columns, latency = table
    gap = np.abs(np.log(columns) - np.log(np.maximum(k, LEAST))[:, None])
    near = gap.argmin(-1)
    per_token = (latency[:, near] / (tokens[:, None] * columns[near]) * k).T
    spare = ((0, 0), (0, -tokens.size % bucket))
    return NearestCost(
        _padded(tokens, bucket), np.array(tokens.size, np.int32), np.pad(per_token, spare).astype(np.float32)
    )


def _bind_utilization(table: ScaleTable, k: np.ndarray, bucket: int) -> NearestUtilization | None:
    tokens, columns, latency = table
    usable = (latency > 0) & (tokens[:, None] * columns > 0)
    if not usable.any():
        return None
    elements = np.divide(tokens[:, None] * columns, latency, out=np.full(latency.shape, np.nan), where=usable)
    knot, column = usable.any(1), usable.any(0)
    tokens, columns, curves = tokens[knot], columns[column], elements[knot][:, column].T
    logs = np.log(columns)
    span = np.ptp(logs) or 1.0
    query = np.clip((np.log(np.maximum(k, LEAST)) - logs[0]) / span, 0.0, 1.0)
    away = ((logs - logs[0]) / span - query[:, None]) ** 2
    patterns = knot_patterns(curves)
    near = [nearest_curves(row, patterns) for row in away]
    choices = [(at, row[at]) for at, row in zip(near, away, strict=True)]
    ranges = [(float(tokens[0]), float(tokens[-1]))] * k.size
    spare = ((0, 0), (0, -tokens.size % bucket))
    bound = bind_utilization_curves(np.pad(curves, spare, constant_values=np.nan))
    choice = stack_choices(choices, ranges, rows=k.size)
    return NearestUtilization(_padded(tokens, bucket), bound, choice, k.astype(np.float32))


def estimated_scale_cost(
    estimates: ScaleEstimates, tokens: Float[Array, "row point"]
) -> tuple[Float[Array, "row point"], Float[Array, "row point"]]:
    """Cost of computing and of applying scales [ms]; 0 where a product does not, NaN where nothing was measured."""
    compute, apply = estimates.compute, estimates.apply
    missing = jnp.full(tokens.shape, jnp.nan, tokens.dtype)
    costs = (
        missing if compute is None else _nearest_cost(compute, tokens),
        missing if apply is None else _apply_cost(apply, tokens),
    )
    first, second = (
        jnp.where(used[:, None] > 0, cost, 0.0) for used, cost in zip(estimates.needed, costs, strict=True)
    )
    return first, second


def _nearest_cost(cost: NearestCost, tokens):
    """Cost at the token count nearest in its logarithm, the lower of two, in proportion to tokens."""
    at = interval(cost.knots, tokens)
    low, high = jnp.maximum(at - 1, 0), jnp.minimum(at, cost.count - 1)
    below, above = (jnp.abs(log_ratio(pick(cost.knots, knot), jnp.maximum(tokens, LEAST))) for knot in (low, high))
    nearest = jnp.where(above < below * (1 - TIE), high, low)
    return pick(cost.per_token_ms, jnp.arange(tokens.shape[0])[:, None], nearest) * tokens


def _apply_cost(cost: NearestUtilization, tokens):
    utilization = curve_utilization(cost.curves, cost.knots, cost.choice, tokens)
    return cost.k[:, None] * tokens / utilization
