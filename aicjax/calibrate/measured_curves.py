# SPDX-License-Identifier: Apache-2.0
"""Every measured curve of a system, as stacked arrays over tokens or sizes.

Families are named as the kinds of `ops.kinds` are. Each file is read alone: what another version or backend measured
is no part of it. Latencies and rooflines are those that operators interpolate in, in float64.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from aicjax import quant
from aicjax._units import MS_PER_S
from aicjax.hardware import System
from aicjax.interp.ends import Curve
from aicjax.ops import comm, exchange_tables, expert_tables, gemm_tables, mla_bmm, moe_tables
from aicjax.ops.expert_work import ExpertLoad, ExpertShape, host_sol_ms
from aicjax.ops.mla_roofline import mla_bmm_sol_ms
from aicjax.tables import available

Sol = Callable[[Any, np.ndarray], np.ndarray]  # roofline [ms] of a curve's key at its knots


class Place(NamedTuple):
    """Where a table was measured: the system, the backend or library, and its version."""

    system: System
    backend: str
    version: str

    @property
    def where(self) -> tuple[System, str, str, bool]:
        """What a table's own file is loaded by."""
        return self.system, self.backend, self.version, False

    def peak(self, dtype: str) -> float:
        """Peak of a data type [operations/ms]; raises MissingPeak where the system states none."""
        return self.system.peak(dtype) / MS_PER_S

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth [bytes/ms]."""
        return self.system.mem_bw_bytes_per_s / MS_PER_S


@dataclass(frozen=True)
class CurveTable:
    """Curves of one format on shared knots.

    Attributes:
        family: Kind of operator.
        place: Where they were measured.
        form: Number format and whatever else a table keys on.
        sites: Coordinates of each curve, > 0 [curve, axis].
        ranks: What must be equal for a curve to lend to another [curve, part].
        knots: Tokens or elements, ascending [knot].
        latency_ms: Latency, NaN where not measured [curve, knot].
        sol_ms: Roofline; NaN for exchanges that have none [curve, knot].
    """

    family: str
    place: Place
    form: str
    sites: np.ndarray
    ranks: np.ndarray
    knots: np.ndarray
    latency_ms: np.ndarray
    sol_ms: np.ndarray


def places(system: System) -> list[Place]:
    """Where tables of a system were measured: all backends and versions."""
    return [Place(system, backend, v) for backend, versions in available(system.name).items() for v in versions]


def curve_tables(system: System, families: Sequence[str]) -> Iterator[CurveTable]:
    """All curves of a system; formats that the system states no peak for are left out.

    Args:
        system: The hardware.
        families: Kinds of operators, of `CURVE_FAMILIES`; others are passed over.
    """
    for place in places(system):
        for family, curves in _CURVES.items():
            if family in families:
                yield from curves(place)
    if "comm" in families:
        yield from _libraries(system)


def _stacked(
    family: str, place: Place, form: str, curves: Mapping[Any, Curve], sol, ranks_from: int, **options
) -> CurveTable:
    """Curves by key as one table; the parts of a key are positive numbers, those from `ranks_from` on its ranks."""
    knots = np.unique(np.concatenate([at for at, _ in curves.values()]))
    latency = np.full((len(curves), knots.size), np.nan)
    for row, (at, values) in enumerate(curves.values()):
        latency[row, np.searchsorted(knots, at)] = values
    keys = np.array([key if isinstance(key, tuple) else (key,) for key in curves], np.float64)
    sol_ms = np.stack([np.broadcast_to(sol(key, knots), knots.shape) for key in curves])
    return CurveTable(
        family, place, form, keys[:, :ranks_from], keys[:, ranks_from:], knots, latency, sol_ms, **options
    )


def _gemm(place: Place) -> Iterator[CurveTable]:
    for form in gemm_tables.measured_formats(*place.where):
        table = gemm_tables.load_gemm(*place.where, form)
        if table is None or quant.GEMM[form].dtype not in place.system.peak_flops:
            continue
        sol = gemm_tables.host_sol_ms(place.system, form, table.knots, *(axis[:, None] for axis in table.sites.T))
        knots, sites = table.knots.astype(np.float64), table.sites.astype(np.float64)
        ranks = np.zeros((len(sites), 0))
        yield CurveTable("gemm", place, form, sites, ranks, knots, table.latency_ms, sol)


def _moe(place: Place) -> Iterator[CurveTable]:
    table = moe_tables.load_moe(*place.where)
    for kernel, formats in (("", table.main), (" low latency", table.low_latency)):
        for form, distributions in formats.items():
            if form not in quant.MOE or quant.MOE[form].dtype not in place.system.peak_flops:
                continue

            def sol(shape: ExpertShape, tokens: np.ndarray, form: str = form) -> np.ndarray:
                return host_sol_ms(place.system, ExpertLoad(shape, form, True), tokens)

            for distribution, shapes in distributions.items():
                yield _stacked("moe", place, f"{form} {distribution}{kernel}", shapes, sol, 4)


def _expert_compute(place: Place) -> Iterator[CurveTable]:
    for (kernel, form), distributions in expert_tables.load_experts(*place.where).items():
        if form not in quant.MOE or quant.MOE[form].dtype not in place.system.peak_flops:
            continue

        def sol(key: tuple[float, ...], tokens: np.ndarray, form: str = form) -> np.ndarray:
            *shape, tp, ep, slots = (int(part) for part in key)
            topk, _, hidden, inter = shape
            load = ExpertLoad(ExpertShape(topk, slots, hidden, inter, tp, ep), form, True, by_class=True)
            return host_sol_ms(place.system, load, tokens)

        for distribution, phases in distributions.items():
            for phase, shapes in phases.items():
                curves = {(*shape, slots): curve for (shape, slots), curve in shapes.items()}
                yield _stacked("expert_compute", place, f"{kernel} {form} {distribution} {phase}", curves, sol, 4)


def _all_to_all(place: Place) -> Iterator[CurveTable]:
    for (library, phase), formats in exchange_tables.load_exchanges(*place.where).items():
        for form, places in formats.items():
            curves = {
                (at.hidden_size, at.topk, at.num_experts, at.moe_ep, at.nodes, sms + 1): curve
                for at, by_sms in places.items()
                for sms, curve in by_sms.items()
            }
            yield _stacked("all_to_all", place, f"{library} {phase} {form}", curves, lambda key, tokens: tokens, 4)


def _mla_bmm(place: Place) -> Iterator[CurveTable]:
    curves = mla_bmm.load_mla_bmm(*place.where).curves
    for form, product in dict.fromkeys((form, product) for form, product, _ in curves):
        if form not in quant.GEMM or quant.GEMM[form].dtype not in place.system.peak_flops:
            continue
        mode, peak, bandwidth = quant.GEMM[form], place.peak(quant.GEMM[form].dtype), place.bandwidth

        def sol(heads: int, tokens: np.ndarray, mode=mode, peak=peak, bandwidth=bandwidth) -> np.ndarray:
            return mla_bmm_sol_ms(tokens, heads, mode.bytes, peak, bandwidth, xp=np)

        own = {heads: curve for (f, p, heads), curve in curves.items() if (f, p) == (form, product)}
        yield _stacked("mla_bmm", place, f"{form} {product}", own, sol, 1)


def _allreduce(place: Place) -> Iterator[CurveTable]:
    curves = {group: curve for group, curve in comm.load_allreduce(*place.where).items() if group > 1}
    if curves:
        yield _collective(place, "all_reduce", curves, lambda group: comm.ALLREDUCE_VOLUME)


def _libraries(system: System) -> Iterator[CurveTable]:
    for library in comm.LIBRARY_TABLES:
        table = comm.load_library(system, library)
        version = (system.nccl_version if library == "nccl" else system.oneccl_version) or ""
        for form, operation in dict.fromkeys(key[:2] for key in table):
            curves = {key[2]: curve for key, curve in table.items() if key[:2] == (form, operation) and key[2] > 1}
            volume = comm.VOLUME.get(operation, 0.0) * quant.COMM[form].bytes
            yield _collective(Place(system, library, version), f"{form} {operation}", curves, lambda group, v=volume: v)


def _collective(place: Place, form: str, curves: Mapping[int, Curve], volume) -> CurveTable:
    def sol(group: int, elements: np.ndarray) -> np.ndarray:
        crossing = volume(group) * (group - 1) / group
        return elements * crossing / place.system.p2p_bw(group) * MS_PER_S

    return _stacked("comm", place, form, curves, sol, 1)


_CURVES = {
    "gemm": _gemm,
    "moe": _moe,
    "expert_compute": _expert_compute,
    "all_to_all": _all_to_all,
    "mla_bmm": _mla_bmm,
    "comm": _allreduce,
}
CURVE_FAMILIES = tuple(_CURVES)
