# SPDX-License-Identifier: Apache-2.0
"""Ragged grids: blend inside the measured range, hold the boundary's utilisation beyond it.

The outermost axis (attention heads) is known when a model is bound, so a bound slice holds the one or two collected
values of it that enclose the model's; the inner axes, two or three, are resolved in the kernel. Every branch uses its
own measured keys: a slice is a staircase, not a box.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.interp.axis import enclosing, interval, neighbour_keys
from aicjax.interp.counts import pick
from aicjax.interp.hold import FAR_LOG2, Held, held_utilization, log2

Sol = Callable[..., Float[Array, "*point"]]
Knots = tuple[Float[Array, " knot"], ...]


class GridSlice(eqx.Module):
    """Measured points of one shape, bound to one value of the outermost axis; stacked, of many shapes.

    Attributes:
        latency_ms: Latency [branch=2, *axis]; NaN where nothing was measured.
        lower: A branch's own keys at or below each interval of each axis, [branch, *outer axis, interval] an axis.
        upper: The same above each interval.
        branch_key: The collected values of the outermost axis [branch].
        branch_weight: Share of the second branch.
        branch_count: 1 when the value was collected or is out of range, else 2.
        branch_inside: Whether the outermost axis holds the value; if not, every query is held.
        leaf_log2: log2 offset of the outermost axis and log2 coordinates of all measured points [1 + axis, leaf].
        leaf_utilization: Roofline over latency of each point [leaf]; 0 on padding.
    """

    latency_ms: Float[Array, "*shape"]
    lower: tuple[Int[Array, "*shape"], ...]
    upper: tuple[Int[Array, "*shape"], ...]
    branch_key: Float[Array, "*row branch"]
    branch_weight: Float[Array, "*row"]
    branch_count: Int[Array, "*row"]
    branch_inside: Bool[Array, "*row"]
    leaf_log2: Float[Array, "*row coordinate leaf"]
    leaf_utilization: Float[Array, "*row leaf"]


def bind_slice(
    heads: np.ndarray,
    latency_ms: np.ndarray,
    knots: tuple[np.ndarray, ...],
    head: float,
    sol_ms: np.ndarray,
    leaves: int,
) -> GridSlice:
    """Slice bound to one value of the outermost axis, on the host in float64.

    Args:
        heads: Collected values of the outermost axis, ascending [head].
        latency_ms: Latency [head, *axis], NaN where nothing was measured.
        knots: Shared knots of each inner axis, outer to inner.
        head: The value asked for.
        sol_ms: Roofline of every point of the grid [head, *axis].
        leaves: Length to pad the list of points to.
    """
    at = int(np.searchsorted(heads, head, side="right"))
    exact = at > 0 and heads[at - 1] == head
    inside = exact or 0 < at < len(heads)
    between = inside and not exact
    pair = [at - 1, at] if between else [max(at - 1, 0)] * 2
    measured = np.isfinite(latency_ms[pair])
    keys = [neighbour_keys(_any_inner(measured, axis + 2)) for axis in range(len(knots))]
    with np.errstate(invalid="ignore", divide="ignore"):
        usable = (latency_ms > 0) & (sol_ms > 0) & np.isfinite(sol_ms)
        utilization = (sol_ms / latency_ms)[usable]
    leaf_head, *leaf = np.nonzero(usable)
    place = np.full((1 + len(knots), leaves), FAR_LOG2, np.float32)
    place[:, : leaf_head.size] = [
        np.log2(heads[leaf_head] / head),
        *[np.log2(np.maximum(axis[index], 1e-12)) for axis, index in zip(knots, leaf, strict=True)],
    ]
    return GridSlice(
        latency_ms=latency_ms[pair].astype(np.float32),
        lower=tuple(lower for lower, _ in keys),
        upper=tuple(upper for _, upper in keys),
        branch_key=heads[pair].astype(np.float32),
        branch_weight=np.array((head - heads[pair[0]]) / np.diff(heads[pair])[0] if between else 0.0, np.float32),
        branch_count=np.array(2 if between else 1, np.int32),
        branch_inside=np.array(inside),
        leaf_log2=place,
        leaf_utilization=np.pad(utilization, (0, leaves - utilization.size)).astype(np.float32),
    )


def _any_inner(measured: np.ndarray, axes: int) -> np.ndarray:
    """Whether anything was measured below each key of the first `axes` axes."""
    return np.logical_or.reduce(measured.reshape(*measured.shape[:axes], -1), axis=-1)


def empty_slice(knots: tuple[np.ndarray, ...], leaves: int) -> GridSlice:
    """A slice that was never measured: every query is missing."""
    none = np.full((1, *[axis.size for axis in knots]), np.nan)
    slice_ = bind_slice(np.ones(1), none, knots, 1.0, none, leaves)
    return eqx.tree_at(lambda s: s.branch_inside, slice_, np.array(False))


class Question(NamedTuple):
    """Queries of a stack of slices, answered as far as the measured range goes.

    Attributes:
        slices: The slices.
        places: log2 of the coordinates of each query, an array an inner axis [row, point].
        value: Latency [ms] where `found` [row, point].
        provenance: How it was obtained [row, point].
        found: Whether the measured range holds the query [row, point].
        roof: Roofline of the query [row, point].
        finish: What an operator makes of `(latency_ms, provenance)`.
    """

    slices: GridSlice
    places: tuple[Float[Array, "row point"], ...]
    value: Float[Array, "row point"]
    provenance: Int[Array, "row point"]
    found: Bool[Array, "row point"]
    roof: Float[Array, "row point"]
    finish: Callable[[Array, Array], tuple[Array, Array]]


def ask(
    slices: GridSlice,
    knots: Knots,
    heads: Float[Array, " row"],
    coordinates: tuple[Float[Array, "row point"], ...],
    sol: Sol,
    shapes: PyTree,
    finish: Callable[[Array, Array], tuple[Array, Array]] = lambda latency_ms, provenance: (latency_ms, provenance),
    *,
    sqrt_axis: int | None = None,
) -> Question:
    """Answers inside the measured range; `answer` holds the others, those of many operators together.

    Inside: linear on each axis, innermost first; on `sqrt_axis` linear in the square root. One neighbour left on an
    axis: that one, times the ratio of rooflines.

    Args:
        slices: Bound slices, stacked.
        knots: Coordinates that the slices share, an array an inner axis, outer to inner.
        heads: Value of the outermost axis of each slice.
        coordinates: Queries, an array an inner axis.
        sol: Roofline [ms] of `(shape, head, *coordinates)`, arrays that broadcast together.
        shapes: What `sol` knows of each slice, arrays [row].
        finish: What the operator makes of the latency and its provenance.
        sqrt_axis: Inner axis blended in the square root; static.
    """
    point = [coordinate[:, None] for coordinate in coordinates]
    shape, head = jax.tree.map(lambda leaf: jnp.asarray(leaf)[:, None, None], (shapes, heads))
    roof = sol(shape, head, *point)
    found = _interior(slices, knots, point, roof, lambda *where: sol(shape, *where), head, sqrt_axis)
    return Question(slices, tuple(log2(coordinate) for coordinate in coordinates), *found, roof[:, 0], finish)


def answer(questions: Sequence[Question]) -> list[tuple[Float[Array, "row point"], Int[Array, "row point"]]]:
    """`(latency_ms, provenance)` of each question, as its operator finishes them.

    Outside the measured range: the roofline over the utilisation of the nearest points (`interp.hold`), all questions
    in one search. NaN and `MISSING` when nothing anchors a query.
    """
    if not questions:
        return []
    utilizations = held_utilization(
        [Held(q.slices.leaf_log2, q.slices.leaf_utilization, q.places, ~q.found & _measured(q)) for q in questions]
    )
    return [_finished(question, utilization) for question, utilization in zip(questions, utilizations, strict=True)]


def _measured(question: Question):
    """Whether a slice has any point to hold a query with: padding and shapes never measured have none [row, 1]."""
    return jnp.any(question.slices.leaf_utilization > 0, -1, keepdims=True)


def _finished(question: Question, utilization):
    held = (utilization > 0) & (question.roof > 0)
    outside = jnp.where(held, question.roof / jnp.where(held, utilization, 1.0), jnp.nan)
    code = jnp.where(question.found, question.provenance, jnp.where(held, Provenance.HELD, Provenance.MISSING))
    return question.finish(jnp.where(question.found, question.value, outside), code.astype(jnp.int32))


def grid_latency(
    slices: GridSlice,
    knots: Knots,
    heads: Float[Array, " row"],
    coordinates: tuple[Float[Array, "row point"], ...],
    sol: Sol,
    shapes: PyTree,
    *,
    sqrt_axis: int | None = None,
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of every query of every slice and how it was obtained: `ask` and `answer` of one question."""
    return answer([ask(slices, knots, heads, coordinates, sol, shapes, sqrt_axis=sqrt_axis)])[0]


