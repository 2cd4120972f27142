# SPDX-License-Identifier: Apache-2.0
"""What context parallelism adds to compressed attention: scores and selection over the whole prompt, two gathers."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.interp.counts import floor_div
from aicjax.interp.grid import GridSlice, grid_latency
from aicjax.ops.comm import CommRows
from aicjax.ops.context_parallel import KernelTable, bind_gather, bind_kernel, gather_ms, kernel_latency, stack_kernels
from aicjax.ops.database import Database
from aicjax.ops.dsv4_records import LIGHT_RATIO
from aicjax.ops.dsv4_tables import CALIBRATION, SCORES, load_scores
from aicjax.ops.module_tables import bind_points, most_leaves, shared_knots, stacked
from aicjax.ops.records import Dsv4Context
from aicjax.ops.roofline import Hardware
from aicjax.ops.sparse_rooflines import score_sol
from aicjax.tables import read_rows

SCORE_CHUNK = 8192  # new tokens that the indexer scores at once


class Dsv4Parallel(eqx.Module):
    """Kernels and exchanges of context-parallel compressed attention.

    Attributes:
        scores: The indexer's scores over cached tokens, new tokens and batch.
        knots: Coordinates of `scores`.
        selection: Selection among concentrated scores.
        gather: Exchange of the ranks.
        cp: Ranks [row].
        indexed: 1 where an indexer selects [row].
        ratio, window: Tokens compressed to one, and those seen as they are [row].
        index_width, width: Elements of a token in the index cache and in the attention cache [row].
        chunks: Chunks of the longest prompt that `selection` knows. Static.
    """

    scores: GridSlice
    knots: tuple[Float[Array, " knot"], ...]
    selection: KernelTable
    gather: CommRows
    cp: Int[Array, " row"]
    indexed: Float[Array, " row"]
    ratio: Int[Array, " row"]
    window: Float[Array, " row"]
    index_width: Float[Array, " row"]
    width: Float[Array, " row"]
    chunks: int = eqx.field(static=True)


def bind_dsv4_parallel(database: Database, records: Sequence[Dsv4Context]) -> Dsv4Parallel:
    """Kernels of operators, one row each."""
    system, backend, version, shared = database.where
    table = load_scores(*database.where)
    tables = [] if table is None else [table]
    knots, leaves = shared_knots(tables, 3), most_leaves(tables)
    calibration = read_rows(system.name, backend, version, CALIBRATION, shared)
    scores, selection = [], []
    for record in records:
        points = None if table is None else table.slices.get((record.native_heads, record.tp))
        if table is not None and points is None:
            points = table.slices.get((record.native_heads, 1))
        scores.append(bind_points(points, knots, record.native_heads, score_sol, leaves))
        concentrated = None
        if calibration is not None:
            concentrated = calibration.number("num_heads") == record.native_heads
            concentrated &= calibration.is_in("score_mode", [SCORES["context"][1]])
        selection.append(bind_kernel(calibration, concentrated))
    longest = 1 if calibration is None else int(calibration.number("isl").max())
    return Dsv4Parallel(
        scores=stacked(scores),
        knots=tuple(axis.astype(np.float32) for axis in knots),
        selection=stack_kernels(selection),
        gather=bind_gather(database, [r.cp for r in records]),
        cp=np.array([r.cp for r in records], np.int32),
        indexed=np.array([r.ratio == LIGHT_RATIO for r in records], np.float32),
        ratio=np.array([r.ratio for r in records], np.int32),
        window=np.array([r.shape.window for r in records], np.float32),
        index_width=np.array([r.shape.index_dim for r in records], np.float32),
        width=np.array([r.shape.head_dim for r in records], np.float32),
        chunks=-(-longest // SCORE_CHUNK),
    )


def dsv4_parallel_ms(
    parallel: Dsv4Parallel,
    batch: Float[Array, "row point"],
    new: Int[Array, "row point"],
    own: Int[Array, "row point"],
    prefix: Float[Array, "row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> Float[Array, "row point"]:
    """What is added to the module of a rank's `own` tokens out of `new`.

    Nothing without context parallelism; NaN where a kernel was not measured.
    """
    split, indexed = parallel.cp[:, None] > 1, parallel.indexed[:, None] > 0
    cp = parallel.cp[:, None].astype(jnp.float32)

    def kernels(tokens):
        count = tokens.astype(jnp.float32)
        return _scores_ms(parallel, batch, count, prefix) + kernel_latency(parallel.selection, batch, count, prefix)

    def gathered(elements):
        return gather_ms(parallel.gather, elements, hardware, constants)

    whole = new.astype(jnp.float32)
    window = jnp.where(parallel.window > 0, parallel.window, jnp.inf)[:, None]
    plain = jnp.where(
        indexed, whole * parallel.index_width[:, None], jnp.minimum(whole, window) * parallel.width[:, None]
    )
    compressed = floor_div(new, parallel.ratio[:, None]).astype(jnp.float32) * parallel.width[:, None]
    exchanged = gathered(batch * plain) + gathered(batch * compressed)
    return jnp.where(split, exchanged + jnp.where(indexed, kernels(new) / cp - kernels(own), 0.0), 0.0)


def _scores_ms(parallel: Dsv4Parallel, batch, new, prefix):
    """Latency of the scores of a prompt, chunk after chunk."""
    starts = [float(chunk * SCORE_CHUNK) for chunk in range(parallel.chunks)]
    lengths = jnp.concatenate([jnp.clip(new - start, 0.0, SCORE_CHUNK) for start in starts], 1)
    cached = jnp.concatenate([prefix + start for start in starts], 1)
    points = (cached, jnp.maximum(lengths, 1.0), jnp.tile(batch, (1, len(starts))))

    def sol(shape, heads, cached, new, batch):
        return score_sol(heads, cached, new, batch)

    heads = parallel.scores.branch_key[:, 0]
    latency, _ = grid_latency(parallel.scores, parallel.knots, heads, points, sol, parallel.ratio)
    return jnp.where(lengths > 0, latency, 0.0).reshape(*new.shape[:1], len(starts), -1).sum(1)
