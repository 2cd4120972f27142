# SPDX-License-Identifier: Apache-2.0
"""Measured curves: of one size, with a roofline proportional to it; and of tokens, with a roofline of one's own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.interp.axis import NO_KEY, PAD_KNOT, interval, neighbour_keys
from aicjax.interp.counts import pick

TAIL = 3  # boundary points whose median utilisation holds a token curve beyond its range, as a rule


class SizeCurves(eqx.Module):
    """Latency over message size, one curve a row.

    Attributes:
        size: Collected sizes, ascending, padded with `PAD_KNOT` [row, knot].
        latency_ms: Latency there [row, knot].
        count: Collected points of each curve [row]; 0 means that nothing was collected.
        slope: Growth of latency beyond the last point [row].
    """

    size: Float[Array, "row knot"]
    latency_ms: Float[Array, "row knot"]
    count: Int[Array, " row"]
    slope: Float[Array, " row"]


def stack_size_curves(
    curves: list[tuple[np.ndarray, np.ndarray]], rows: int, knots: int, *, straight: bool = False
) -> SizeCurves:
    """Curves `(sizes, latencies)` as one padded array.

    Args:
        curves: Sizes, ascending, and latencies of each row.
        rows, knots: Padded lengths.
        straight: Whether latency grows on along the line of the last octave, not in proportion to size.
    """
    size = np.full((rows, knots), PAD_KNOT, np.float32)
    latency = np.zeros((rows, knots), np.float32)
    count, slope = np.zeros(rows, np.int32), np.zeros(rows, np.float32)
    for row, (sizes, latencies) in enumerate(curves):
        size[row, : sizes.size], latency[row, : sizes.size], count[row] = sizes, latencies, sizes.size
        if straight and sizes.size > 1:
            slope[row] = last_slope(sizes, latencies)
        elif sizes.size:
            slope[row] = latencies[-1] / sizes[-1]
    return SizeCurves(size, latency, count, slope)


def last_slope(sizes: np.ndarray, latency_ms: np.ndarray) -> float:
    """Growth of latency over the last octave of a curve of two points or more, never negative.

    From the greatest size that is at most half the last one, or from the first.
    """
    start = max(int(np.searchsorted(sizes, sizes[-1] / 2, side="right")) - 1, 0)
    return max(float((latency_ms[-1] - latency_ms[start]) / (sizes[-1] - sizes[start])), 0.0)


def size_latency(
    curves: SizeCurves, size: Float[Array, "row point"]
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each row at its own sizes, and how it was obtained.

    Linear between points. Beyond the last one latency grows along the curve's line; below the first the utilisation
    holds, so that it shrinks in proportion to size. Size 0 has no roofline and no answer.
    """
    return jax.vmap(_one_size_curve)(curves.size, curves.latency_ms, curves.count, curves.slope, size)


def _one_size_curve(knots, latency_ms, count, slope, size):
    at = interval(knots, size)
    low = jnp.clip(at - 1, 0, jnp.maximum(count - 1, 0))
    high = jnp.clip(at, 0, jnp.maximum(count - 1, 0))
    below, at_below = pick(knots, low), pick(latency_ms, low)
    exact = (at > 0) & (below == size)
    inside = (at > 0) & (at < count)
    span = jnp.where(inside, pick(knots, high) - below, 1.0)
    between = at_below + (pick(latency_ms, high) - at_below) * (size - below) / span
    held = jnp.where(at > 0, at_below + slope * (size - below), at_below * (size / below))
    value = jnp.where(exact, at_below, jnp.where(inside, between, held))
    found = (count > 0) & (exact | inside | ((size > 0) & (at_below > 0)))
    code = jnp.where(exact, Provenance.EXACT, jnp.where(inside, Provenance.INTERPOLATED, Provenance.HELD))
    return jnp.where(found, value, jnp.nan), jnp.where(found, code, Provenance.MISSING).astype(jnp.int32)


class TokenCurves(eqx.Module):
    """Latency over tokens, one curve a measured site, on shared knots.

    Attributes:
        latency_ms: Latency [curve, knot], linear between the curve's own points; meaningless outside its range.
        collected: Whether a point was collected there [curve, knot].
        first, last: First and last collected token count of each curve [curve].
        low_utilization, high_utilization: Median utilisation of the points at each end [curve]; NaN when the end
            cannot be held.
    """

    latency_ms: Float[Array, "curve knot"]
    collected: Bool[Array, "curve knot"]
    first: Float[Array, " curve"]
    last: Float[Array, " curve"]
    low_utilization: Float[Array, " curve"]
    high_utilization: Float[Array, " curve"]


