# SPDX-License-Identifier: Apache-2.0
"""Whole matrix shapes left out: closed forms against the rules of operators on the table without the shape."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings

from aicjax.calibrate.held_out_sites import fitted_latency, mean_latency
from aicjax.calibrate.measured_curves import CurveTable, Place
from aicjax.interp.curve import spanned_latency
from aicjax.interp.sites import GATE_OCTAVES, fitted_utilization
from tests import strategies
from tests.oracles import sites as oracle

CLOSE = 1e-9  # relative; float64 sums in another order
NOWHERE = Place(cast(Any, None), "", "")


def sol(m: float, n: float, k: float) -> float:
    return m * n * k / 1e6 + (m * n + m * k + n * k) / 1e4


def table_of(rows) -> tuple[CurveTable, dict]:
    curves = oracle.curves_by_rank(rows)
    sites = np.array(list(curves), float)
    knots = np.array(sorted({m for curve in curves.values() for m in curve}), float)
    latency = np.array([[curve.get(int(m), np.nan) for m in knots] for curve in curves.values()])
    roofs = np.array([[sol(m, n, k) for m in knots] for n, k in sites])
    ranks = np.zeros((len(sites), 0))
    return CurveTable("gemm", NOWHERE, "", sites, ranks, knots, latency, roofs), curves


def near_enough(table: CurveTable, site: int, knot: int) -> bool:
    """Whether another shape within the gate spans the tokens: the closed forms know no other answers."""
    spans = np.isfinite(spanned_latency(table.knots, table.latency_ms)[:, knot])
    octaves = np.sqrt((np.log2(table.sites / table.sites[site]) ** 2).sum(-1))
    return bool((spans & (octaves <= GATE_OCTAVES) & (np.arange(len(octaves)) != site)).any())


@settings(max_examples=12)
@given(strategies.product_rows(powers_of_two=False))
def test_mean_of_the_nearest_equals_the_table_without_the_shape(rows):
    table, curves = table_of(rows)
    predicted = mean_latency(table, np.eye(len(curves), dtype=bool))
    for site, shape in enumerate(curves):
        rest = {other: curve for other, curve in curves.items() if other != shape}
        for knot, tokens in enumerate(table.knots.tolist()):
            if near_enough(table, site, knot):
                want, _ = oracle.product(rest, shape, tokens, sol)
                assert predicted[site, knot] == pytest.approx(want, rel=CLOSE)
            else:
                assert np.isnan(predicted[site, knot])


@settings(max_examples=12)
@given(strategies.product_rows(powers_of_two=True))
def test_fit_equals_the_table_without_the_shape(rows):
    table, curves = table_of(rows)
    predicted = fitted_latency(table, np.eye(len(curves), dtype=bool))
    utilization = table.sol_ms / spanned_latency(table.knots, table.latency_ms)
    for site, (n, k) in enumerate(curves):
        rest = np.arange(len(curves)) != site
        fitted = fitted_utilization(table.sites[rest], table.knots, utilization[rest], (n, k))
        near = [knot for knot in range(table.knots.size) if near_enough(table, site, knot)]
        want = table.sol_ms[site, near] / fitted[near]
        assert predicted[site, near] == pytest.approx(want, rel=CLOSE)


def test_a_plane_of_logarithms_is_met_exactly_but_for_the_ridge():
    sides = 2.0 ** np.arange(6, 12)
    rows = [(m, int(n), int(k), 1.0) for m in (1, 8) for n in sides for k in sides]
    table, _ = table_of(rows)
    utilization = 0.5 * table.sites[:, :1] ** 0.1 * table.sites[:, 1:] ** -0.2
    exact = CurveTable(**{**vars(table), "latency_ms": table.sol_ms / utilization})
    alone = np.eye(len(table.sites), dtype=bool)
    inner = ((table.sites > sides[0]) & (table.sites < sides[-1])).all(-1)

    def worst(predicted: np.ndarray) -> float:
        return float(np.abs(predicted / exact.latency_ms - 1)[inner].max())

    assert worst(fitted_latency(exact, alone)) < 1e-3
    assert worst(mean_latency(exact, alone)) > 5e-3
