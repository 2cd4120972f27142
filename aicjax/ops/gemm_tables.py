# SPDX-License-Identifier: Apache-2.0
"""Measured matrix products: all shapes of a format, one curve of tokens each."""

import functools
from dataclasses import dataclass

import numpy as np

from aicjax import quant
from aicjax.hardware import System
from aicjax.ops.roofline import gemm_sol_ms
from aicjax.tables import first_rows, read_rows
from aicjax.tables.repair import is_repaired, read_repaired

TABLE = "gemm_perf"
LEGACY_FORMATS = ("awq", "gptq")  # rows of formats that no mode uses


@dataclass(frozen=True)
class GemmSites:
    """All measured shapes of one format.

    Attributes:
        sites: Shapes `(n, k)` in the order in which they were first met [site, 2].
        knots: Token counts, ascending [knot].
        latency_ms: Latency, never below the roofline [site, knot]; NaN where not measured.
        first, last: First and last measured token count of each shape [site].
        repaired: Whether the time of a host was taken out.
    """

    sites: np.ndarray
    knots: np.ndarray
    latency_ms: np.ndarray
    first: np.ndarray
    last: np.ndarray
    repaired: bool = False


def table_format(mode: str) -> str:
    """The format whose measured rows answer for a mode: static scales have none of their own."""
    return "fp8" if mode == "fp8_static" else mode


@functools.lru_cache(maxsize=64)
def load_gemm(
    system: System, backend: str, version: str, shared: bool, mode: str, repaired: bool = False
) -> GemmSites | None:
    """Measured shapes of one format, clamped to the roofline; None when nothing was measured."""
    rows = read_repaired(system.name, backend, version, TABLE, shared, repaired)
    if rows is None:
        return None
    codes, formats = rows.text("gemm_dtype")
    if mode in LEGACY_FORMATS or mode not in formats:
        return None
    rows = rows.select(codes == formats.index(mode))
    m, n, k = (rows.number(c).astype(np.int64) for c in ("m", "n", "k"))
    keep = first_rows(m, n, k)
    lowered = bool(is_repaired(rows)[keep].any())
    m, n, k, latency = m[keep], n[keep], k[keep], rows.number("latency")[keep].astype(np.float64)
    form = quant.GEMM[mode]
    if form.dtype in system.peak_flops:
        sol = host_sol_ms(system, mode, m, n, k)
        latency = np.maximum(latency, sol)
    order = _first_met(m, n, k)
    shape = n * (k.max() + 1) + k
    _, where, site = np.unique(shape[order], return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(where))
    knots, column = np.unique(m, return_inverse=True)
    sites = np.empty((rank.size, 2), np.int64)
    sites[rank] = np.stack([n, k], -1)[order][where]
    dense = np.full((rank.size, knots.size), np.nan)
    dense[rank[site], column[order]] = latency[order]
    measured = np.isfinite(dense)
    last = knots.size - 1 - measured[:, ::-1].argmax(-1)
    return GemmSites(sites, knots, dense, knots[measured.argmax(-1)], knots[last], lowered)


@functools.lru_cache(maxsize=32)
def measured_formats(system: System, backend: str, version: str, shared: bool) -> tuple[str, ...]:
    """Formats that were measured and that a mode exists for, as first met."""
    rows = read_rows(system.name, backend, version, TABLE, shared)
    if rows is None:
        return ()
    codes, formats = rows.text("gemm_dtype")
    met, first = np.unique(codes, return_index=True)
    return tuple(form for at in met[np.argsort(first)] if (form := formats[at]) in quant.GEMM)


def _first_met(m: np.ndarray, n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Row order of the walk that ranks shapes: by first `m`, then first `n` under it, then first `k` under both."""
    row = np.arange(m.size)
    by_m = _first_index(m)
    by_n = _first_index(m * (n.max() + 1) + n)
    return np.lexsort((row, by_n, by_m))


def _first_index(key: np.ndarray) -> np.ndarray:
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first[inverse]


def host_sol_ms(system: System, mode: str, m, n, k) -> np.ndarray:
    """Roofline of products of a format, in float64."""
    form = quant.GEMM[mode]
    bandwidth = system.mem_bw_bytes_per_s / 1e3
    m, n, k = (np.asarray(x, np.float64) for x in (m, n, k))
    return gemm_sol_ms(m, n, k, form.bytes, system.peak(form.dtype) / 1e3, bandwidth, xp=np)