def bind_token_curves(
    knots: np.ndarray, latency_ms: np.ndarray, sol_ms: np.ndarray, *, width: int, tail: int = TAIL
) -> TokenCurves:
    """Curves on shared knots with their end utilisations, on the host in float64.

    Args:
        knots: Token counts, ascending [knot].
        latency_ms: Latency [curve, knot], NaN where not collected.
        sol_ms: Roofline of the same points [curve, knot].
        width: Number of knots to pad to, above their own number.
        tail: Points at an end whose median utilisation holds beyond it.
    """
    measured = np.isfinite(latency_ms)
    position = np.where(measured, np.arange(knots.size), -1)
    rank_up = np.cumsum(measured, axis=-1)
    rank_down = rank_up[:, -1:] - rank_up + 1
    ends = []
    for rank in (rank_up, rank_down):
        held = measured & (rank <= tail) & (latency_ms > 0) & (sol_ms > 0)
        ends.append(masked_median(np.divide(sol_ms, latency_ms, out=np.full(latency_ms.shape, np.nan), where=held)))
    filled = np.ones(latency_ms.shape)
    for row in np.flatnonzero(measured.any(-1)):
        own = measured[row]
        filled[row] = np.interp(knots, knots[own], latency_ms[row, own])
    spare = ((0, 0), (0, width - knots.size))
    some = measured.any(-1)
    return TokenCurves(
        latency_ms=np.pad(filled, spare, constant_values=1.0).astype(np.float32),
        collected=np.pad(measured, spare),
        first=np.where(some, knots[measured.argmax(-1)], PAD_KNOT).astype(np.float32),
        last=np.where(some, knots[position.max(-1)], -PAD_KNOT).astype(np.float32),
        low_utilization=ends[0].astype(np.float32),
        high_utilization=ends[1].astype(np.float32),
    )


def spanned_latency(knots: np.ndarray, latency_ms: np.ndarray) -> np.ndarray:
    """Latency of each curve at all shared knots within its range, linear between its own; NaN beyond [curve, knot]."""
    lower, upper = neighbour_keys(np.isfinite(latency_ms))
    lower, upper = lower[..., 1:], upper[..., :-1]  # at or below, and at or above, each knot
    inside = (lower != NO_KEY) & (upper != NO_KEY)
    low, high = np.where(inside, lower, 0), np.where(inside, upper, 0)
    share = (knots - knots[low]) / np.where(high > low, knots[high] - knots[low], 1.0)
    first, second = (np.take_along_axis(latency_ms, at, -1) for at in (low, high))
    return np.where(inside, np.where(high > low, first + (second - first) * share, first), np.nan)


def masked_median(values: np.ndarray) -> np.ndarray:
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
    tokens: Float[Array, "curve point"],
    at: Int[Array, "curve point"],
    sol_ms: Float[Array, "curve point"],
) -> tuple[Float[Array, "curve point"], Int[Array, "curve point"]]:
    """Utilisation of each curve at its own token counts, and how it was obtained.

    Linear in latency between points; beyond the ends (and on a curve of a single point) the median utilisation of the
    end holds.

    Args:
        curves: Measured curves.
        knots: Their shared knots, padded with at least one `PAD_KNOT`.
        tokens: Queries.
        at: `interval(knots, tokens)`.
        sol_ms: Roofline of the curve's own site at the query.
    """
    low = jnp.maximum(at - 1, 0)
    below = pick(knots, low)
    share = (tokens - below) / (pick(knots, low + 1) - below)
    row = jnp.arange(tokens.shape[0])[:, None]
    first = pick(curves.latency_ms, row, low)
    between = first + (pick(curves.latency_ms, row, low + 1) - first) * share
    under = tokens < curves.first[:, None]
    outside = under | (tokens > curves.last[:, None])
    held = jnp.where(under, curves.low_utilization[:, None], curves.high_utilization[:, None])
    exact = (tokens == below) & pick(curves.collected, row, low)
    code = jnp.where(outside, Provenance.HELD, jnp.where(exact, Provenance.EXACT, Provenance.INTERPOLATED))
    return jnp.where(outside, held, sol_ms / between), code.astype(jnp.int32)
