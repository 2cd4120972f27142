# SPDX-License-Identifier: Apache-2.0
"""Estimates of matrix products: whose measured points lend their utilisation.

The format's own points first, whatever their shapes; failing these, those that another backend measured on the same
system, then those of another format of the same profile (bytes and compute class), then of the format with the nearest
profile. Between profiles the utilisation is scaled by how
efficiently each format runs.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from aicjax import quant
from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.hardware import System
from aicjax.interp.axis import PAD_KNOT
from aicjax.interp.curve_estimate import (
    CurveChoice,
    UtilizationCurves,
    bind_utilization_curves,
    curve_utilization,
    knot_patterns,
    nearest_curves,
    stack_choices,
)
from aicjax.interp.estimate import LEAST
from aicjax.ops.database import Database
from aicjax.ops.estimated_rows import fill_rows, take_rows
from aicjax.ops.gemm_tables import host_sol_ms, load_gemm, measured_formats, table_format
from aicjax.ops.records import Gemm

FORMATS = tuple(quant.GEMM)
ROW_BUCKET = 8
CURVE_BUCKET = 64
KNOT_BUCKET = 16


@dataclass(frozen=True)
class Lender:
    """Measured products of one format as utilisation under the roofline of one format.

    Attributes:
        form: The format that was measured.
        roofline: The format whose roofline it is.
        sites: Shapes `(n, k)`, ascending [site, 2].
        knots: Token counts, ascending [knot].
        utilization: Roofline over latency [site, knot]; NaN where not measured.
        patterns: Which shapes were measured at the same token counts [site].
    """

    form: str
    roofline: str
    sites: np.ndarray
    knots: np.ndarray
    utilization: np.ndarray
    patterns: np.ndarray

    def candidates(self, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Shapes that can hold one of the two points nearest to `shape`, and their squared distances from it."""
        logs = np.log(self.sites)
        least, span = logs.min(0), np.ptp(logs, 0)
        span = np.where(span > 0, span, 1.0)
        query = np.clip((np.log(np.maximum(shape, LEAST)) - least) / span, 0.0, 1.0)
        away = (((logs - least) / span - query) ** 2).sum(-1)
        near = nearest_curves(away, self.patterns)
        return near, away[near]


@functools.lru_cache(maxsize=64)
def load_lender(
    system: System, backend: str, version: str, shared: bool, form: str, roofline: str, repaired: bool = False
) -> Lender | None:
    """Utilisation of the measured products of `form` under the roofline of `roofline`; None when nothing was measured
    or the system states no peak for it.
    """
    table = load_gemm(system, backend, version, shared, form, repaired)
    if table is None or quant.GEMM[roofline].dtype not in system.peak_flops:
        return None
    order = np.lexsort(table.sites.T[::-1])
    sites, latency = table.sites[order], table.latency_ms[order]
    sol = host_sol_ms(system, roofline, table.knots, *(axis[:, None] for axis in sites.T))
    usable = (latency > 0) & (sol > 0)
    utilization = np.divide(sol, latency, out=np.full(latency.shape, np.nan), where=usable)
    site, knot = usable.any(1), usable.any(0)
    if not site.any():
        return None
    utilization = utilization[site][:, knot]
    return Lender(form, roofline, sites[site], table.knots[knot], utilization, knot_patterns(utilization))


def find_lender(database: Database, form: str) -> tuple[Lender, Provenance] | None:
    """Who lends to products of a format, by the kinds of transfer that the database allows; None when nobody does."""
    form = table_format(form)
    if own := load_lender(*database.where, form, form, database.repaired):
        return own, Provenance.EMPIRICAL
    if "xbackend" in database.transfers:
        for where in database.others:
            if found := load_lender(*where, form, form, database.repaired):
                return found, Provenance.XBACKEND
    others = [other for other in measured_formats(*database.where) if other != form]
    alike = [other for other in others if _profile(other) == _profile(form)]
    if (
        "xquant" in database.transfers
        and alike
        and (found := load_lender(*database.where, alike[0], form, database.repaired))
    ):
        return found, Provenance.XQUANT
    if "xprofile" in database.transfers:
        for other in sorted((o for o in others if o not in alike), key=lambda other: _profile_gap(other, form)):
            if found := load_lender(*database.where, other, other, database.repaired):
                return found, Provenance.XPROFILE
    return None


