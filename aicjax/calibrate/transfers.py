# SPDX-License-Identifier: Apache-2.0
"""How well what stands in for a missing table predicts measured ones: siblings in format or shape, donors, rooflines.

Each table is taken as if it were missing, and its points are predicted by the rule that would then answer. Errors
are named after the provenance that such an answer has, in lower case; two channels by which tables of others fill
gaps have names of their own, `other_version` and `other_backend`, since answers keep the provenance of the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from aicjax import quant
from aicjax.calibrate.held_out import neighbours, take
from aicjax.calibrate.leave_one_out import OWN_RULE, Errors, log_ratios
from aicjax.calibrate.measured_curves import CurveTable, Place, curve_tables
from aicjax.calibrate.measured_grids import ATTENTION_FAMILIES, MLA_FAMILIES, GridTable, grid_tables
from aicjax.constants import OpConstants, load_constants
from aicjax.hardware import System
from aicjax.interp.axis import NO_KEY
from aicjax.ops import gemm_tables
from aicjax.ops.attention_estimate import USUAL_HEAD_SIZE
from aicjax.ops.attention_tables import TABLES as ATTENTION_TABLES
from aicjax.ops.mla_tables import TABLES as MLA_TABLES
from aicjax.tables import available, newest_versions, read_rows
from aicjax.tables.rows import Rows
from aicjax.tables.schema import TABLES as SCHEMAS
from aicjax.tables.tree import BACKENDS

DONATED = {
    "gemm_perf": "gemm",
    "moe_perf": "moe",
    "custom_allreduce_perf": "comm",
    "mla_bmm_perf": "mla_bmm",
    **{table: ATTENTION_FAMILIES[phase] for phase, table in ATTENTION_TABLES.items()},
    **{table.name: MLA_FAMILIES[record] for record, table in MLA_TABLES.items()},
}  # tables whose gaps those of other versions and backends fill
CHANNELS = {"declared_reuse": "other_version", "fallback": "other_version", "cross_backend": "other_backend"}
TWO_POINT_FAMILIES = ("comm", "moe", "mla_bmm")  # estimates of a measured curve rest on its own points
SIZED_FAMILIES = ("context_attention", "generation_attention")  # that another head size may lend to
FORMATS = {"gemm": quant.GEMM, "moe": quant.MOE}  # families that another format may lend to
ROOFLESS = ("all_to_all",)  # families whose roofline is no bound


def transfer_errors(system: System, families: Sequence[str]) -> Iterator[Errors]:
    """Errors of all that can stand in for the tables of a system.

    Args:
        system: The hardware.
        families: Kinds of operators.
    """
    for (family, place), group in groupby(curve_tables(system, families), lambda table: (table.family, table.place)):
        siblings = list(group)
        for table in siblings:
            if family not in ROOFLESS:
                yield from _errors(table, "sol", table.sol_ms)
            if family in TWO_POINT_FAMILIES:
                yield from _errors(table, "empirical", two_point_latency(table.knots, table.latency_ms, table.sol_ms))
            if family == "moe":
                yield from _errors(table, "xshape", nearest_shape_latency(table))
        if family in FORMATS:
            yield from _formats(siblings, place, FORMATS[family])
    for table in grid_tables(system, families):
        yield from _errors(table, "sol", table.sol_ms)
        if table.family in SIZED_FAMILIES:
            yield from _head_sizes(table)
    yield from _other_backends(system, [family for family in FORMATS if family in families])
    yield from _donors(system, families)


def _errors(table: CurveTable | GridTable, kind: str, predicted: np.ndarray) -> Iterator[Errors]:
    return log_ratios(table, kind, predicted, table.latency_ms)


def two_point_latency(knots: np.ndarray, latency_ms: np.ndarray, sol_ms: np.ndarray) -> np.ndarray:
    """Latency of each point from the two nearest others of its curve [curve, knot]."""
    utilization = sol_ms / latency_ms
    near = neighbours(np.isfinite(latency_ms))
    far = near.beyond()
    at = np.stack([near.below, near.above, far.below, far.above])
    logs = np.log(knots)
    away = np.where(at == NO_KEY, np.inf, np.abs(logs[np.maximum(at, 0)] - logs))
    first, second = np.argsort(away, axis=0, kind="stable")[:2, None]
    lent = np.stack([take(utilization, part) for part in at])
    u, v = (np.take_along_axis(lent, part, 0)[0] for part in (first, second))
    d, e = (np.take_along_axis(away, part, 0)[0] for part in (first, second))
    with np.errstate(invalid="ignore"):
        mean = np.where(np.isfinite(e), (u * e + v * d) / (d + e), u)
    return sol_ms / mean


def nearest_shape_latency(table: CurveTable) -> np.ndarray:
    """Latency of each curve at the utilisation of the nearest other shape of its group [curve, knot]."""
    logs = np.log(table.sites)
    nearest = np.full(len(logs), NO_KEY)
    group = np.unique(table.ranks, axis=0, return_inverse=True)[1].reshape(-1)
    for one in range(group.max() + 1):
        mine = np.flatnonzero(group == one)
        span = np.ptp(logs[mine], 0)
        place = logs[mine] / np.where(span > 0, span, 1.0)
        away = ((place - place[:, None]) ** 2).sum(-1)
        np.fill_diagonal(away, np.inf)
        if mine.size > 1:
            nearest[mine] = mine[away.argmin(-1)]
    utilization = (table.sol_ms / table.latency_ms)[nearest]
    return np.where((nearest != NO_KEY)[:, None], table.sol_ms / utilization, np.nan)


def _formats(tables: Sequence[CurveTable], place: Place, modes: Mapping[str, Any]) -> Iterator[Errors]:
    """Formats as lent by others: of the same profile (`xquant`), and of the nearest other profile (`xprofile`)."""
    if place.backend not in BACKENDS:
        return
    constants = load_constants(place.backend).op
    for table in tables:
        form, _, rest = table.form.partition(" ")
        others = [t for t in tables if t.form.partition(" ")[2] == rest and t is not table]
        for kind, lender in _format_lenders(form, others, modes):
            level = 1.0 if kind == "xquant" else _level(constants, table.family, form, lender.form.partition(" ")[0])
            latency = on_curves_of(table, lender)
            # Of one profile: the asker's roofline over the lender's latency; else the lender's own.
            roof = table.sol_ms if kind == "xquant" else on_curves_of(table, replace(lender, latency_ms=lender.sol_ms))
            yield from _errors(table, kind, table.sol_ms / (roof / latency * level))


def _format_lenders(form: str, others: Sequence[CurveTable], modes) -> Iterator[tuple[str, CurveTable]]:
    def profile(name: str) -> tuple[float, float]:
        return modes[name].bytes, modes[name].factor

    named = [(table.form.partition(" ")[0], table) for table in others]
    alike = [table for name, table in named if profile(name) == profile(form)]
    unlike = [(name, table) for name, table in named if profile(name) != profile(form)]
    if alike:
        yield "xquant", alike[0]
    if unlike:
        gap = [sum(abs(a - b) for a, b in zip(profile(name), profile(form), strict=True)) for name, _ in unlike]
        yield "xprofile", unlike[int(np.argmin(gap))][1]


def _other_backends(system: System, families: Sequence[str]) -> Iterator[Errors]:
    """Formats as the other backends measured them, and tables from which the time of a host was taken, beside them."""
    newest = newest_versions(system.name)
    tables = [t for t in curve_tables(system, families) if t.place.version == newest.get(t.place.backend)]
    for table in tables:
        alike = [t for t in tables if (t.family, t.form) == (table.family, table.form) and t is not table]
        if not alike:
            continue
        lent = np.exp(np.mean([np.log(on_curves_of(table, lender)) for lender in alike], 0))
        if table.family == "gemm":
            lent = on_curves_of(table, alike[0])
            if (repaired := _repaired(table)) is not None:
                yield from log_ratios(table, "repaired", on_curves_of(table, repaired), lent)
        yield from _errors(table, "xbackend", lent)


def _repaired(table: CurveTable) -> CurveTable | None:
    """Matrix products without the time of the host; None where the table timed none."""
    found = gemm_tables.load_gemm(*table.place.where, table.form, True)
    if found is None or not found.repaired:
        return None
    sites, knots = found.sites.astype(np.float64), found.knots.astype(np.float64)
    return replace(table, sites=sites, ranks=np.zeros((len(sites), 0)), knots=knots, latency_ms=found.latency_ms)


def on_curves_of(table: CurveTable, lender: CurveTable) -> np.ndarray:
    """Latency of another table at the curves and knots of one, NaN where it has none [curve, knot]."""
    own, other = _common_curves(table, lender)
    knots = np.isin(table.knots, lender.knots)
    values = np.full(table.latency_ms.shape, np.nan)
    values[np.ix_(own, knots)] = lender.latency_ms[other][:, np.searchsorted(lender.knots, table.knots[knots])]
    return values


def _level(constants: OpConstants, family: str, form: str, lender: str) -> float:
    levels = constants.gemm_format_efficiency if family == "gemm" else constants.moe_format_efficiency
    return levels[form] / levels[lender]


def _common_curves(first: CurveTable, second: CurveTable) -> tuple[np.ndarray, np.ndarray]:
    """Curves of both tables with the same key."""
    keys = [[tuple(key) for key in np.column_stack([t.sites, t.ranks]).tolist()] for t in (first, second)]
    place = {key: row for row, key in enumerate(keys[1])}
    both = [(row, place[key]) for row, key in enumerate(keys[0]) if key in place]
    return tuple(np.array(both, np.int64).reshape(-1, 2).T)  # type: ignore[return-value]


def _head_sizes(table: GridTable) -> Iterator[Errors]:
    """Attention as lent by another head size: the usual one or the nearest."""
    levels = load_constants(table.place.backend).op.context_head_size_efficiency
    slices = {key: row for row, key in enumerate(table.keys)}
    for (lane, key), row in slices.items():
        sizes = [
            other.head_size
            for at, other in slices
            if at == lane and replace(other, head_size=key.head_size) == key and other.head_size != key.head_size
        ]
        if not sizes:
            continue
        near = min(sizes, key=lambda size: abs(np.log(size / key.head_size)))
        size = USUAL_HEAD_SIZE if USUAL_HEAD_SIZE in sizes else near
        lender = slices[lane, replace(key, head_size=size)]
        context = table.family == "context_attention"
        level = _head_size_level(levels, key.head_size) / _head_size_level(levels, size) if context else 1.0
        utilization = table.sol_ms[lender] / table.latency_ms[lender] * level
        yield from log_ratios(table, "xshape", table.sol_ms[row] / utilization, table.latency_ms[row])


def _head_size_level(levels: Mapping[int, float], size: int) -> float:
    return float(np.interp(np.log2(size), np.log2(list(levels)), list(levels.values())))


def _donors(system: System, families: Sequence[str]) -> Iterator[Errors]:
    """Measurements of other versions and backends against the version's own."""
    for backend, versions in available(system.name).items():
        for version, names in versions.items():
            for name in (name for name in names if DONATED.get(name) in families):
                if (rows := read_rows(system.name, backend, version, name)) is not None:
                    yield from _donated(Place(system, backend, version), name, rows)


def _donated(place: Place, name: str, rows: Rows) -> Iterator[Errors]:
    key = [rows.text(c, "")[0] if _is_text(rows, c) else rows.number(c, 0) for c in SCHEMAS[name].key if rows.has(c)]
    order = np.lexsort((np.arange(len(rows)), rows.source, *key))
    columns = np.stack([np.asarray(column)[order] for column in key])
    same = (columns[:, 1:] == columns[:, :-1]).all(0)
    source, latency = rows.source[order], rows.number("latency")[order]
    step = same & (source[:-1] == 0) & (source[1:] > 0)  # the first donor after the version's own row
    donor, own = np.flatnonzero(step) + 1, np.flatnonzero(step)
    channel = np.array([CHANNELS.get(s.channel, "") for s in rows.sources])[source[donor]]
    for kind in np.unique(channel):
        mine = channel == kind
        log_ratio = np.log(latency[donor][mine] / latency[own][mine]).astype(np.float32)
        yield Errors(DONATED[name], str(kind), OWN_RULE, place, name, log_ratio[np.isfinite(log_ratio)])


def _is_text(rows: Rows, column: str) -> bool:
    return column in rows._texts
