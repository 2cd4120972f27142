# SPDX-License-Identifier: Apache-2.0
"""How well the interpolation rules predict measured points that they do not see, for every table of a system.

Points are left out of the tables, singly or with all that was measured at the same shape, and predicted from the rest
by the rules that operators use. What is left out decides which rule answers:

- `interior`: one point of a curve or of the innermost axis of a grid, between its neighbours;
- `row`: all points of one length or batch of a grid, between the neighbouring rows; `plane`: of one head count;
- `one_sided`: the same where one neighbour alone was measured;
- `first`, `last`: an end point, row or plane, by the utilisation or the line of what is left;
- `site`: a whole matrix shape, from the nearest others.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from aicjax.calibrate.held_out import RULES, Rule, between, held_ends, neighbours, straight_ends
from aicjax.calibrate.held_out_grid import blended, edge_points, held
from aicjax.calibrate.held_out_sites import fitted_latency, mean_latency
from aicjax.calibrate.measured_curves import CURVE_FAMILIES, CurveTable, Place, curve_tables
from aicjax.calibrate.measured_grids import GRID_FAMILIES, GridTable, grid_tables
from aicjax.hardware import System
from aicjax.interp.axis import NO_KEY
from aicjax.interp.curve import TAIL

FAMILIES = (*CURVE_FAMILIES, *GRID_FAMILIES)
KINDS = ("interior", "row", "plane", "one_sided", "first", "last", "site")
OWN_RULE = "own"  # what operators do
REFERENCE_RULE = "reference"  # what AIConfigurator 0.12.0 does where it differs
SITE_FAMILIES = ("gemm",)
STRAIGHT_FAMILIES = ("moe", "all_to_all", "expert_compute")  # that go on along the line of the last octave
ROOFED_FAMILIES = ("moe", "expert_compute")  # of those, the ones whose roofline bounds it
MOST_EDGES = 96  # points of a slice and axis that are held, spread evenly over all


class Errors(NamedTuple):
    """Errors of one rule on one table.

    Attributes:
        family: Kind of operator.
        kind: What was left out, of `KINDS`.
        rule: `OWN_RULE`, `REFERENCE_RULE`, or an interpolant of `held_out.RULES`.
        place: Where the table was measured.
        form: Number formats and whatever else the table keys on.
        log_ratio: ln(predicted / measured) of each point [point].
    """

    family: str
    kind: str
    rule: str
    place: Place
    form: str
    log_ratio: np.ndarray


def held_out_errors(
    system: System, families: Sequence[str] = FAMILIES, rules: Mapping[str, Rule] | None = None
) -> Iterator[Errors]:
    """Errors of the operators' own rules, and of other interpolants on `interior`, `row` and `plane`.

    Args:
        system: The hardware.
        families: Kinds of operators, of `FAMILIES`.
        rules: Other interpolants by name; none when None.
    """
    for table in curve_tables(system, families):
        yield from _log_ratios(table, _curve_parts(table, rules or {}))
    for table in grid_tables(system, families):
        yield from _log_ratios(table, _grid_parts(table, rules or {}))


Part = tuple[str, str, np.ndarray, np.ndarray]  # kind, rule, predictions, which points they are of


def _log_ratios(table: CurveTable | GridTable, parts: Iterator[Part]) -> Iterator[Errors]:
    for kind, rule, predicted, asked in parts:
        yield from log_ratios(table, kind, predicted[asked], table.latency_ms[asked], rule)


def log_ratios(
    table: CurveTable | GridTable, kind: str, predicted: np.ndarray, measured: np.ndarray, rule: str = OWN_RULE
) -> Iterator[Errors]:
    """Errors of the points of a table that have a prediction; nothing where none has."""
    with np.errstate(invalid="ignore", divide="ignore"):
        log_ratio = np.log(predicted / measured)
    log_ratio = log_ratio[np.isfinite(log_ratio)].astype(np.float32)
    if log_ratio.size:
        form = table.form if isinstance(table, CurveTable) else ""
        yield Errors(table.family, kind, rule, table.place, form, log_ratio)


def _curve_parts(table: CurveTable, rules: Mapping[str, Rule]) -> Iterator[Part]:
    measured = np.isfinite(table.latency_ms)
    near = neighbours(measured)
    for name, rule in {OWN_RULE: RULES["latency"], **rules}.items():
        yield "interior", name, between(rule, table.knots, table.latency_ms, table.sol_ms, near), measured
    first, last = measured & (near.below == NO_KEY), measured & (near.above == NO_KEY)
    held_latency = held_ends(table.latency_ms, table.sol_ms, 1)
    yield "first", OWN_RULE, held_latency, first
    if table.family in SITE_FAMILIES:
        alone = np.eye(len(table.sites), dtype=bool)
        yield "last", OWN_RULE, held_latency, last
        yield "last", REFERENCE_RULE, held_ends(table.latency_ms, table.sol_ms, TAIL), last
        yield "site", OWN_RULE, fitted_latency(table, alone), measured
        yield "site", REFERENCE_RULE, mean_latency(table, alone), measured
    elif table.family in STRAIGHT_FAMILIES:
        roof = table.sol_ms if table.family in ROOFED_FAMILIES else None
        yield "last", OWN_RULE, straight_ends(table.knots, table.latency_ms, roof), last
        yield "last", REFERENCE_RULE, held_latency, last
    else:
        yield "last", OWN_RULE, held_latency, last


def _grid_parts(table: GridTable, rules: Mapping[str, Rule]) -> Iterator[Part]:
    own = grid_rules(table)
    last = len(table.knots) - 1
    for axis in range(len(table.knots)):
        kind = "interior" if axis == last else "plane" if axis == 0 else "row"
        for name, rule in {OWN_RULE: None, **rules}.items():
            found = blended(own, axis, table.knots, table.latency_ms, table.sol_ms, rule)
            yield kind, name, found.latency_ms, ~found.one_sided
            if name == OWN_RULE:
                yield "one_sided", name, found.latency_ms, found.one_sided
        for kind, edges in zip(("first", "last"), edge_points(table.latency_ms, axis), strict=True):
            asked = np.stack([_thinned(edge) for edge in edges])
            predicted = np.full(edges.shape, np.nan)
            for one in np.flatnonzero(asked.reshape(len(asked), -1).any(-1)):
                answer = held(axis, table.knots, table.latency_ms[one], table.sol_ms[one], asked[one])
                predicted[one][asked[one]] = answer
            yield kind, OWN_RULE, predicted, asked


def grid_rules(table: GridTable) -> tuple[Rule, ...]:
    """Interpolant of each axis of a grid."""
    return tuple(RULES["sqrt_latency" if a == table.sqrt_axis else "latency"] for a in range(len(table.knots)))


def _thinned(mask: np.ndarray) -> np.ndarray:
    """At most `MOST_EDGES` of the points of a mask, spread evenly."""
    at = np.flatnonzero(mask)
    kept = np.zeros(mask.size, bool)
    kept[at[:: -(-at.size // MOST_EDGES) or 1]] = True
    return kept.reshape(mask.shape)
