# SPDX-License-Identifier: Apache-2.0
"""Measured experts of large expert parallelism: which curve of tokens answers for a kernel, a format and a shape."""

import functools

import numpy as np

from aicjax.hardware import System
from aicjax.interp.ends import Curve
from aicjax.ops.expert_work import ExpertShape
from aicjax.ops.keyed_curves import keyed_curves
from aicjax.ops.moe_tables import SPARE_DISTRIBUTION
from aicjax.tables import Rows, first_rows, read_rows

DEEPEP_KERNEL = "deepep_moe"
PHASE_TABLES = {"context": "wideep_context_moe_perf", "generation": "wideep_generation_moe_perf"}
BOTH_PHASES_TABLE = "wideep_moe_perf"

Phases = dict[str, dict[tuple[ExpertShape, int], Curve]]
Kernels = dict[tuple[str, str], dict[str, Phases]]


@functools.lru_cache(maxsize=32)
def load_experts(system: System, backend: str, version: str, shared: bool) -> Kernels:
    """Curves by (kernel, format), distribution as first met, phase, and (shape, expert slots)."""
    found: Kernels = {}
    for phase, table in PHASE_TABLES.items():
        if (rows := read_rows(system.name, backend, version, table, shared)) is not None:
            kernel = (np.zeros(len(rows), np.int32), (DEEPEP_KERNEL,))
            _add(found, rows, kernel, rows.number("num_experts"), (phase,))
    if (rows := read_rows(system.name, backend, version, BOTH_PHASES_TABLE, shared)) is not None:
        _add(found, rows, rows.text("kernel_source"), rows.number("num_slots"), tuple(PHASE_TABLES))
    return found


def _add(
    found: Kernels, rows: Rows, kernel: tuple[np.ndarray, tuple[str, ...]], slots: np.ndarray, phases: tuple[str, ...]
) -> None:
    """Curves of one table, for each of `phases`."""
    texts = (kernel, rows.text("moe_dtype"), rows.text("distribution"))
    codes = [code for code, _ in texts]

    def distribution_of(key) -> Phases:
        kernel, form, distribution = (words[code] for code, (_, words) in zip(key, texts, strict=True))
        return found.setdefault((kernel, form), {}).setdefault(distribution, {})

    for row in first_rows(*codes):  # a kernel ranks its distributions as it first met them
        distribution_of([code[row] for code in codes])
    sizes = [rows.number(column) for column in ("topk", "num_experts", "hidden_size", "inter_size")]
    ranks = [rows.number(column) for column in ("moe_tp_size", "moe_ep_size")]
    curves = keyed_curves((*codes, slots, *sizes, *ranks), rows.number("num_tokens"), rows.number("latency"))
    for (*text, count, topk, experts, hidden, inter, tp, ep), curve in curves.items():
        place = (ExpertShape(topk, experts, hidden, inter, tp, ep), count)
        for phase in phases:
            distribution_of(text).setdefault(phase, {}).setdefault(place, curve)


def experts_of(
    kernels: Kernels, kernel: str, form: str, distribution: str, phase: str
) -> dict[tuple[ExpertShape, int], Curve]:
    """Curves of a kernel and format in a phase: of the distribution asked for, the spare one, or the first measured."""
    known = kernels.get((kernel, form), {})
    for name in (distribution, SPARE_DISTRIBUTION, *known):
        if shapes := known.get(name, {}).get(phase):
            return shapes
    return {}
