# SPDX-License-Identifier: Apache-2.0
"""Kernels of recurrent layers: measured over batch and length, or over batch; where they were not, memory traffic.

They answer in every mode alike: a roofline stands in for what was not measured, and measurements for a roofline.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax._units import MS_PER_S
from aicjax.constants import OpConstants
from aicjax.hardware import System
from aicjax.interp.counts import floor_div
from aicjax.interp.curve import SizeCurves, size_latency, stack_size_curves
from aicjax.interp.grid import GridSlice, Question, ask, bind_slice, empty_slice
from aicjax.ops.database import Database
from aicjax.ops.gdn import gdn_kernel
from aicjax.ops.kda import kda_kernel
from aicjax.ops.mamba2 import mamba2_kernel
from aicjax.ops.ragged import KNOT_BUCKET, padded_knots
from aicjax.ops.records import Gdn, Kda, Mamba2
from aicjax.ops.recurrent_tables import Kernel
from aicjax.ops.roofline import Hardware

CHUNK = 64  # tokens after which a scan stores its state
LEAF_BUCKET = 256
RESOLVERS: dict[type, Callable[[Database, Any], Kernel]] = {Mamba2: mamba2_kernel, Gdn: gdn_kernel, Kda: kda_kernel}
OWN_LENGTH = -1

Record = Mamba2 | Gdn | Kda


class RecurrentRows(eqx.Module):
    """Distinct kernels of recurrent layers.

    Attributes:
        slices: Latency over batch and length of kernels that span tokens, with a leading row axis.
        batch_knots, length_knots: Coordinates that the slices share.
        curves: Latency over batch of the others, one curve a row.
        on_grid, on_curve: Which of them answers; the roofline where neither does [row].
        fused: Whether another kernel does the work, at no cost [row].
        spans: Whether a sequence brings several tokens [row].
        length: Tokens of a sequence where the query does not say, else `OWN_LENGTH` [row].
        tokens_per_sequence: Query rows that make a sequence [row].
        token_bytes, sequence_bytes, chunk_bytes: Bytes moved a token, a sequence and a full chunk of one [row].
    """

    slices: GridSlice
    batch_knots: Float[Array, " batch"]
    length_knots: Float[Array, " length"]
    curves: SizeCurves
    on_grid: Bool[Array, " row"]
    on_curve: Bool[Array, " row"]
    fused: Bool[Array, " row"]
    spans: Bool[Array, " row"]
    length: Int[Array, " row"]
    tokens_per_sequence: Int[Array, " row"]
    token_bytes: Float[Array, " row"]
    sequence_bytes: Float[Array, " row"]
    chunk_bytes: Float[Array, " row"]


def recurrent_sol_ms(batch, length, spans, token_bytes, sequence_bytes, chunk_bytes, mem_bw, xp=jnp):
    """Bound of a kernel: its traffic through memory. No recurrent kernel is bound by its operations."""
    tokens = xp.where(spans & (length > 0), batch * length, batch)
    moved = tokens * token_bytes + batch * (sequence_bytes + xp.floor(length / CHUNK) * chunk_bytes)
    return moved / mem_bw


def recurrent_kernel(database: Database, record: Record) -> Kernel:
    """What an operator runs, and what was measured of it."""
    return RESOLVERS[type(record)](database, record)


def recurrent_available(database: Database, record: Record) -> bool:
    """Whether measurements answer for an operator, rather than its roofline."""
    kernel = recurrent_kernel(database, record)
    return kernel.fused or kernel.points is not None


def bind_recurrent(database: Database, records: Sequence[Record], *, rows: int) -> RecurrentRows:
    """Rows for `records` of any recurrent family, padded to `rows`."""
    kernels = [recurrent_kernel(database, record) for record in records]
    grids = [k.points for k in kernels if k.spans and k.points is not None]
    knots = tuple(
        padded_knots(np.unique(np.concatenate([getattr(points, axis) for points in grids])) if grids else np.ones(1))
        for axis in ("batch", "length")
    )
    leaves = -(-max([points.batch.size for points in grids], default=1) // LEAF_BUCKET) * LEAF_BUCKET
    slices = [_bind_kernel(database.system, kernel, knots, leaves) for kernel in kernels]
    slices += [empty_slice(knots, leaves)] * (rows - len(kernels))
    curves = [_curve(kernel) for kernel in kernels]
    width = -(-max([len(sizes) for sizes, _ in curves] + [1]) // KNOT_BUCKET) * KNOT_BUCKET

    def column(values, pad, dtype: type = np.float32):
        return np.array([*values, *[pad] * (rows - len(kernels))], dtype)

    return RecurrentRows(
        slices=jax.tree.map(lambda *leaf: np.stack(leaf), *slices),
        batch_knots=knots[0].astype(np.float32),
        length_knots=knots[1].astype(np.float32),
        curves=stack_size_curves(curves, rows, width),
        on_grid=column([k.spans and k.points is not None for k in kernels], False, np.bool_),
        on_curve=column([not k.spans and k.points is not None for k in kernels], False, np.bool_),
        fused=column([k.fused for k in kernels], True, np.bool_),
        spans=column([k.spans for k in kernels], False, np.bool_),
        length=column([k.draft_tokens if k.ignores_length else OWN_LENGTH for k in kernels], 0, np.int32),
        tokens_per_sequence=column([max(k.draft_tokens, 1) for k in kernels], 1, np.int32),
        token_bytes=column([k.moved.token for k in kernels], 0),
        sequence_bytes=column([k.moved.sequence for k in kernels], 0),
        chunk_bytes=column([k.moved.chunk for k in kernels], 0),
    )


def _bind_kernel(system: System, kernel: Kernel, knots: tuple[np.ndarray, ...], leaves: int) -> GridSlice:
    """Measured points over batch and length, as a slice of one branch."""
    if kernel.points is None or not kernel.spans:
        return empty_slice(knots, leaves)
    batch, length, latency_ms = kernel.points
    dense = np.full((1, *[axis.size for axis in knots]), np.nan)
    dense[0, np.searchsorted(knots[0], batch), np.searchsorted(knots[1], length)] = latency_ms
    sol = recurrent_sol_ms(
        knots[0][:, None], knots[1], kernel.spans, *kernel.moved, system.mem_bw_bytes_per_s / MS_PER_S, xp=np
    )
    return bind_slice(np.ones(1), dense, knots, 1.0, sol[None], leaves)


def _curve(kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
    """Measured points over batch alone, ascending."""
    if kernel.points is None or kernel.spans:
        return np.ones(0), np.ones(0)
    order = np.argsort(kernel.points.batch)
    return kernel.points.batch[order], kernel.points.latency_ms[order]


def recurrent_sol(rows: RecurrentRows, batch, length, prefix, hardware: Hardware, constants: OpConstants):
    """Roofline of each kernel [row, point]; nothing where another kernel does the work."""
    return jnp.where(rows.fused[:, None], 0.0, _roofs(rows, *_coordinates(rows, batch, length), hardware))


def ask_recurrent(
    rows: RecurrentRows,
    batch: Int[Array, "*row point"],
    length: Int[Array, "*row point"],
    prefix: Int[Array, "*row point"],
    hardware: Hardware,
    constants: OpConstants,
) -> Question:
    """Latency of each kernel for `batch` sequences of `length` new tokens, as a question that is never missed.

    Over batch and length a grid; over batch alone a curve, beyond whose ends latency grows in proportion. A
    verification takes `batch` as query rows, draft tokens of all sequences. A cached prefix changes nothing.
    """
    batch, length = _coordinates(rows, batch, length)
    roofs = _roofs(rows, batch, length, hardware)
    shapes = (rows.spans, rows.token_bytes, rows.sequence_bytes, rows.chunk_bytes)

    def sol(shape, _, batch, length):
        return recurrent_sol_ms(batch, length, *shape, mem_bw=hardware.mem_bw)

    def finish(latency, code):
        unanswered = (code == Provenance.MISSING) | (rows.on_grid[:, None] & (length == 0))
        latency, code = jnp.where(unanswered, roofs, latency), jnp.where(unanswered, Provenance.SOL, code)
        fused = rows.fused[:, None]
        return jnp.where(fused, 0.0, latency), jnp.where(fused, Provenance.NONE, code).astype(jnp.int32)

    one = jnp.ones(rows.spans.shape[0], jnp.float32)
    knots = (rows.batch_knots, rows.length_knots)
    question = ask(rows.slices, knots, one, (batch, length), sol, shapes, finish)
    curve_ms, curve_code = size_latency(rows.curves, batch)
    on_grid = rows.on_grid[:, None]
    return question._replace(
        value=jnp.where(on_grid, question.value, curve_ms),
        provenance=jnp.where(on_grid, question.provenance, curve_code),
        found=question.found | ~on_grid,
    )


def _coordinates(rows: RecurrentRows, batch, length):
    """Sequences and tokens of each, float32 [row, point]."""
    count, span = rows.spans.shape[0], batch.shape[-1]
    batch, length = (jnp.broadcast_to(jnp.asarray(x, jnp.int32), (count, span)) for x in (batch, length))
    sequences = jnp.maximum(_nearest_even(batch, rows.tokens_per_sequence[:, None]), jnp.minimum(batch, 1))
    given = rows.length[:, None]
    return sequences.astype(jnp.float32), jnp.where(given == OWN_LENGTH, length, given).astype(jnp.float32)


def _nearest_even(count, by):
    """Integer nearest to `count / by`, the even one of two."""
    twice = 2 * count + by
    above = floor_div(twice, 2 * by)
    tied = above * 2 * by == twice
    return above - (tied & (above % 2 == 1)).astype(above.dtype)


def _roofs(rows: RecurrentRows, batch, length, hardware: Hardware):
    shapes = (rows.spans, rows.token_bytes, rows.sequence_bytes, rows.chunk_bytes)
    return recurrent_sol_ms(batch, length, *[x[:, None] for x in shapes], mem_bw=hardware.mem_bw)
