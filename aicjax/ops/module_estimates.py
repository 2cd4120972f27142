# SPDX-License-Identifier: Apache-2.0
"""Estimates of sparse attention modules: utilisation of the nearest measured points, with or without a prefix axis."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.interp.estimate import Samples, bind_samples, estimated_utilization, no_samples
from aicjax.interp.grid import GridSlice
from aicjax.ops.database import Database
from aicjax.ops.module_tables import ModuleTable, Points, PointSol, bind_points, most_leaves, shared_knots, stacked

PREFILL_AXES = 3  # prefix, new tokens, batch


class PrefixSamples(eqx.Module):
    """Measured points of prefills; stacked, of many shapes.

    Attributes:
        cached: Points over (heads, prefix, new tokens, batch).
        whole: Points without prefix, over (heads, tokens, batch).
        low, high: Prefixes between which `cached` answers [row]; elsewhere a prompt counts as one without prefix.
    """

    cached: Samples
    whole: Samples
    low: Float[Array, "*row"]
    high: Float[Array, "*row"]


Estimates = PrefixSamples | Samples
Shape = tuple[Points | None, int, PointSol]  # points, heads asked for, roofline


def bind_modules(
    database: Database, tables: Sequence[ModuleTable], shapes: Sequence[Shape], axes: int, *, spare: bool = True
) -> tuple[GridSlice, tuple[np.ndarray, ...], Estimates | None]:
    """Grids of shapes with the knots that they share, and samples where tables do not interpolate.

    A shape that was measured answers every query by its grid, so that samples are bound only instead of grids.
    """
    grids = tables if database.interpolates else []
    knots, leaves = shared_knots(grids, axes), most_leaves(grids)
    slices = [bind_points(points if grids else None, knots, heads, sol, leaves) for points, heads, sol in shapes]
    estimates = None
    if not database.interpolates:
        leaves = most_leaves(tables)
        if axes == PREFILL_AXES:
            estimates = stacked([bind_prefix_samples(*shape, leaves, spare=spare) for shape in shapes])
        else:
            estimates = stacked([bind_decode_samples(*shape, leaves) for shape in shapes])
    return stacked(slices), tuple(axis.astype(np.float32) for axis in knots), estimates


def bind_prefix_samples(points: Points | None, heads: int, sol: PointSol, leaves: int, *, spare: bool) -> PrefixSamples:
    """Samples of one shape for `heads`: those of that head count, of all when it was not measured.

    Args:
        points: Points over (heads, prefix, new tokens, batch).
        heads: The head count asked for.
        sol: Roofline of points.
        leaves: Length to pad samples to.
        spare: Whether points behind prefixes answer for any prefix where none was measured without.
    """
    if points is None:
        none = np.array(np.inf, np.float32), np.array(-np.inf, np.float32)
        return PrefixSamples(no_samples(4, leaves), no_samples(3, leaves), *none)
    points = _of_heads(points, heads)
    prefixes = np.unique(points.coordinates[1])
    start = points.select(points.coordinates[1] == 0)
    low, high = (prefixes[0], prefixes[-1]) if prefixes.size > 1 else (np.inf, -np.inf)
    if spare and not start.latency_ms.size:
        low, high = -np.inf, np.inf
    return PrefixSamples(
        cached=bind_samples(points.coordinates, _utilization(points, sol), leaves),
        whole=bind_samples(_without(start.coordinates, 1), _utilization(start, sol), leaves),
        low=np.array(low, np.float32),
        high=np.array(high, np.float32),
    )


def bind_decode_samples(points: Points | None, heads: int, sol: PointSol, leaves: int) -> Samples:
    """Samples over (heads, batch, length) as in `bind_prefix_samples`, ranked by heads, length and batch."""
    if points is None:
        return no_samples(3, leaves)
    points = _of_heads(points, heads)
    head, batch, length = points.coordinates
    points = points.select(np.lexsort((batch, length, head)))
    return bind_samples(points.coordinates, _utilization(points, sol), leaves)


def _of_heads(points: Points, heads: int) -> Points:
    own = points.coordinates[0] == heads
    return points.select(own) if own.any() else points


def _without(axes: tuple[np.ndarray, ...], axis: int) -> tuple[np.ndarray, ...]:
    return axes[:axis] + axes[axis + 1 :]


def _utilization(points: Points, sol: PointSol) -> np.ndarray:
    return sol(*points.coordinates) / points.latency_ms


def module_estimate(
    estimates: Estimates, roof: Float[Array, "row point"], coordinates: tuple[Any, ...]
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """`(latency_ms, provenance)` of queries: rooflines at the utilisation of the nearest points, a miss without any.

    Args:
        estimates: Samples, stacked.
        roof: Roofline of each query.
        coordinates: Heads [row], and the other coordinates as the samples have them [row, point].
    """
    heads, *points = coordinates
    places = (jnp.broadcast_to(heads[:, None], roof.shape), *points)
    if isinstance(estimates, PrefixSamples):
        utilization = _prefix_utilization(estimates, *places)
    else:
        utilization = estimated_utilization(estimates, places)
    known = utilization > 0
    latency = jnp.where(known, roof / jnp.where(known, utilization, 1.0), jnp.nan)
    return latency, jnp.where(known, Provenance.EMPIRICAL, Provenance.MISSING).astype(jnp.int32)


def _prefix_utilization(samples: PrefixSamples, heads, prefix, new, batch) -> Float[Array, "row point"]:
    inside = (samples.low[:, None] <= prefix) & (prefix <= samples.high[:, None])
    cached = estimated_utilization(samples.cached, (heads, prefix, new, batch), inside)
    whole = estimated_utilization(samples.whole, (heads, prefix + new, batch), ~inside)
    return jnp.where(inside, cached, whole)
