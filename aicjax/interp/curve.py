# SPDX-License-Identifier: Apache-2.0
"""Measured curves: of one size, with a roofline proportional to it; and of tokens, with a roofline of one's own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.interp.axis import PAD_KNOT, enclosing, interval, neighbour_keys
from aicjax.interp.counts import pick

TAIL = 3  # boundary points whose median utilisation holds a token curve beyond its range


class SizeCurves(eqx.Module):
    """Latency over message size, one curve a row.

    Attributes:
        size: Collected sizes, ascending, padded with `PAD_KNOT` [row, knot].
        latency_ms: Latency there [row, knot].
        count: Collected points of each curve [row]; 0 means that nothing was collected.
    """

    size: Float[Array, "row knot"]
    latency_ms: Float[Array, "row knot"]
    count: Int[Array, " row"]


def stack_size_curves(curves: list[tuple[np.ndarray, np.ndarray]], rows: int, knots: int) -> SizeCurves:
    """Curves `(sizes, latencies)` as one padded array."""
    size = np.full((rows, knots), PAD_KNOT, np.float32)
    latency = np.zeros((rows, knots), np.float32)
    count = np.zeros(rows, np.int32)
    for row, (sizes, latencies) in enumerate(curves):
        size[row, : sizes.size], latency[row, : sizes.size], count[row] = sizes, latencies, sizes.size
    return SizeCurves(size, latency, count)


def size_latency(
    curves: SizeCurves, size: Float[Array, "row point"]
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each row at its own sizes, and how it was obtained.

    Linear between points. Beyond the range the boundary's utilisation holds, so latency grows (and below the
    smallest size shrinks) in proportion to size. Size 0 has no roofline and no answer.
    """
    return jax.vmap(_one_size_curve)(curves.size, curves.latency_ms, curves.count, size)


def _one_size_curve(knots, latency_ms, count, size):
    at = interval(knots, size)
    low = jnp.clip(at - 1, 0, jnp.maximum(count - 1, 0))
    high = jnp.clip(at, 0, jnp.maximum(count - 1, 0))
    below, at_below = pick(knots, low), pick(latency_ms, low)
    exact = (at > 0) & (below == size)
    inside = (at > 0) & (at < count)
    span = jnp.where(inside, pick(knots, high) - below, 1.0)
    between = at_below + (pick(latency_ms, high) - at_below) * (size - below) / span
    held = at_below * (size / below)
    value = jnp.where(exact, at_below, jnp.where(inside, between, held))
    found = (count > 0) & (exact | inside | ((size > 0) & (at_below > 0)))
    code = jnp.where(exact, Provenance.EXACT, jnp.where(inside, Provenance.INTERPOLATED, Provenance.HELD))
    return jnp.where(found, value, jnp.nan), jnp.where(found, code, Provenance.MISSING).astype(jnp.int32)


class TokenCurves(eqx.Module):
    """Latency over tokens, one curve a measured site, on shared knots.

    Attributes:
        latency_ms: Latency [curve, knot]; NaN where a curve has no point.
        lower, upper: A curve's own keys around each interval of the knots [curve, knot + 1].
        first, last: First and last collected token count of each curve [curve].
        low_utilization, high_utilization: Median utilisation of the `TAIL` points at each end [curve]; NaN when the
            end cannot be held.
    """

    latency_ms: Float[Array, "curve knot"]
    lower: Int[Array, "curve interval"]
    upper: Int[Array, "curve interval"]
    first: Float[Array, " curve"]
    last: Float[Array, " curve"]
    low_utilization: Float[Array, " curve"]
    high_utilization: Float[Array, " curve"]


def bind_token_curves(knots: np.ndarray, latency_ms: np.ndarray, sol_ms: np.ndarray) -> TokenCurves:
    """Curves on shared knots with their end utilisations, on the host in float64.

    Args:
        knots: Token counts, ascending [knot].
        latency_ms: Latency [curve, knot], NaN where not collected.
        sol_ms: Roofline of the same points [curve, knot].
    """
    measured = np.isfinite(latency_ms)
    lower, upper = neighbour_keys(measured)
    position = np.where(measured, np.arange(knots.size), -1)
    rank_up = np.cumsum(measured, axis=-1)
    rank_down = rank_up[:, -1:] - rank_up + 1
    ends = []
    for rank in (rank_up, rank_down):
        tail = measured & (rank <= TAIL) & (latency_ms > 0) & (sol_ms > 0)
        ends.append(_masked_median(np.divide(sol_ms, latency_ms, out=np.full(latency_ms.shape, np.nan), where=tail)))
    return TokenCurves(
        latency_ms=latency_ms.astype(np.float32),
        lower=lower,
        upper=upper,
        first=knots[np.where(measured.any(-1), measured.argmax(-1), 0)].astype(np.float32),
        last=knots[np.maximum(position.max(-1), 0)].astype(np.float32),
        low_utilization=ends[0].astype(np.float32),
        high_utilization=ends[1].astype(np.float32),
    )


def _masked_median(values: np.ndarray) -> np.ndarray:
    """Median of the finite entries of each row; NaN where there is none."""
    if values.shape[-1] == 0:
        return np.full(values.shape[:-1], np.nan)
    count = np.isfinite(values).sum(-1)
    ordered = np.sort(values, axis=-1)  # NaN last
    middle = np.maximum(count - 1, 0)
    low = np.take_along_axis(ordered, (middle // 2)[..., None], -1)[..., 0]
    high = np.take_along_axis(ordered, ((middle + 1) // 2)[..., None], -1)[..., 0]
    return np.where(count > 0, (low + high) / 2, np.nan)


def token_utilization(
    curves: TokenCurves,
    knots: Float[Array, " knot"],
    curve: Int[Array, "*shape"],
    tokens: Float[Array, "*shape"],
    at: Int[Array, "*shape"],
    sol_ms: Float[Array, "*shape"],
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"], Int[Array, "*shape"]]:
    """Latency and utilisation of measured curves at token counts, and how they were obtained.

    Args:
        curves: All curves in use.
        knots: Their shared knots.
        curve: Which curve each query reads.
        tokens: Queries.
        at: `interval(knots, tokens)`, computed once for all curves.
        sol_ms: Roofline of the curve's own site at the query.

    Returns:
        `(latency_ms, utilization, provenance)`: linear between points; beyond the ends (and on a curve of a single
        point) the median utilisation of the end holds.
    """
    low, high, weight, exact, inside = enclosing(
        knots, pick(curves.lower, curve, at), pick(curves.upper, curve, at), tokens
    )
    first, second = pick(curves.latency_ms, curve, low), pick(curves.latency_ms, curve, high)
    between = first + (second - first) * weight
    held = jnp.where(
        tokens < pick(curves.first, curve), pick(curves.low_utilization, curve), pick(curves.high_utilization, curve)
    )
    latency = jnp.where(inside, between, sol_ms / held)
    code = jnp.where(exact, Provenance.EXACT, jnp.where(inside, Provenance.INTERPOLATED, Provenance.HELD))
    return latency, jnp.where(inside, sol_ms / between, held), code.astype(jnp.int32)
