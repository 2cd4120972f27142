# SPDX-License-Identifier: Apache-2.0
"""Sparse attention modules: records from stored rows, and any number of queries of one phase in one call."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import pyarrow.parquet as pq

from aicjax._results import Provenance
from aicjax.constants import load_constants, traced
from aicjax.hardware import load_system
from aicjax.interp.counts import point_bucket
from aicjax.interp.grid import answer
from aicjax.ops.database import Database
from aicjax.ops.records import DsaContext, DsaGeneration, DsaShape
from aicjax.ops.roofline import hardware_arrays

REFERENCES = Path(__file__).parents[1] / "references"
WHERE = ("system", "backend", "version", "mode", "phase")
DSA_SHAPES = {
    "DeepseekV32ForCausalLM": DsaShape(7168, 1536, 512, 128, 64, 128, 64, 128, 2048),
    "GlmMoeDsaForCausalLM": DsaShape(6144, 2048, 512, 192, 64, 256, 32, 128, 2048),
}


class Module(NamedTuple):
    """Functions of one phase of an operator module, in the order of a sequence kind."""

    bind: Callable[..., Any]
    ask: Callable[..., Any]
    sol: Callable[..., Any]


def dsa_record(phase: str, heads: int, kv: str, gemm: str, architecture: str, **options: Any):
    """A DSA operator; 16-bit attention, as everything that was measured."""
    kind = DsaContext if phase == "context" else DsaGeneration
    formats = (kv, "bfloat16", gemm, architecture, DSA_SHAPES[architecture], (gemm,) * 4)
    return kind("attention", 1.0, heads, *formats, **options)  # type: ignore[arg-type]


def stored(name: str) -> list[SimpleNamespace]:
    """Stored answers of AIConfigurator 0.12.0, a row each."""
    return [SimpleNamespace(**row) for row in pq.read_table(REFERENCES / f"{name}.parquet").to_pylist()]


def evaluate(module: Module, database: Database, records: Sequence[Any], batch, length, prefix) -> tuple:
    """`(latency_ms, provenance, sol_ms)` of each operator at its own coordinates."""
    size = point_bucket(len(records))
    place = np.minimum(np.arange(size), len(records) - 1)
    points = [np.asarray(x, np.int32)[place] for x in (batch, length, prefix)]
    rows = module.bind(database, records, rows=size)
    constants = traced(load_constants(database.backend).op)
    hardware = hardware_arrays(database.system)
    points = [x[:, None] for x in points]
    sol = module.sol(rows, *points, hardware, constants)
    latency, code = (
        (sol, np.full(sol.shape, Provenance.SOL))
        if not database.measured
        else (_evaluate(module, rows, points, hardware, constants))
    )
    return tuple(np.asarray(x)[: len(records), 0] for x in (latency, code, sol))


@eqx.filter_jit
def _evaluate(module: Module, rows, points, hardware, constants):
    return answer([module.ask(rows, *points, hardware, constants)])[0]


def answers(rows: Sequence[Any], modules: dict[str, Module], record: Callable[..., Any]) -> SimpleNamespace:
    """Columns of the rows that were stored with an answer or a miss, and ours beside them: `got_ms`, `code`.

    Rows of all versions and backends are read, as they were stored.
    """
    groups: dict[tuple, list[Any]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in WHERE), []).append(row)
    listed, got, codes = [], [], []
    for (system, backend, version, mode, phase), group in groups.items():
        database = Database(load_system(system), backend, version, mode, share=True)
        points = ([getattr(row, name) for row in group] for name in ("batch_size", "s", "prefix"))
        latency, code, _ = evaluate(modules[phase], database, [record(row) for row in group], *points)
        listed += group
        got.append(latency)
        codes.append(code)
    stored_ms = [np.nan if row.latency_ms is None else row.latency_ms for row in listed]
    return SimpleNamespace(
        got_ms=np.concatenate(got),
        code=np.concatenate(codes),
        latency_ms=np.array(stored_ms, float),
        measured=np.array([row.mode != "SOL" for row in listed]),
        cp=np.array([getattr(row, "cp", 1) for row in listed]),
        provenance=np.array([getattr(row, "provenance", None) for row in listed], object),
    )
