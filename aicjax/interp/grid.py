# SPDX-License-Identifier: Apache-2.0
"""Three-axis ragged grids: blend inside the measured range, hold the boundary's utilisation beyond it.

The outermost axis (attention heads) is known when a model is bound, so a bound slice holds the one or two collected
values of it that enclose the model's; the two inner axes are resolved in the kernel. Every branch uses its own
measured keys: a slice is a staircase, not a box.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from aicjax._results import Provenance
from aicjax.interp.axis import enclosing, interval, neighbour_keys
from aicjax.interp.counts import pick
from aicjax.interp.hold import FAR_LOG2, held_utilization, log2

Sol = Callable[..., Float[Array, "*point"]]


class GridSlice(eqx.Module):
    """Measured points of one shape, bound to one value of the outermost axis; stacked, of many shapes.

    Attributes:
        latency_ms: Latency [branch=2, outer, inner]; NaN where nothing was measured.
        outer_lower, outer_upper: A branch's own keys around each interval of the outer axis [branch, outer + 1].
        inner_lower, inner_upper: A row's own keys around each interval of the inner axis [branch, outer, inner + 1].
        branch_key: The collected values of the outermost axis [branch].
        branch_weight: Share of the second branch.
        branch_count: 1 when the value was collected or is out of range, else 2.
        branch_inside: Whether the outermost axis holds the value; if not, every query is held.
        leaf_log2: log2 coordinates of all measured points of the shape [axis=3, leaf].
        leaf_utilization: Roofline over latency of each point [leaf]; 0 on padding.
    """

    latency_ms: Float[Array, "*row branch outer inner"]
    outer_lower: Int[Array, "*row branch outer_interval"]
    outer_upper: Int[Array, "*row branch outer_interval"]
    inner_lower: Int[Array, "*row branch outer inner_interval"]
    inner_upper: Int[Array, "*row branch outer inner_interval"]
    branch_key: Float[Array, "*row branch"]
    branch_weight: Float[Array, "*row"]
    branch_count: Int[Array, "*row"]
    branch_inside: Bool[Array, "*row"]
    leaf_log2: Float[Array, "*row 3 leaf"]
    leaf_utilization: Float[Array, "*row leaf"]


def bind_slice(
    heads: np.ndarray,
    latency_ms: np.ndarray,
    outer_knots: np.ndarray,
    inner_knots: np.ndarray,
    head: float,
    sol_ms: np.ndarray,
    leaves: int,
) -> GridSlice:
    """Slice bound to one value of the outermost axis, on the host in float64.

    Args:
        heads: Collected values of the outermost axis, ascending [head].
        latency_ms: Latency [head, outer, inner], NaN where nothing was measured.
        outer_knots: Shared knots of the outer axis [outer].
        inner_knots: Shared knots of the inner axis [inner].
        head: The value asked for.
        sol_ms: Roofline of every point of the grid [head, outer, inner].
        leaves: Length to pad the list of points to.
    """
    at = int(np.searchsorted(heads, head, side="right"))
    exact = at > 0 and heads[at - 1] == head
    inside = exact or 0 < at < len(heads)
    between = inside and not exact
    pair = [at - 1, at] if between else [max(at - 1, 0)] * 2
    chosen = latency_ms[pair]
    measured = np.isfinite(chosen)
    outer_lower, outer_upper = neighbour_keys(measured.any(-1))
    inner_lower, inner_upper = neighbour_keys(measured)
    with np.errstate(invalid="ignore", divide="ignore"):
        usable = (latency_ms > 0) & (sol_ms > 0) & np.isfinite(sol_ms)
        utilization = (sol_ms / latency_ms)[usable]
    h, o, i = np.nonzero(usable)
    place = np.full((3, leaves), FAR_LOG2, np.float32)
    place[:, : h.size] = np.log2(heads[h] / head), np.log2(outer_knots[o]), np.log2(inner_knots[i])
    return GridSlice(
        latency_ms=chosen.astype(np.float32),
        outer_lower=outer_lower,
        outer_upper=outer_upper,
        inner_lower=inner_lower,
        inner_upper=inner_upper,
        branch_key=heads[pair].astype(np.float32),
        branch_weight=np.float32(
            (head - heads[pair[0]]) / (heads[pair[1]] - heads[pair[0]]) if inside and not exact else 0.0
        ),
        branch_count=np.int32(2 if between else 1),
        branch_inside=np.bool_(inside),
        leaf_log2=place,
        leaf_utilization=np.pad(utilization, (0, leaves - utilization.size)).astype(np.float32),
    )


def empty_slice(outer: int, inner: int, leaves: int) -> GridSlice:
    """A slice that was never measured: every query is missing."""
    none = np.full((1, outer, inner), np.nan)
    slice_ = bind_slice(np.ones(1), none, np.ones(outer), np.ones(inner), 1.0, none, leaves)
    return eqx.tree_at(lambda s: s.branch_inside, slice_, np.bool_(False))


def grid_latency(
    slices: GridSlice,
    outer_knots: Float[Array, " outer"],
    inner_knots: Float[Array, " inner"],
    heads: Float[Array, " row"],
    outer: Float[Array, "row point"],
    inner: Float[Array, "row point"],
    sol: Sol,
    shapes: PyTree,
    *,
    sqrt_outer: bool,
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of every query of every slice and how it was obtained.

    Inside: linear on each axis, inner axis first; on the outer axis linear in the square root when `sqrt_outer`.
    One neighbour left on an axis: that one, times the ratio of rooflines. Outside: the roofline over the utilisation
    of the nearest points (`interp.hold`).

    Args:
        slices: Bound slices, stacked.
        outer_knots: Outer coordinates that the slices share.
        inner_knots: Inner coordinates that they share.
        heads: Value of the outermost axis of each slice.
        outer: Outer coordinate of each query.
        inner: Inner coordinate of each query.
        sol: Roofline [ms] of `(shape, head, outer, inner)`, for one slice.
        shapes: What `sol` knows of each slice, arrays with a leading row axis.
        sqrt_outer: Static.

    Returns:
        `(latency_ms, provenance)`; NaN and `MISSING` when nothing anchors the query.
    """

    def one(slice_, head, outer, inner, shape):
        roof = sol(shape, head, outer, inner)
        return roof, *_interior(slice_, outer_knots, inner_knots, outer, inner, head, roof, sol, shape, sqrt_outer)

    roof, value, provenance, found = jax.vmap(one)(slices, heads, outer, inner, shapes)
    utilization = held_utilization(slices.leaf_log2, slices.leaf_utilization, log2(outer), log2(inner), ~found)
    held = (utilization > 0) & (roof > 0)
    latency = jnp.where(found, value, jnp.where(held, roof / jnp.where(held, utilization, 1.0), jnp.nan))
    code = jnp.where(found, provenance, jnp.where(held, Provenance.HELD, Provenance.MISSING))
    return latency, code.astype(jnp.int32)


