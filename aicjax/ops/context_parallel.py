# SPDX-License-Identifier: Apache-2.0
"""Prefill of one prompt by several ranks: kernels that each rank runs on the whole prompt, and what ranks exchange.

A module measured on a rank's own tokens holds the indexer's kernels for those alone. Their measured latency on the
whole prompt, shared by the ranks, takes its place.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.axis import PAD_KNOT, interval
from aicjax.interp.counts import pick
from aicjax.ops.comm import CommRows, bind_comm, comm_latency
from aicjax.ops.database import Database
from aicjax.ops.module_tables import dense_values, filled_values, padded_knots
from aicjax.ops.records import Nccl
from aicjax.ops.roofline import Hardware
from aicjax.tables.rows import Rows


class KernelTable(eqx.Module):
    """Latency of one kernel by batch, new tokens and cached tokens; stacked, of many operators.

    Attributes:
        knots: Batch, new tokens and cached tokens, padded.
        latency_ms: Latency [batch, length, cached]; NaN where a batch has no such length.
    """

    knots: tuple[Float[Array, "*row knot"], ...]
    latency_ms: Float[Array, "*row batch length cached"]


def bind_kernel(rows: Rows | None, mask: np.ndarray | None) -> KernelTable:
    """A kernel's table from the rows of a mask; one that knows nothing where there are none."""
    if rows is None or mask is None or not mask.any():
        spare = padded_knots(np.ones(1)).astype(np.float32)
        return KernelTable((spare,) * 3, np.full((spare.size,) * 3, np.nan, np.float32))
    axes = [rows.number(name) for name in ("batch_size", "isl", "step")]
    knots = [np.unique(axis[mask]) for axis in axes]
    dense = filled_values(dense_values(knots, axes, rows.number("latency"), mask), knots[2], 2)
    padded = [padded_knots(k).astype(np.float32) for k in knots]
    # Beyond the last cached length the last one holds; spare batches and lengths know nothing.
    dense = dense.take(np.minimum(np.arange(padded[2].size), knots[2].size - 1), 2)
    latency = np.full([p.size for p in padded], np.nan, np.float32)
    latency[: knots[0].size, : knots[1].size] = dense
    return KernelTable(tuple(padded), latency)


def stack_kernels(tables: Sequence[KernelTable]) -> KernelTable:
    """Tables of several operators on axes of one length."""
    sizes = np.max([table.latency_ms.shape for table in tables], 0).tolist()
    knots, latency = [], []
    for table in tables:
        batches, lengths, steps = table.latency_ms.shape
        knots.append([np.append(k, np.full(n - k.size, PAD_KNOT)) for k, n in zip(table.knots, sizes, strict=True)])
        values = np.full(sizes, np.nan)
        values[:batches, :lengths] = np.asarray(table.latency_ms)[..., np.minimum(np.arange(sizes[2]), steps - 1)]
        latency.append(values)
    stacks = (np.array(axis, np.float32) for axis in zip(*knots, strict=True))
    return KernelTable(tuple(stacks), np.array(latency, np.float32))


def kernel_latency(table: KernelTable, batch, length, cached) -> Float[Array, "row point"]:
    """Latency at the nearest measured batch and, there, the nearest length; linear over cached tokens.

    NaN beyond the greatest length measured at that batch: the kernels grow faster than any axis would tell.
    """

    def one(table: KernelTable, batch, length, cached):
        batches, lengths, steps = (jnp.asarray(axis) for axis in table.knots)
        nearest = jnp.argmin(jnp.abs(batches - batch[:, None]), -1)
        measured = jnp.isfinite(pick(table.latency_ms, nearest)[..., 0])
        greatest = jnp.max(jnp.where(measured, lengths, 0.0), -1)
        near = jnp.argmin(jnp.where(measured, jnp.abs(lengths - length[:, None]), jnp.inf), -1)
        low = jnp.clip(interval(steps, cached) - 1, 0, steps.size - 2)
        start = pick(steps, low)
        weight = jnp.clip((cached - start) / (pick(steps, low + 1) - start), 0.0, 1.0)
        first, second = (pick(table.latency_ms, nearest, near, at) for at in (low, low + 1))
        return jnp.where(length <= greatest, first + (second - first) * weight, jnp.nan)

    return jax.vmap(one)(table, batch, length, cached)


def bind_gather(database: Database, ranks: Sequence[int]) -> CommRows:
    """Collection of 16-bit elements from all ranks, a row an operator, measured whatever the mode."""
    measured = dataclasses.replace(database, mode="SILICON")
    records = [Nccl("gather", 1.0, "all_gather", 1.0, count) for count in ranks]
    return bind_comm(measured, records, rows=len(records))


def gather_ms(gather: CommRows, elements, hardware: Hardware, constants: OpConstants) -> Any:
    """Latency of a collection of `elements` [row, point]."""
    return comm_latency(gather, elements, hardware, constants)[0]