class _Found(NamedTuple):
    """What one branch of each slice answers: value, whether its range holds the query, whether at a measured point."""

    value: Float[Array, "row branch point"]
    usable: Bool[Array, "row branch point"]
    exact: Bool[Array, "row branch point"]
    one_sided: Bool[Array, "row branch point"]


def _interior(slices: GridSlice, knots: Knots, point, roof, sol, head, sqrt_axis: int | None):
    """Value, provenance and whether the measured range of a slice holds each query, [row, point] each.

    Args:
        slices, knots, sqrt_axis: As in `ask`.
        point: Coordinates of each query, an array [row, 1, point] an inner axis.
        roof: Roofline there.
        sol: Roofline of `(head, *coordinates)`.
        head: Value of the outermost axis [row, 1, 1].
    """
    intervals = [interval(grid, coordinate) for grid, coordinate in zip(knots, point, strict=True)]

    def resolve(axis: int, index: tuple[Array, ...]) -> _Found:
        """Answer of each branch below the keys chosen so far."""
        if axis == len(knots):
            value = pick(slices.latency_ms, *index)
            yes = jnp.ones(value.shape, bool)
            return _Found(value, yes, yes, ~yes)
        at = (*index, intervals[axis])
        low, high, weight, exact, inside = enclosing(
            knots[axis], pick(slices.lower[axis], *at), pick(slices.upper[axis], *at), point[axis]
        )
        first, second = resolve(axis + 1, (*index, low)), resolve(axis + 1, (*index, high))
        first = first._replace(usable=first.usable & inside)
        second = second._replace(usable=second.usable & inside & ~exact)

        def roof_at(key):
            return sol(head, *[pick(knots[axis], key) if a == axis else x for a, x in enumerate(point)])

        roofs = (roof_at(low), roof_at(high)) if axis + 1 < len(knots) else None
        return _blend(first, second, roofs, roof, weight, exact, axis == sqrt_axis)

    rows = jnp.arange(head.shape[0])[:, None, None]
    branches = resolve(0, (rows, jnp.arange(2)[:, None]))
    alone = (jnp.asarray(slices.branch_count) == 1)[:, None]
    inside = jnp.asarray(slices.branch_inside)[:, None]
    first, second = (_Found(*[part[:, at] for part in branches]) for at in (0, 1))
    first = first._replace(usable=first.usable & inside)
    second = second._replace(usable=second.usable & inside & ~alone)
    roofs = [sol(slices.branch_key[:, at, None, None], *point)[:, 0] for at in (0, 1)]
    found = _blend(first, second, roofs, roof[:, 0], slices.branch_weight[:, None], alone, False)
    code = jnp.where(found.exact, Provenance.EXACT, Provenance.INTERPOLATED)
    return found.value, jnp.where(found.one_sided, Provenance.ONE_SIDED, code), found.usable


