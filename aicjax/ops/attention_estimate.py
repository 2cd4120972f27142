# SPDX-License-Identifier: Apache-2.0
"""Estimates of attention: whose measured points lend their utilisation.

The operator's own slice first; then, where transfer between shapes is allowed, the same formats and heads at another
head size, 128 or the nearest; then both again without a window. Prefill at another head size is scaled by how
efficiently each size runs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.interp.estimate import Samples, bind_samples, estimated_utilization, no_samples
from aicjax.ops.attention_tables import AttentionTable, SliceKey, load_attention, most_leaves, slice_points
from aicjax.ops.database import Database
from aicjax.ops.estimated_rows import fill_rows, take_rows

USUAL_HEAD_SIZE = 128  # the lender of choice: every table is densest there
ENCODER = "encoder"
ROW_BUCKET = 8


def find_lender(
    table: AttentionTable, lane_order: Sequence[str], key: SliceKey, transfers: Sequence[str]
) -> tuple[int, Provenance] | None:
    """Slice that lends to `key`, and how near it is; None when none may."""
    for window in dict.fromkeys((key.window, 0)):
        wanted = replace(key, window=window)
        if (own := table.find(lane_order, wanted)) is not None:
            return own, Provenance.EMPIRICAL
        if "xshape" in transfers and (other := _other_head_size(table, lane_order, wanted)) is not None:
            return other, Provenance.XSHAPE
    return None


def _other_head_size(table: AttentionTable, lane_order: Sequence[str], key: SliceKey) -> int | None:
    """Slice of the lending head size in the first lane that has it. Lanes beyond the order come by name."""
    for lane in (*lane_order, *sorted(set(table.lanes) - set(lane_order))):
        same = [other for at, other in table.slices if at == lane and _family(other) == _family(key)]
        sizes = sorted({other.head_size for other in same if other.head_size})
        if not sizes:
            continue
        near = min(sizes, key=lambda size: abs(math.log(size) - math.log(key.head_size)))
        lender = replace(key, head_size=USUAL_HEAD_SIZE if USUAL_HEAD_SIZE in sizes else near)
        if lender in same:
            return table.slices.index((lane, lender))
    return None


def _family(key: SliceKey) -> SliceKey:
    """What slices that lend to each other have in common."""
    return replace(key, head_size=0, window=0)


class AttentionEstimates(eqx.Module):
    """Operators of one phase that tables leave without an answer, with the points that then answer.

    Attributes:
        row: Which operator each estimate is for; beyond all operators on padding [estimate].
        samples: Points over (heads, outer, inner) [estimate].
        provenance: How near they are [estimate].
        head_size, lender_head_size: Head size of the operator and of the points [estimate].
    """

    row: Int[Array, " estimate"]
    samples: Samples
    provenance: Int[Array, " estimate"]
    head_size: Float[Array, " estimate"]
    lender_head_size: Float[Array, " estimate"]


def bind_attention_estimates(
    database: Database,
    phase: str,
    keys: Sequence[SliceKey],
    answered: Sequence[bool],
    lane_order: Sequence[str],
    *,
    rows: int,
) -> AttentionEstimates | None:
    """Estimates for the operators that have no slice to interpolate in; None when there are none.

    Args:
        database: Which tables, and what may lend.
        phase: `context`, `generation` or `encoder`.
        keys: Slice that each operator asks for.
        answered: Whether tables answer for it.
        lane_order: Order in which kernels are tried.
        rows: Padded number of operators.
    """
    table = load_attention(*database.where, phase) if database.estimates and not all(answered) else None
    if table is None:
        return None
    transfers = () if phase == ENCODER else database.transfers
    found = [
        (row, key, lender)
        for row, (key, done) in enumerate(zip(keys, answered, strict=True))
        if not done and (lender := find_lender(table, lane_order, key, transfers)) is not None
    ]
    if not found:
        return None
    leaves = most_leaves(table)
    spare = -len(found) % ROW_BUCKET
    points = [slice_points(database.system, table, index) for *_, (index, _) in found]
    samples = [
        bind_samples(axes, np.divide(sol, latency, out=np.zeros_like(sol), where=latency > 0), leaves)
        for axes, latency, sol in points
    ]

    def column(values, pad, dtype: type = np.float32) -> np.ndarray:
        return np.array([*values, *[pad] * spare], dtype)

    return AttentionEstimates(
        row=column((row for row, *_ in found), rows, np.int32),
        samples=jax.tree.map(lambda *leaf: np.stack(leaf), *samples, *[no_samples(3, leaves)] * spare),
        provenance=column((code for *_, (_, code) in found), Provenance.MISSING, np.int32),
        head_size=column((key.head_size for _, key, _ in found), 1),
        lender_head_size=column((table.slices[index][1].head_size for *_, (index, _) in found), 1),
    )


def with_attention_estimates(
    estimates: AttentionEstimates,
    coordinates: tuple[Any, Any, Any],
    roof_ms: Float[Array, "row point"],
    latency_ms: Float[Array, "row point"],
    code: Int[Array, "row point"],
    efficiency: Mapping[int, Any] | None = None,
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency and provenance of all operators, with an estimate wherever a row that has one has no answer.

    Args:
        estimates: Bound estimates.
        coordinates: (heads, outer, inner) of each query [row, point].
        roof_ms: Roofline of the query, cached prefix and window included.
        latency_ms, code: What tables answer.
        efficiency: Relative efficiency by head size; all sizes run alike when None.
    """
    shape = (estimates.row.shape[0], latency_ms.shape[-1])
    places = tuple(jnp.broadcast_to(take_rows(axis, estimates.row), shape) for axis in coordinates)
    needed = jnp.isnan(take_rows(latency_ms, estimates.row)) & (estimates.row < latency_ms.shape[0])[:, None]
    utilization = estimated_utilization(estimates.samples, places, needed)
    if efficiency is not None:
        own, lender = (_relative(efficiency, size) for size in (estimates.head_size, estimates.lender_head_size))
        utilization = utilization * (own / lender)[:, None]
    return fill_rows(
        estimates.row, take_rows(roof_ms, estimates.row), utilization, estimates.provenance, latency_ms, code
    )


def _relative(efficiency: Mapping[int, Any], head_size: Float[Array, " estimate"]) -> Float[Array, " estimate"]:
    """Efficiency at any head size: linear in log2 between the known ones, constant beyond."""
    sizes = sorted(efficiency)
    known = jnp.stack([jnp.asarray(efficiency[size]) for size in sizes])
    return jnp.interp(jnp.log2(head_size), np.log2(np.array(sizes, np.float32)), known)
