# SPDX-License-Identifier: Apache-2.0
"""Measured modules with an indexer (DSA and MSA), by phase, architecture, formats and kernel lane.

A later row of a file corrects an earlier one; among files the first counts.
"""

import functools
from typing import NamedTuple

import numpy as np

from aicjax.hardware import System
from aicjax.ops.module_tables import ModuleTable, Points, module_table
from aicjax.tables import first_rows
from aicjax.tables.repair import is_repaired, read_repaired

TRTLLM, FLASHMLA = "trtllm", "flashmla_kv"
LANES = (FLASHMLA, TRTLLM)  # the order in which lanes stand in for one another
SKIP = "skip_indexer"  # in the name of an operation that reuses another layer's selection
# Kernels of a lane other than their name says; any other is of the lane whose name it contains, or FLASHMLA.
KERNEL_LANES = {"sglang_dsa_dense_mha_trtllm_ragged": LANES}
LANE_FREE_KV = "bfloat16"  # cache format that all lanes run with the same kernel


class DsaKey(NamedTuple):
    """What selects the measured points of one module; `fmha` is empty where a table does not key on it."""

    skips: bool
    architecture: str
    fmha: str
    kv: str
    gemm: str
    lane: str


@functools.lru_cache(maxsize=32)
def load_dsa(
    system: System,
    backend: str,
    version: str,
    shared: bool,
    family: str,
    phase: str,
    keys_fmha: bool,
    repaired: bool = False,
) -> ModuleTable | None:
    """A table of family `dsa` or `msa`; None when nothing was measured.

    Without `keys_fmha` rows of all attention formats are one shape, and the last name in the alphabet counts.
    """
    rows = read_repaired(system.name, backend, version, f"{family}_{phase}_module_perf", shared, repaired)
    if rows is None or not len(rows):
        return None
    fmha, fmhas = rows.text("mla_dtype")
    rank = np.zeros(len(rows), np.int64) if keys_fmha else -np.argsort(np.argsort(fmhas))[fmha]
    rows = rows.select(np.lexsort((-np.arange(len(rows)), rows.source, rank)))
    (op, ops), (architecture, architectures) = rows.text("op_name", ""), rows.text("architecture")
    (kv, kvs), (gemm, gemms) = rows.text("kv_cache_dtype"), rows.text("gemm_type")
    (kernel, kernels), (fmha, fmhas) = rows.text("kernel_source", ""), rows.text("mla_dtype")
    if not keys_fmha:
        fmha, fmhas = np.zeros_like(fmha), ("",)
    skips = np.array([SKIP in name for name in ops])[op].astype(np.int64)
    sizes = (2, len(architectures), len(fmhas), len(kvs), len(gemms))
    shape = np.ravel_multi_index((skips, architecture, fmha, kv, gemm), sizes)
    heads, batch, length = rows.number("num_heads"), rows.number("batch_size"), rows.number("isl")
    step, latency, lowered = rows.number("step"), rows.number("latency"), is_repaired(rows)
    points = (heads, step, length, batch) if phase == "context" else (heads, batch, length + step)
    slices = {}
    for lane in LANES:
        member = np.array([[lane in _lanes(k, v) for v in kvs] for k in kernels], bool)[kernel, kv]
        mine = np.flatnonzero(member)
        mine = mine[first_rows(shape[mine], *(axis[mine] for axis in points))]

        def name(code: int, lane: str = lane) -> DsaKey:
            skip, a, f, k, g = (int(i) for i in np.unravel_index(code, sizes))
            return DsaKey(bool(skip), architectures[a], fmhas[f], kvs[k], gemms[g], lane)

        slices |= module_table(shape[mine], name, [axis[mine] for axis in points], latency[mine], lowered[mine])
    return ModuleTable(slices)


def _lanes(kernel: str, kv: str) -> tuple[str, ...]:
    """Lanes that run a kernel."""
    if kv == LANE_FREE_KV:
        return LANES
    return KERNEL_LANES.get(kernel, (TRTLLM,) if TRTLLM in kernel else (FLASHMLA,))


def find_dsa(table: ModuleTable | None, key: DsaKey) -> Points | None:
    """Points of a shape in its lane, else in another; None when neither measured it."""
    if table is None:
        return None
    lanes = (key.lane, *LANES)
    return next((points for lane in lanes if (points := table.slices.get(key._replace(lane=lane))) is not None), None)


def has_skips(table: ModuleTable | None) -> bool:
    """Whether any layer without an indexer was measured, of whatever shape."""
    return table is not None and any(key.skips for key in table.slices if isinstance(key, DsaKey))