def _blend(first: _Found, second: _Found, roofs, roof, weight, alone, sqrt: bool) -> _Found:
    """Blend of two neighbours on one axis, or the one that answers, scaled by the ratio of rooflines.

    `alone` says that the axis has collapsed to the first neighbour, which then answers as it is. Without `roofs` both
    neighbours answer or neither.
    """
    low, high = jnp.where(first.usable, first.value, 1.0), jnp.where(second.usable, second.value, 1.0)
    if sqrt:
        root = jnp.sqrt(jnp.maximum(low, 0.0))
        value = (root + (jnp.sqrt(jnp.maximum(high, 0.0)) - root) * weight) ** 2
    else:
        value = low + (high - low) * weight
    usable, lone = first.usable | second.usable, (first.usable ^ second.usable) & ~alone
    if roofs is None:
        value = jnp.where(alone, low, value)
    else:
        scaled = [v * _ratio(roof, at) for v, at in zip((low, high), roofs, strict=True)]
        one = jnp.where(first.usable, jnp.where(alone, low, scaled[0]), scaled[1])
        value = jnp.where(first.usable & second.usable, value, one)
    sided = lone | (first.usable & first.one_sided) | (second.usable & second.one_sided)
    return _Found(value, usable, alone & first.exact, sided)


def _ratio(roof, at):
    known = (roof > 0) & (at > 0)
    return jnp.where(known, roof / jnp.where(known, at, 1.0), 1.0)
