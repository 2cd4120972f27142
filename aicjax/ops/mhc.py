# SPDX-License-Identifier: Apache-2.0
"""Hyper-connections: the mixing of residual streams before and after a block, each a curve of tokens."""

import functools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

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
from aicjax.ops.records import Mhc
from aicjax.ops.roofline import Hardware, dtype_index
from aicjax.tables import read_rows

TABLE = "mhc_module_perf"
PARTS = ("pre", "post")  # measured apart; `both` is their sum
LEAF_BUCKET = 64
STREAM_WEIGHT_BYTES = 4  # the weights of the streams, mixed at full precision

Key = tuple[str, int, int]


class MhcRows(eqx.Module):
    """Distinct mixings of residual streams.

    Attributes:
        curves: Latency over tokens of each part of `PARTS`, one after another for each row [2 row].
        samples: Points that estimate where a curve does not answer [2 row].
        runs: Which parts an operator has [row, part].
        streams: Residual streams [row].
        hidden: Width of each [row].
        iterations: Rounds that balance the mixing matrix [row].
        weight_count: Mixing weights read from memory [row].
        element_bytes: Bytes per element [row].
        dtype: Position of the data type in `Hardware.peak` [row].
    """

    curves: EndCurves
    samples: Samples
    runs: Bool[Array, "row part"]
    streams: Float[Array, " row"]
    hidden: Float[Array, " row"]
    iterations: Float[Array, " row"]
    weight_count: Float[Array, " row"]
    element_bytes: Float[Array, " row"]
    dtype: Int[Array, " row"]


def mhc_sol_ms(tokens, pre, post, streams, hidden, iterations, weight_count, element_bytes, peak, mem_bw, xp=jnp):
    """Bound of the parts that run (`pre`, `post`: 1 or 0): operations at the peak, or traffic through memory.

    Before a block the streams are projected to mixing weights, normalised, balanced and summed; after it they are
    mixed and the block's output is added. Both in one read the streams once.
    """
    width, mixes = streams * hidden, streams * (streams + 2)
    before = 2 * tokens * width * mixes + 3 * tokens * width + tokens * mixes * iterations + 2 * tokens * width
    after = 2 * tokens * streams * width + 2 * tokens * width
    operations = 2 * (pre * before + post * after)
    moved = (weight_count + 2 * (1 + pre + post) * tokens * width) * element_bytes
    moved = moved + pre * 2 * STREAM_WEIGHT_BYTES * tokens * mixes
    return xp.maximum(operations / peak, moved / mem_bw)


@functools.lru_cache(maxsize=32)
def load_mhc(system: System, backend: str, version: str, shared: bool) -> dict[Key, Curve]:
    """Curves `(tokens, latency_ms)` by part, streams and width."""
    rows = read_rows(system.name, backend, version, TABLE, shared)
    if rows is None:
        return {}
    part, parts = rows.text("op_name")
    columns = (part, rows.number("hc_mult"), rows.number("hidden_size"))
    curves = keyed_curves(columns, rows.number("num_tokens"), rows.number("latency"))
    return {(parts[key[0]], key[1], key[2]): curve for key, curve in curves.items()}


def mhc_available(database: Database, record: Mhc) -> bool:
    """Whether all parts of an operator were measured at its shape."""
    return all(curve is not NO_CURVE for curve in _curves(database, record) if curve is not None)


def _curves(database: Database, record: Mhc) -> list[Curve | None]:
    """Measured curve of each part of `PARTS`; None for one that does not run."""
    table = load_mhc(*database.where)
    keys = [(part, record.hc_mult, record.hidden_size) for part in PARTS]
    return [table.get(key, NO_CURVE) if record.part in (key[0], "both") else None for key in keys]


