# SPDX-License-Identifier: Apache-2.0
"""Every measured grid of a system, as stacked slices over heads, lengths and batches; conventions of curves apply."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aicjax import quant
from aicjax._results import MissingPeak
from aicjax.calibrate.measured_curves import Place, places
from aicjax.hardware import System
from aicjax.ops.attention_tables import decode_fmha, load_attention, slice_sol_ms
from aicjax.ops.mla import BLOCK_PRODUCTS
from aicjax.ops.mla_roofline import (
    context_mla_sol_ms,
    generation_mla_sol_ms,
    sharded_heads,
    wideep_context_mla_sol_ms,
    wideep_generation_mla_sol_ms,
)
from aicjax.ops.mla_tables import load_mla
from aicjax.ops.records import (
    ContextMla,
    GenerationMla,
    MlaModuleContext,
    MlaModuleGeneration,
    WideEpContextMla,
    WideEpGenerationMla,
)
from aicjax.ops.wideep_mla import SCORE_DTYPE

PREFILL_SQRT_AXIS = 1  # lengths, after heads: prefill latency is blended by its square root along them
ATTENTION_FAMILIES = {
    "context": "context_attention",
    "generation": "generation_attention",
    "encoder": "encoder_attention",
}
MLA_FAMILIES = {
    ContextMla: "context_mla",
    MlaModuleContext: "context_mla",
    GenerationMla: "generation_mla",
    MlaModuleGeneration: "generation_mla",
    WideEpContextMla: "wideep_context_mla",
    WideEpGenerationMla: "wideep_generation_mla",
}
GRID_FAMILIES = (*ATTENTION_FAMILIES.values(), *dict.fromkeys(MLA_FAMILIES.values()))


@dataclass(frozen=True)
class GridTable:
    """Slices of one table on shared knots.

    Attributes:
        family: Kind of operator.
        place: Where they were measured.
        keys: What selects each slice.
        knots: Coordinates of each axis, heads first, ascending.
        latency_ms: Latency, NaN where not measured [slice, *axis].
        sol_ms: Roofline [slice, *axis].
        sqrt_axis: Axis along which the square root of latency is linear; None for none.
    """

    family: str
    place: Place
    keys: tuple[Any, ...]
    knots: tuple[np.ndarray, ...]
    latency_ms: np.ndarray
    sol_ms: np.ndarray
    sqrt_axis: int | None = None


def grid_tables(system: System, families: Sequence[str]) -> Iterator[GridTable]:
    """All grids of a system; slices whose format the system states no peak for are left out.

    Args:
        system: The hardware.
        families: Kinds of operators, of `GRID_FAMILIES`; others are passed over.
    """
    for place in places(system):
        for phase, family in ATTENTION_FAMILIES.items():
            if family in families:
                yield from _attention(place, phase)
        for record, family in MLA_FAMILIES.items():
            if family in families:
                yield from _latent(place, record)


def _attention(place: Place, phase: str) -> Iterator[GridTable]:
    table = load_attention(*place.where, phase)
    if table is None:
        return

    def sol(key: Any, heads, outer, inner) -> np.ndarray:
        return slice_sol_ms(place.system, phase, key[1], heads, outer, inner)

    axes = (table.heads, table.outer, table.inner)
    for grid in _grid(ATTENTION_FAMILIES[phase], place, table.slices, table.slice_of, axes, table.latency_ms, sol):
        if phase == "generation":  # measured decode attention counts as no faster than its roofline
            yield replace(grid, latency_ms=np.maximum(grid.latency_ms, grid.sol_ms))
        else:
            yield replace(grid, sqrt_axis=PREFILL_SQRT_AXIS)


def _latent(place: Place, record: type) -> Iterator[GridTable]:
    table = load_mla(*place.where, record)
    if table is None:
        return

    def sol(key: Any, heads, outer, inner) -> np.ndarray:
        return _mla_sol_ms(place, record, key, heads, outer, inner)

    sqrt_axis = PREFILL_SQRT_AXIS if "context" in MLA_FAMILIES[record] else None
    axes = (table.heads, table.outer, table.inner)
    for grid in _grid(MLA_FAMILIES[record], place, table.keys, table.slice_of, axes, table.latency_ms, sol):
        yield replace(grid, sqrt_axis=sqrt_axis)


def _grid(
    family: str, place: Place, keys: Sequence[Any], slice_of, axes, latency_ms, sol: Callable[..., np.ndarray]
) -> Iterator[GridTable]:
    """Points as one stack of grids; slices without a roofline are left out, nothing comes when none is left."""
    knots = tuple(np.unique(axis).astype(np.float64) for axis in axes)
    mesh = np.meshgrid(*knots, indexing="ij")
    sols: dict[int, np.ndarray] = {}
    for index, key in enumerate(keys):
        try:
            sols[index] = np.broadcast_to(sol(key, *mesh), mesh[0].shape)
        except MissingPeak:
            continue
    if not sols:
        return
    row = np.full(len(keys), -1)
    row[list(sols)] = np.arange(len(sols))
    kept = row[slice_of] >= 0
    at = [np.searchsorted(k, axis[kept]) for k, axis in zip(knots, axes, strict=True)]
    dense = np.full((len(sols), *mesh[0].shape), np.nan)
    dense[(row[slice_of[kept]], *at)] = latency_ms[kept]
    yield GridTable(family, place, tuple(keys[i] for i in sols), knots, dense, np.stack(list(sols.values())))


def _mla_sol_ms(place: Place, record: type, key: tuple[Any, ...], heads, outer, inner) -> np.ndarray:
    """Roofline of latent attention, as its operators bind it."""
    system, bandwidth = place.system, place.bandwidth
    if record in (ContextMla, MlaModuleContext):
        fmha, kv, *_ = key
        peak = place.peak(quant.FMHA[fmha].dtype)
        return context_mla_sol_ms(inner, outer, 0.0, heads, quant.KVCACHE[kv].bytes, peak, bandwidth, xp=np)
    if record in (GenerationMla, MlaModuleGeneration):
        kv, *rest = key
        products = BLOCK_PRODUCTS if record is MlaModuleGeneration else 0
        form = quant.GEMM[rest[0] if products else "bfloat16"]
        peak, product_peak = place.peak(decode_fmha(system, kv)), place.peak(form.dtype)
        of_block = (quant.KVCACHE[kv].bytes, peak, products, form.bytes, product_peak, bandwidth)
        return generation_mla_sol_ms(outer, inner, heads, *of_block, xp=np)
    context = record is WideEpContextMla
    form = quant.FMHA[key[1] if context else decode_fmha(system, key[1])]
    of_block = (form.bytes, place.peak(form.dtype), place.peak(SCORE_DTYPE), bandwidth)
    whole = sharded_heads(heads, xp=np)
    if context:
        return wideep_context_mla_sol_ms(inner, outer, 0.0, whole, *of_block, xp=np)
    return wideep_generation_mla_sol_ms(outer, inner, whole, *of_block, xp=np)
