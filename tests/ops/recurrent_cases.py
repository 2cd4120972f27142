# SPDX-License-Identifier: Apache-2.0
"""Recurrent kernels asked one coordinate each: what the tests of their families share."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from aicjax.constants import load_constants, traced
from aicjax.interp.grid import answer
from aicjax.ops.database import Database
from aicjax.ops.query import OpTimes
from aicjax.ops.records import RecurrentOp
from aicjax.ops.recurrent import ask_recurrent, bind_recurrent, recurrent_sol
from aicjax.ops.roofline import hardware_arrays
from tests.ops import made_up

TOLERANCE = 1e-5  # float32 tables and kernels against float64
ROWS = 32  # operators of one call: one compiled program


@eqx.filter_jit
def _times(rows, batch, length, prefix, hardware, constants):
    question = ask_recurrent(rows, batch, length, prefix, hardware, constants)
    return answer([question])[0], recurrent_sol(rows, batch, length, prefix, hardware, constants)


def ask(database: Database, ops: Sequence[RecurrentOp], batch: Any, length: Any) -> OpTimes:
    """Times of each operator for its own batch and length."""
    count = len(ops)
    points = [np.broadcast_to(np.asarray(x, np.int32), (count,)) for x in (batch, length, 0)]
    batch, length, prefix = (np.pad(x, (0, ROWS - count), constant_values=1)[:, None] for x in points)
    constants = traced(load_constants(database.backend).op)
    rows = bind_recurrent(database, ops, rows=ROWS)
    times = jax.device_get(_times(rows, batch, length, prefix, hardware_arrays(database.system), constants))
    (latency, code), sol = jax.tree.map(lambda x: x[:count, 0], times)
    return OpTimes(latency, sol, code)


def made_up_database(**options: Any) -> Database:
    """A database of a made-up system."""
    backend, version = made_up.WHERE
    return Database(**{"system": made_up.system(), "backend": backend, "version": version, **options})
