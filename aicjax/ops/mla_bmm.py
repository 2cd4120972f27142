# SPDX-License-Identifier: Apache-2.0
"""Absorbed products of latent attention: one small product a head, before and after decode attention."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax import quant
from aicjax._results import Provenance
from aicjax._types import Array
from aicjax._units import MS_PER_S
from aicjax.constants import OpConstants
from aicjax.hardware import System
from aicjax.interp.ends import NO_CURVE, Curve, EndCurves, bind_end_curves, end_latency
from aicjax.interp.estimate import Samples, bind_samples, estimated_utilization, no_samples
from aicjax.ops.database import Database
from aicjax.ops.keyed_curves import keyed_curves
from aicjax.ops.mla_roofline import mla_bmm_sol_ms
from aicjax.ops.records import MlaBmm
from aicjax.ops.roofline import Hardware, dtype_index
from aicjax.tables import read_rows

TABLE = "mla_bmm_perf"
DEFAULT_FORMAT = "bfloat16"  # whose rows answer for a format that was not measured
POINT_BUCKET = 32


class MlaBmmRows(eqx.Module):
    """Distinct absorbed products bound to their curves.

    Attributes:
        curves: Latency over tokens.
        samples: Points that estimates rest on; None where curves answer.
        heads: Heads of each product [row].
        curve_heads: Heads of the curve that answers for it [row].
        element_bytes: Bytes per element [row].
        dtype: Position of the products' data type in `Hardware.peak` [row].
    """

    curves: EndCurves
    samples: Samples | None
    heads: Float[Array, " row"]
    curve_heads: Float[Array, " row"]
    element_bytes: Float[Array, " row"]
    dtype: Int[Array, " row"]


@dataclass(frozen=True)
class BmmTable:
    """Measured curves by (format, name of the product, heads)."""

    curves: dict[tuple[str, str, int], Curve]

    def row_format(self, mode: str) -> str:
        """Format whose rows answer for a format."""
        return mode if any(key[0] == mode for key in self.curves) else DEFAULT_FORMAT

    def heads_for(self, record: MlaBmm) -> int:
        """Heads of the curve that answers: its own, or the next power of two where that was not measured."""
        own = (self.row_format(record.quant), product_name(record), record.num_heads)
        return record.num_heads if own in self.curves else 1 << (record.num_heads - 1).bit_length()

    def curve(self, record: MlaBmm) -> Curve:
        """The curve that answers for a record; empty when there is none."""
        key = (self.row_format(record.quant), product_name(record), self.heads_for(record))
        return self.curves.get(key, NO_CURVE)


def product_name(record: MlaBmm) -> str:
    """Name of a product in the table."""
    return "mla_gen_pre" if record.pre else "mla_gen_post"


@functools.lru_cache(maxsize=32)
def load_mla_bmm(system: System, backend: str, version: str, shared: bool) -> BmmTable:
    """Measured curves; none when there is no table."""
    rows = read_rows(system.name, backend, version, TABLE, shared)
    if rows is None:
        return BmmTable({})
    form, forms = rows.text("bmm_dtype")
    product, products = rows.text("op_name")
    heads, tokens, latency = (rows.number(column) for column in ("num_heads", "num_tokens", "latency"))
    found = keyed_curves((form, product, heads), tokens, latency)
    return BmmTable({(forms[f], products[p], count): curve for (f, p, count), curve in found.items()})


def mla_bmm_available(database: Database, record: MlaBmm) -> bool:
    """Whether measured tables hold a curve that answers for a record."""
    return load_mla_bmm(*database.where).curve(record)[0].size > 0


def bind_mla_bmm(database: Database, records: Sequence[MlaBmm], *, rows: int) -> MlaBmmRows:
    """Rows for `records`, padded to `rows`.

    Raises:
        MissingPeak: The system states no peak for a format.
    """
    system, bandwidth = database.system, database.system.mem_bw_bytes_per_s / MS_PER_S
    forms = [quant.GEMM[record.quant] for record in records]
    peaks = [system.peak(form.dtype) / MS_PER_S for form in forms]
    table = load_mla_bmm(*database.where) if database.measured else BmmTable({})
    heads = [table.heads_for(record) if database.measured else record.num_heads for record in records]
    curves = [table.curve(record) for record in records]
    sols = [
        mla_bmm_sol_ms(tokens, count, form.bytes, peak, bandwidth, xp=np)
        for (tokens, _), count, form, peak in zip(curves, heads, forms, peaks, strict=True)
    ]
    leaves = -(-max([tokens.size for tokens, _ in curves] + [1]) // POINT_BUCKET) * POINT_BUCKET
    samples = [bind_samples((t,), sol / latency, leaves) for (t, latency), sol in zip(curves, sols, strict=True)]
    samples += [no_samples(1, leaves)] * (rows - len(records))
    answering = curves if database.interpolates else [NO_CURVE] * len(records)
    pad = (0, rows - len(records))
    return MlaBmmRows(
        curves=bind_end_curves(answering, sols, rows=rows),
        samples=None if database.interpolates else jax.tree.map(lambda *leaf: np.stack(leaf), *samples),
        heads=np.pad(np.array([r.num_heads for r in records], np.float32), pad, constant_values=1),
        curve_heads=np.pad(np.array(heads, np.float32), pad, constant_values=1),
        element_bytes=np.pad(np.array([form.bytes for form in forms], np.float32), pad),
        dtype=np.pad(np.array([dtype_index(form.dtype) for form in forms], np.int32), pad),
    )


def mla_bmm_latency(
    rows: MlaBmmRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each product over `tokens` and how it was obtained.

    Heads that were not measured take their share of the curve of the next power of two.

    Args:
        rows: Bound products.
        tokens: Sequences of a decode step.
        hardware: Peaks and bandwidths.
        constants: Not used: the table holds all that runs.
    """
    sol = _sol(rows, rows.curve_heads, tokens, hardware)
    share = (rows.heads / rows.curve_heads)[:, None]
    if rows.samples is None:
        latency, code = end_latency(rows.curves, tokens, sol)
        return latency * share, code
    latency = sol / estimated_utilization(rows.samples, (tokens,))
    code = jnp.where(jnp.isnan(latency), Provenance.MISSING, Provenance.EMPIRICAL).astype(jnp.int32)
    return latency * share, code


def mla_bmm_sol(
    rows: MlaBmmRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """Roofline of each product [row, point]."""
    return _sol(rows, rows.heads, tokens, hardware)


def _sol(rows: MlaBmmRows, heads, tokens, hardware: Hardware):
    peak = hardware.peak[rows.dtype][:, None]
    return mla_bmm_sol_ms(tokens, heads[:, None], rows.element_bytes[:, None], peak, hardware.mem_bw)