def bind_mhc(database: Database, records: Sequence[Mhc], *, rows: int) -> MhcRows:
    """Rows for `records`, padded to `rows`.

    Raises:
        MissingPeak: The system states no peak for a format.
    """
    curves, rooflines, samples = [], [], []
    for record in records:
        for part, curve in zip(PARTS, _curves(database, record), strict=True):
            tokens, latency_ms = curve or NO_CURVE
            sol = _part_sol_ms(database.system, record, part, tokens)
            with np.errstate(divide="ignore"):
                utilization = sol / latency_ms
            curves.append((tokens, latency_ms) if database.interpolates else NO_CURVE)
            rooflines.append(sol if database.interpolates else NO_CURVE[1])
            samples.append((tokens, utilization) if database.estimates else NO_CURVE)
    leaves = -(-max([tokens.size for tokens, _ in samples] + [1]) // LEAF_BUCKET) * LEAF_BUCKET
    bound = [bind_samples((tokens,), utilization, leaves) for tokens, utilization in samples]
    bound += [no_samples(1, leaves)] * (2 * rows - len(bound))
    formats = [quant.GEMM[r.quant] for r in records]

    def column(values, pad=1, dtype: type = np.float32):
        return np.array([*values, *[pad] * (rows - len(records))], dtype)

    return MhcRows(
        curves=bind_end_curves(curves, rooflines, rows=2 * rows),
        samples=jax.tree.map(lambda *leaf: np.stack(leaf), *bound),
        runs=np.stack([column([r.part in (part, "both") for r in records], False, np.bool_) for part in PARTS], 1),
        streams=column([r.hc_mult for r in records]),
        hidden=column([r.hidden_size for r in records]),
        iterations=column([r.sinkhorn_iters for r in records]),
        weight_count=column([r.weight_count for r in records]),
        element_bytes=column([f.bytes for f in formats]),
        dtype=column([dtype_index(f.dtype) for f in formats], 0, np.int32),
    )


def _part_sol_ms(system: System, record: Mhc, part: str, tokens: np.ndarray) -> np.ndarray:
    """Roofline of one part alone at measured points, on the host in float64."""
    form = quant.GEMM[record.quant]
    shape = (record.hc_mult, record.hidden_size, record.sinkhorn_iters, record.weight_count, form.bytes)
    rates = (system.peak(form.dtype) / MS_PER_S, system.mem_bw_bytes_per_s / MS_PER_S)
    return mhc_sol_ms(tokens, part == "pre", part == "post", *shape, *rates, xp=np)


def mhc_latency(
    rows: MhcRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each operator, the sum of its parts, and how it was obtained."""
    sols = [_sol(rows, tokens, hardware, *flags) for flags in ((1.0, 0.0), (0.0, 1.0))]
    sol, twice = jnp.stack(sols, 1).reshape(-1, tokens.shape[-1]), jnp.repeat(tokens, 2, 0)
    latency, code = end_latency(rows.curves, twice, sol)
    missed = code == Provenance.MISSING
    utilization = estimated_utilization(rows.samples, (twice,), missed)
    estimated = missed & (utilization > 0)
    latency = jnp.where(missed, jnp.where(estimated, sol / jnp.where(estimated, utilization, 1.0), jnp.nan), latency)
    code = jnp.where(estimated, Provenance.EMPIRICAL, code)
    runs = rows.runs[..., None]
    latency, code = (x.reshape(*rows.runs.shape, -1) for x in (latency, code))
    latency, code = jnp.where(runs, latency, 0.0), jnp.where(runs, code, Provenance.NONE)
    return latency.sum(1), code.max(1).astype(jnp.int32)


def mhc_sol(
    rows: MhcRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """Roofline of each operator [ms], its parts as one."""
    return _sol(rows, tokens, hardware, *jnp.moveaxis(rows.runs[..., None].astype(tokens.dtype), 1, 0))


def _sol(rows: MhcRows, tokens, hardware: Hardware, pre, post):
    shape = (rows.streams, rows.hidden, rows.iterations, rows.weight_count, rows.element_bytes)
    peak = hardware.peak[rows.dtype][:, None]
    return mhc_sol_ms(tokens, pre, post, *[x[:, None] for x in shape], peak=peak, mem_bw=hardware.mem_bw)