def _interior(slice_, outer_knots, inner_knots, outer, inner, head, roof, sol, shape, sqrt_outer):
    """Value, provenance and whether the measured range of one slice holds each query.

    Axes of the intermediate arrays: branch, side of the outer axis, point.
    """
    branch = jnp.arange(2)[:, None]
    outer_at, inner_at = interval(outer_knots, outer), interval(inner_knots, inner)
    low, high, weight, outer_exact, outer_inside = enclosing(
        outer_knots,
        pick(slice_.outer_lower, branch, outer_at),
        pick(slice_.outer_upper, branch, outer_at),
        outer[None],
    )
    row = jnp.stack([low, high], 1)
    at = (branch[:, None], row, inner_at)
    first, second, share, inner_exact, inner_inside = enclosing(
        inner_knots, pick(slice_.inner_lower, *at), pick(slice_.inner_upper, *at), inner[None, None]
    )
    left = pick(slice_.latency_ms, branch[:, None], row, first)
    value = left + (pick(slice_.latency_ms, branch[:, None], row, second) - left) * share
    usable = jnp.stack([outer_inside, outer_inside & ~outer_exact], 1) & inner_inside

    side_roof = sol(shape, head, pick(outer_knots, row), inner[None, None])
    value, one_sided = _pair(value, usable, side_roof, roof[None, None], weight, outer_exact, sqrt_outer, axis=1)
    usable = usable.any(1) & jnp.stack([slice_.branch_inside, slice_.branch_count > 1])[:, None]
    exact = outer_exact & inner_exact[:, 0]

    alone = slice_.branch_count == 1
    branch_roof = sol(shape, slice_.branch_key[:, None], outer[None], inner[None])
    value, lone = _pair(value, usable, branch_roof, roof[None], slice_.branch_weight, alone, False, axis=0)
    one_sided = lone | (usable & one_sided).any(0)
    exact = alone & exact[0]
    code = jnp.where(one_sided, Provenance.ONE_SIDED, jnp.where(exact, Provenance.EXACT, Provenance.INTERPOLATED))
    return value, code, usable.any(0)


def _pair(value, usable, roof_at, roof, weight, alone, sqrt, *, axis):
    """Blend of two neighbours along `axis`, or the one that answers, scaled by the ratio of rooflines.

    `alone` says that the axis has collapsed to the first neighbour, which then answers as it is.

    Returns:
        `(value, one_sided)`, without `axis`.
    """
    value = jnp.where(usable, value, 1.0)
    usable_at = (roof_at > 0) & (roof > 0)
    scaled = value * jnp.where(usable_at, roof / jnp.where(usable_at, roof_at, 1.0), 1.0)

    def sides(x):
        return (part.squeeze(axis) for part in jnp.split(x, 2, axis))

    low, high = sides(jnp.sqrt(jnp.maximum(value, 0.0)) if sqrt else value)
    both = low + (high - low) * weight
    both = both**2 if sqrt else both
    (first, _), (first_scaled, second_scaled), (first_ok, second_ok) = sides(value), sides(scaled), sides(usable)
    one = jnp.where(first_ok, jnp.where(alone, first, first_scaled), second_scaled)
    return jnp.where(first_ok & second_ok, both, one), (first_ok ^ second_ok) & ~alone
