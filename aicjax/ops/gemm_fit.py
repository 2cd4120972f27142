# SPDX-License-Identifier: Apache-2.0
"""Curves of matrix products whose shape was not measured, fitted to the measured shapes around them when bound."""

import functools

import numpy as np

from aicjax.hardware import System
from aicjax.interp.curve import spanned_latency
from aicjax.interp.sites import fitted_utilization
from aicjax.ops.database import Database
from aicjax.ops.gemm_tables import host_sol_ms, load_gemm


def fitted_curve(database: Database, form: str, shape: tuple[int, int]) -> np.ndarray:
    """Latency [ms] of a shape at the knots of its format's table; NaN where no shape near it was measured [knot].

    Args:
        database: Which tables.
        form: A measured format.
        shape: `(n, k)`.
    """
    sites, knots, utilization = _spanned(*database.where, form, database.repaired)
    return host_sol_ms(database.system, form, knots, *shape) / fitted_utilization(sites, knots, utilization, shape)


@functools.lru_cache(maxsize=16)
def _spanned(system: System, backend: str, version: str, shared: bool, form: str, repaired: bool):
    """Shapes of a table, its knots, and utilisation at all knots that each shape spans [site, knot]."""
    table = load_gemm(system, backend, version, shared, form, repaired)
    if table is None:
        return np.zeros((0, 2)), np.zeros(0), np.zeros((0, 0))
    sol = host_sol_ms(system, form, table.knots, *(axis[:, None] for axis in table.sites.T))
    latency = spanned_latency(table.knots.astype(np.float64), table.latency_ms)
    return table.sites, table.knots, np.divide(sol, latency, out=np.full(sol.shape, np.nan), where=latency > 0)