def _profile(form: str) -> tuple[float, float]:
    return quant.GEMM[form].factor, quant.GEMM[form].bytes


def _profile_gap(first: str, second: str) -> tuple[float, ...]:
    return tuple(abs(a - b) for a, b in zip(_profile(first), _profile(second), strict=True))


class GemmEstimates(eqx.Module):
    """Products that measured curves may fail, with the points that then answer.

    Attributes:
        row: Which product each estimate is for; beyond all products on padding [estimate].
        form, lender: Position of its format and of the lending one in `FORMATS` [estimate].
        provenance: How near they are [estimate].
        choice: Curves that can hold the nearest points [estimate].
        curves: The curves in use.
        knots: Token counts that they share [knot].
    """

    row: Int[Array, " estimate"]
    form: Int[Array, " estimate"]
    lender: Int[Array, " estimate"]
    provenance: Int[Array, " estimate"]
    choice: CurveChoice
    curves: UtilizationCurves
    knots: Float[Array, " knot"]


def bind_gemm_estimates(
    database: Database, records: Sequence[Gemm], answered: Sequence[bool], *, rows: int
) -> GemmEstimates | None:
    """Estimates for the records that measured curves do not answer at all token counts; None when there are none.

    Args:
        database: Which tables, and what may lend.
        records: Products.
        answered: Whether measured curves answer for each at every token count.
        rows: Padded number of products.
    """
    found = [
        (row, record, lender)
        for row, (record, done) in enumerate(zip(records, answered, strict=True))
        if not done and database.estimates and (lender := find_lender(database, record.quant)) is not None
    ]
    if not found:
        return None
    knots = np.unique(np.concatenate([lender.knots for *_, (lender, _) in found]))
    used: dict[tuple[str, str, int], tuple[int, np.ndarray, np.ndarray]] = {}
    choices, ranges = [], []
    for _, record, (lender, _) in found:
        near, away = lender.candidates((record.n, record.k))
        at = np.searchsorted(knots, lender.knots)
        keys = [(lender.form, lender.roofline, site) for site in near.tolist()]
        index = [used.setdefault(key, (len(used), at, lender.utilization[key[2]]))[0] for key in keys]
        choices.append((np.array(index), away))
        ranges.append((float(lender.knots[0]), float(lender.knots[-1])))
    width = -(-knots.size // KNOT_BUCKET) * KNOT_BUCKET
    dense = np.full((-(-len(used) // CURVE_BUCKET) * CURVE_BUCKET, width), np.nan)
    for index, at, utilization in used.values():
        dense[index, at] = utilization
    count = -(-len(found) // ROW_BUCKET) * ROW_BUCKET
    # Formats of one profile run alike: only beyond it does the lender's efficiency differ.
    lenders = [lender.form if code == Provenance.XPROFILE else record.quant for _, record, (lender, code) in found]

    def column(values, pad: int = 0) -> np.ndarray:
        return np.array([*values, *[pad] * (count - len(found))], np.int32)

    return GemmEstimates(
        row=column((row for row, *_ in found), rows),
        form=column(FORMATS.index(record.quant) for _, record, _ in found),
        lender=column(FORMATS.index(form) for form in lenders),
        provenance=column(code for *_, (_, code) in found),
        choice=stack_choices(choices, ranges, rows=count),
        curves=bind_utilization_curves(dense),
        knots=np.pad(knots.astype(np.float32), (0, width - knots.size), constant_values=PAD_KNOT),
    )


def with_gemm_estimates(
    estimates: GemmEstimates,
    tokens: Float[Array, "row point"],
    sol_ms: Float[Array, "row point"],
    latency_ms: Float[Array, "row point"],
    code: Int[Array, "row point"],
    constants: OpConstants,
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency and provenance of all products, with an estimate wherever a row that has one has no answer."""
    levels = jnp.stack([jnp.asarray(constants.gemm_format_efficiency[form]) for form in FORMATS])
    level = levels[estimates.form] / levels[estimates.lender]
    counts, roof = (take_rows(values, estimates.row) for values in (tokens, sol_ms))
    utilization = curve_utilization(estimates.curves, estimates.knots, estimates.choice, counts) * level[:, None]
    return fill_rows(estimates.row, roof, utilization, estimates.provenance, latency_ms, code)
