# SPDX-License-Identifier: Apache-2.0
"""Latency of single operators: any number of shapes of one kind at coordinates of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from aicjax._results import InputError, Provenance
from aicjax.compat import DEFAULT, Compat
from aicjax.constants import OpConstants, load_constants, traced
from aicjax.hardware import System
from aicjax.interp.counts import ceil_div, floor_div, point_bucket
from aicjax.interp.grid import answer
from aicjax.ops.database import Database, reading, transfer_kinds
from aicjax.ops.dispatch import expand_dispatch
from aicjax.ops.kinds import SEQUENCE_KINDS, TOKEN_KINDS, Kind, kind_of
from aicjax.ops.records import MoeDispatch, Op
from aicjax.ops.roofline import Hardware, bound_times, hardware_arrays

_SPLITS = ("token_divisor", "seq_split")


@dataclass(frozen=True)
class OpTimes:
    """Latency of operators.

    Attributes:
        latency_ms: Latency [op], NaN where nothing answers.
        sol_ms: Roofline [op], NaN for operators that nothing bounds.
        provenance: A `Provenance` code [op].
    """

    latency_ms: np.ndarray
    sol_ms: np.ndarray
    provenance: np.ndarray


def operator_latency(
    system: System,
    backend: str,
    version: str,
    ops: Sequence[Op],
    *,
    mode: str = "SILICON",
    transfer_policy: str | None = None,
    share: bool | None = None,
    tokens: Any = None,
    batch: Any = None,
    length: Any = None,
    prefix: Any = 0,
    lanes: Sequence[str] | None = None,
    constants: OpConstants | None = None,
    compat: Compat = DEFAULT,
) -> OpTimes:
    """Latency of each operator at its own coordinates.

    Args:
        system, backend, version: Which tables; `version` is resolved.
        ops: Operators of one kind, as in `kinds`, or exchanges around experts.
        mode: `SILICON` (measured tables), `HYBRID` (estimates where they miss), `EMPIRICAL` (estimates alone) or `SOL`
            (rooflines).
        transfer_policy: What an estimate may borrow from: a preset of `database.TRANSFERS`, or a comma list of presets
            and kinds; anything when None.
        share: Whether tables of other versions and backends fill gaps; where tables interpolate when None.
        tokens: Tokens of each token-driven operator [op].
        batch, length: Sequences, and their length: new tokens in prefill, all cached tokens in decode [op].
        prefix: Cached tokens before the new ones, prefill only [op].
        lanes: Order in which attention kernels are tried; the backend's own when None.
        constants: Operator constants; the reference set when None.
        compat: Defects of AIConfigurator that reading tables follows.

    Raises:
        InputError: A mode, a policy, a kind or coordinates that do not fit.
        MissingPeak: The system states no peak for a format.

    Examples:
        >>> from aicjax.hardware import load_system
        >>> from aicjax.ops.records import Elementwise
        >>> op = Elementwise("norm", 1.0, bytes_per_token=4.0 * 8192)
        >>> times = operator_latency(load_system("h200_sxm"), "trtllm", "1.3.0rc20", [op], tokens=[1024])
        >>> round(float(times.latency_ms[0]), 6)
        0.011738
    """
    order = None if lanes is None else tuple(lanes)
    kinds = transfer_kinds(transfer_policy, compat)
    database = Database(system, backend, version, mode, kinds, share=share, lanes=order, **reading(compat))
    known: OpConstants = traced(load_constants(backend).op if constants is None else constants)
    if not ops:
        raise InputError("ops", ops, "at least one operator")
    if all(isinstance(op, MoeDispatch) for op in ops):
        return _exchanges(database, [op for op in ops if isinstance(op, MoeDispatch)], tokens, known)
    kind = next((k for k in (*TOKEN_KINDS, *SEQUENCE_KINDS) if all(isinstance(op, k.records) for op in ops)), None)
    if kind is None:
        raise InputError("ops", sorted({type(op).__name__ for op in ops}), "operators of one kind")
    if kind in TOKEN_KINDS:
        return _ask(database, kind, ops, {"tokens": tokens}, known)
    return _ask(database, kind, ops, {"batch": batch, "length": length, "prefix": prefix}, known)


def _exchanges(database: Database, ops: Sequence[MoeDispatch], tokens: Any, constants: OpConstants) -> OpTimes:
    """Exchanges as the sums of the collectives that they run."""
    counts = _column("tokens", tokens, len(ops))
    parts = [(at, part) for at, op in enumerate(ops) for part in expand_dispatch(op, database.system, database.backend)]
    total = OpTimes(np.zeros(len(ops)), np.zeros(len(ops)), np.full(len(ops), Provenance.NONE))
    for kind in {kind_of(part) for _, part in parts}:
        mine = [(at, part) for at, part in parts if isinstance(part, kind.records)]
        at = np.array([at for at, _ in mine])
        times = _ask(database, kind, [part for _, part in mine], {"tokens": counts[at]}, constants)
        np.add.at(total.latency_ms, at, times.latency_ms)
        np.add.at(total.sol_ms, at, times.sol_ms)
        np.maximum.at(total.provenance, at, times.provenance)
    return total


def _ask(database: Database, kind: Kind, ops: Sequence[Any], points: dict[str, Any], constants: OpConstants) -> OpTimes:
    """Operators of one kind, each at its own point."""
    size, hardware = point_bucket(len(ops)), hardware_arrays(database.system)
    columns = [_padded(_column(name, values, len(ops)), size) for name, values in points.items()]
    rows = kind.bind(database, ops, rows=size)
    roofline = not database.measured and not kind.modeless
    if kind in TOKEN_KINDS:
        splits = [_padded(np.array([getattr(op, name, 1) for op in ops]), size) for name in _SPLITS]
        times = _token_times(kind, rows, columns[0], splits, hardware, constants, roofline)
    else:
        times = _sequence_times(kind, rows, columns, hardware, constants, roofline)
    latency, code, sol = (np.asarray(x)[: len(ops), 0] for x in times)
    scale = np.array([op.scale for op in ops])
    return OpTimes(latency * scale, sol * scale, code)


def _column(name: str, values: Any, count: int) -> np.ndarray:
    """Coordinates of `count` operators."""
    if values is None:
        raise InputError(name, None, "given for this kind of operator")
    return np.broadcast_to(np.asarray(values, np.int32).reshape(-1), (count,))


def _padded(column: np.ndarray, size: int) -> np.ndarray:
    """A column [size, 1], padded with ones."""
    return np.pad(column.astype(np.int32), (0, size - column.size), constant_values=1)[:, None]


@eqx.filter_jit
def _token_times(kind: Kind, rows, tokens, splits, hardware: Hardware, constants: OpConstants, roofline: bool):
    divisor, split = splits
    counts = ceil_div(floor_div(tokens, divisor), split).astype(jnp.float32)
    own = jnp.arange(counts.shape[0], dtype=jnp.int32)
    sol = kind.token_sol(rows, own, counts, hardware, constants)
    times = bound_times(sol) if roofline else kind.latency(rows, own, counts, hardware, constants)
    return *times, sol


@eqx.filter_jit
def _sequence_times(kind: Kind, rows, points, hardware: Hardware, constants: OpConstants, roofline: bool):
    sol = kind.sol(rows, *points, hardware, constants)
    times = bound_times(sol) if roofline else answer([kind.ask(rows, *points, hardware, constants)])[0]
    return *times, sol
