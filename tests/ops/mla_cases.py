# SPDX-License-Identifier: Apache-2.0
"""Latent-attention operators asked one coordinate each: what the tests of them share."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from aicjax._results import Provenance
from aicjax.constants import load_constants, traced
from aicjax.interp.grid import answer
from aicjax.ops import mla, wideep_mla
from aicjax.ops.database import Database
from aicjax.ops.query import OpTimes
from aicjax.ops.records import (
    ContextMla,
    GenerationMla,
    MlaModuleContext,
    MlaModuleGeneration,
    WideEpContextMla,
    WideEpGenerationMla,
)
from aicjax.ops.roofline import hardware_arrays
from tests.ops import made_up

TOLERANCE = 1e-5  # float32 tables and kernels against float64
HELD = 1e-4  # weights of a hold are differences of nearly equal distances
ROWS = 32  # operators of one call: one compiled program


class Functions(NamedTuple):
    """What one kind of operator is bound and answered by."""

    bind: Callable[..., Any]
    ask: Callable[..., Any]
    sol: Callable[..., Any]


CONTEXT = Functions(mla.bind_context_mla, mla.ask_context_mla, mla.context_mla_sol)
GENERATION = Functions(mla.bind_generation_mla, mla.ask_generation_mla, mla.generation_mla_sol)
LARGE_EP_CONTEXT = Functions(
    wideep_mla.bind_wideep_context_mla, wideep_mla.ask_wideep_context_mla, wideep_mla.wideep_context_mla_sol
)
LARGE_EP_GENERATION = Functions(
    wideep_mla.bind_wideep_generation_mla, wideep_mla.ask_wideep_generation_mla, wideep_mla.wideep_generation_mla_sol
)
FUNCTIONS = {
    ContextMla: CONTEXT,
    MlaModuleContext: CONTEXT,
    GenerationMla: GENERATION,
    MlaModuleGeneration: GENERATION,
    WideEpContextMla: LARGE_EP_CONTEXT,
    WideEpGenerationMla: LARGE_EP_GENERATION,
}


@eqx.filter_jit
def _latency(functions: Functions, rows, points, hardware, constants):
    return answer([functions.ask(rows, *points, hardware, constants)])[0]


@eqx.filter_jit
def _sol(functions: Functions, rows, points, hardware, constants):
    return functions.sol(rows, *points, hardware, constants)


def ask(database: Database, ops: Sequence[Any], batch: Any, length: Any, prefix: Any = 0) -> OpTimes:
    """Times of operators of one phase, each at its own coordinates."""
    functions, count = FUNCTIONS[type(ops[0])], len(ops)
    points = [np.broadcast_to(np.asarray(x, np.int32), (count,)) for x in (batch, length, prefix)]
    columns = [np.pad(x, (0, ROWS - count), constant_values=1)[:, None] for x in points]
    constants = traced(load_constants(database.backend).op)
    rows = functions.bind(database, ops, rows=ROWS)
    inputs = (functions, rows, columns, hardware_arrays(database.system), constants)
    sol = _sol(*inputs)
    times = _latency(*inputs) if database.measured else (sol, np.full(sol.shape, Provenance.SOL))
    return OpTimes(*(np.asarray(x)[:count, 0] for x in (times[0], sol, times[1])))


def made_up_database(**options: Any) -> Database:
    """A database of a made-up system."""
    backend, version = made_up.WHERE
    return Database(**{"system": made_up.system(), "backend": backend, "version": version, **options})
