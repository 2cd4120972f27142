# SPDX-License-Identifier: Apache-2.0
"""How far apart two measurements of the same work are: what an answer that is a measured point is uncertain by.

No table states a point twice, but several state points whose work is the same: attention with a window that holds
the whole sequence and without one; experts at one token, however uneven the load; matrix products of as many tokens as
both neighbours have on average, in steps of one token.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from aicjax.calibrate.held_out import RULES, between, neighbours
from aicjax.calibrate.leave_one_out import Errors, log_ratios
from aicjax.calibrate.measured_curves import CurveTable, curve_tables
from aicjax.calibrate.measured_grids import GridTable, grid_tables
from aicjax.hardware import System

CURVES = ("gemm", "moe")  # families that state the same work twice
GRIDS = ("context_attention", "generation_attention")
TWO_MEASUREMENTS = np.sqrt(2.0)  # deviation of a difference, by that of one measurement
MEAN_OF_NEIGHBOURS = np.sqrt(1.5)  # the same where one side is the mean of two
FEW_TOKENS = (3, 15)  # range of matrix products that memory bounds: a token more changes nothing else


def repeat_errors(system: System, families: Sequence[str]) -> Iterator[Errors]:
    """Log ratios of measurements of the same work, scaled to the deviation of one of them."""
    tables = list(curve_tables(system, [family for family in CURVES if family in families]))
    for table in tables:
        log_ratio = _consecutive(table) if table.family == "gemm" else _loads(table, tables)
        yield from log_ratios(table, "exact", np.exp(log_ratio), np.ones_like(log_ratio))
    for table in grid_tables(system, [family for family in GRIDS if family in families]):
        log_ratio = _windows(table)
        yield from log_ratios(table, "exact", np.exp(log_ratio), np.ones_like(log_ratio))


def _windows(table: GridTable) -> np.ndarray:
    """Slices with a window against those without, at lengths within it."""
    slices = {key: row for row, key in enumerate(table.keys)}
    length = table.knots[1][:, None] if table.family == "context_attention" else table.knots[2]
    found = [np.zeros(0)]
    for (lane, key), row in slices.items():
        whole = slices.get((lane, replace(key, window=0)))
        if key.window and whole is not None:
            log_ratio = np.log(table.latency_ms[row] / table.latency_ms[whole]) / TWO_MEASUREMENTS
            found.append(np.where(length <= key.window, log_ratio, np.nan).ravel())
    return np.concatenate(found)


def _consecutive(table: CurveTable) -> np.ndarray:
    """Points of few tokens against the mean of both neighbours."""
    knots = table.knots
    near = neighbours(np.isfinite(table.latency_ms))
    low, high = FEW_TOKENS
    step = (knots >= low) & (knots <= high) & np.isin(knots - 1, knots) & np.isin(knots + 1, knots)
    mean = between(RULES["latency"], knots, table.latency_ms, table.sol_ms, near)
    return (np.log(mean / table.latency_ms) / MEAN_OF_NEIGHBOURS)[:, step].ravel()


def _loads(table: CurveTable, tables: Sequence[CurveTable]) -> np.ndarray:
    """One token under two distributions of load: the table's own and the next in the alphabet."""

    def at_one_token(one: CurveTable) -> dict[tuple[float, ...], float]:
        keys = np.column_stack([one.sites, one.ranks]).tolist()
        first = one.latency_ms[:, 0] if one.knots[0] == 1 else np.full(len(keys), np.nan)
        return {tuple(key): value for key, value in zip(keys, first, strict=True)}

    kernel, distribution = _split(table)
    others = {
        _split(t)[1]: t for t in tables if (t.family, t.place) == (table.family, table.place) and _split(t)[0] == kernel
    }
    later = sorted(name for name in others if name > distribution)
    if not later:
        return np.zeros(0)
    own, other = at_one_token(table), at_one_token(others[later[0]])
    both = np.array([(own[key], other[key]) for key in own if key in other]).reshape(-1, 2)
    return np.log(both[:, 0] / both[:, 1]) / TWO_MEASUREMENTS


def _split(table: CurveTable) -> tuple[str, str]:
    """Format and kernel of a table of experts, and its distribution of load."""
    form, distribution, *kernel = table.form.split(" ")
    return " ".join([form, *kernel]), distribution
