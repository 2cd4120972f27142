# SPDX-License-Identifier: Apache-2.0
"""Expert operators asked one token count each, and their stored answers: what the tests of their families share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from aicjax._results import Provenance
from aicjax.constants import load_constants, traced
from aicjax.hardware import load_system
from aicjax.ops import all_to_all, expert_compute, megamoe, moe
from aicjax.ops.database import Database, transfer_kinds
from aicjax.ops.query import OpTimes
from aicjax.ops.roofline import hardware_arrays
from benchmarks.parity_cases.stored import StoredRows
from tests.ops import made_up

REFERENCES = Path(__file__).parents[1] / "references"
TOLERANCE = 1e-5  # float32 tables and kernels against float64
ROWS = 32  # operators of one call: one compiled program


@dataclass(frozen=True)
class Kind:
    """One kind of operator: how it binds and answers."""

    bind: Callable[..., Any]
    latency: Callable[..., Any]
    sol: Callable[..., Any]


MOE = Kind(moe.bind_moe, moe.moe_latency, moe.moe_sol)
ALL_TO_ALL = Kind(all_to_all.bind_all_to_all, all_to_all.all_to_all_latency, all_to_all.all_to_all_sol)
EXPERT_COMPUTE = Kind(
    expert_compute.bind_expert_compute, expert_compute.expert_compute_latency, expert_compute.expert_compute_sol
)
MEGAMOE = Kind(megamoe.bind_megamoe, megamoe.megamoe_latency, megamoe.megamoe_sol)


@eqx.filter_jit
def _times(kind: Kind, rows, tokens, hardware, constants):
    return kind.latency(rows, tokens, hardware, constants), kind.sol(rows, tokens, hardware, constants)


def ask(kind: Kind, database: Database, ops: Sequence[Any], tokens: Any) -> OpTimes:
    """Times of each operator for its own tokens."""
    parts = [_ask(kind, database, ops[at : at + ROWS], _slice(tokens, at)) for at in range(0, len(ops), ROWS)]
    return OpTimes(*(np.concatenate([getattr(part, f) for part in parts]) for f in OpTimes.__dataclass_fields__))


def _slice(tokens: Any, at: int) -> Any:
    return tokens if np.ndim(tokens) == 0 else tokens[at : at + ROWS]


def _ask(kind: Kind, database: Database, ops: Sequence[Any], tokens: Any) -> OpTimes:
    count = len(ops)
    column = np.pad(np.broadcast_to(np.asarray(tokens, np.float32), (count,)), (0, ROWS - count), constant_values=1)
    constants = traced(load_constants(database.backend).op)
    rows = kind.bind(database, ops, rows=ROWS)
    times = _times(kind, rows, column[:, None], hardware_arrays(database.system), constants)
    (latency, code), sol = jax.tree.map(lambda x: np.asarray(x)[:count, 0], times)
    return OpTimes(latency if database.measured else sol, sol, code)


def made_up_database(**options: Any) -> Database:
    """A database of a made-up system."""
    backend, version = made_up.WHERE
    return Database(**{"system": made_up.system(), "backend": backend, "version": version, **options})


def stored(name: str) -> StoredRows:
    """Stored answers of one file."""
    return StoredRows.read(REFERENCES / f"{name}.parquet")


def check_stored(kind: Kind, rows: StoredRows, record: Callable[[dict[str, Any]], Any]) -> np.ndarray:
    """All stored answers: where there is one, and what it is.

    Returns:
        Provenance of each row.
    """
    provenance = np.full(len(rows), Provenance.NONE)
    keys = [key for key in ("system", "backend", "version", "mode", "transfer_policy") if key in rows]
    for (system, backend, version, *options), at in rows.groups(*keys):
        group = rows.take(at)
        mode, policy = options or ("SILICON", "aggressive")
        kinds = transfer_kinds(policy.replace("+", ","))
        database = Database(load_system(system), backend, version, mode, kinds, share=True)  # as the answers were
        ops = [record(row) for row in group.records(np.arange(len(group)))]
        times = ask(kind, database, ops, group["num_tokens"])
        np.testing.assert_allclose(times.latency_ms, group["latency_ms"], rtol=TOLERANCE)
        assert mode == "SOL" or ((times.provenance == Provenance.MISSING) == np.isnan(group["latency_ms"])).all()
        provenance[at] = times.provenance
    return provenance
