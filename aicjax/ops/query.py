# SPDX-License-Identifier: Apache-2.0
"""Latency of single operators: any number of shapes of one kind at coordinates of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from aicjax._results import InputError, Provenance
from aicjax.constants import OpConstants, load_constants, traced
from aicjax.hardware import System
from aicjax.interp.counts import ceil_div, floor_div, point_bucket
from aicjax.ops import attention, comm, gemm, traffic
from aicjax.ops.attention_tables import backend_lanes
from aicjax.ops.database import Database, transfer_kinds
from aicjax.ops.records import (
    P2P,
    AllReduce,
    ContextAttention,
    Elementwise,
    Embedding,
    EncoderAttention,
    Gemm,
    GenerationAttention,
    Nccl,
    Op,
)
from aicjax.ops.roofline import Hardware, hardware_arrays

PHASES = {ContextAttention: "context", GenerationAttention: "generation", EncoderAttention: "encoder"}


@dataclass(frozen=True)
class OpTimes:
    """Latency of operators.

    Attributes:
        latency_ms: Latency [op], NaN where nothing answers.
        sol_ms: Roofline [op].
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
    tokens: Any = None,
    batch: Any = None,
    length: Any = None,
    prefix: Any = 0,
    lanes: Sequence[str] | None = None,
    constants: OpConstants | None = None,
) -> OpTimes:
    """Latency of each operator at its own coordinates.

    Args:
        system, backend, version: Which tables; `version` is resolved.
        ops: Operators of one kind: products, collectives, traffic, or attention of one phase.
        mode: `SILICON` (measured tables), `HYBRID` (estimates where they miss), `EMPIRICAL` (estimates alone) or `SOL`
            (rooflines).
        transfer_policy: What an estimate may borrow from: a preset of `database.TRANSFERS`, or a comma list of presets
            and kinds; anything when None.
        tokens: Tokens of each token-driven operator [op].
        batch, length: Sequences, and their length: new tokens in prefill, all cached tokens in decode [op].
        prefix: Cached tokens before the new ones, prefill only [op].
        lanes: Order in which attention kernels are tried; the backend's own when None.
        constants: Operator constants; the reference set when None.

    Raises:
        InputError: A mode, a policy, a kind or coordinates that do not fit.
        MissingPeak: The system states no peak for a format.

    Example:
        >>> from aicjax.hardware import load_system
        >>> op = Elementwise("norm", 1.0, bytes_per_token=4.0 * 8192)
        >>> times = operator_latency(load_system("h200_sxm"), "trtllm", "1.3.0rc20", [op], tokens=[1024])
        >>> round(float(times.latency_ms[0]), 6)
        0.011738
    """
    database = Database(system, backend, version, mode, transfer_kinds(transfer_policy))
    if not ops:
        raise InputError("ops", ops, "at least one operator")
    known: OpConstants = traced(load_constants(backend).op if constants is None else constants)
    kind = type(ops[0])
    group = next((g for g in _GROUPS if kind in g), None)
    if group is None or not all(isinstance(op, group) for op in ops):
        raise InputError("ops", sorted({type(op).__name__ for op in ops}), "operators of one kind")
    size = point_bucket(len(ops))
    hardware = hardware_arrays(system)
    if kind in PHASES:
        phase = PHASES[kind]
        lanes = backend_lanes(database, phase) if lanes is None else lanes
        rows = _bind_attention(database, phase, ops, lanes, size)
        points = [_column("batch", batch, len(ops), size), _column("length", length, len(ops), size)]
        if phase == "context":
            points.append(_column("prefix", prefix, len(ops), size))
        latency, code, sol = _attention(rows, points, hardware, known, phase)
    else:
        rows = _bind(database, ops, size)
        splits = [_column("ops", [getattr(op, name, 1) for op in ops], len(ops), size) for name in _SPLITS]
        latency, code, sol = _token_driven(rows, _column("tokens", tokens, len(ops), size), splits, hardware, known)
    scale = np.array([op.scale for op in ops])
    latency, sol, code = (np.asarray(x)[: len(ops), 0] for x in (latency, sol, code))
    sol = sol * scale
    if not database.measured:
        return OpTimes(sol, sol, np.full(len(ops), Provenance.SOL))
    return OpTimes(latency * scale, sol, code)


_GROUPS = (
    (Gemm,),
    (AllReduce, Nccl),
    (Elementwise, Embedding, P2P),
    (ContextAttention,),
    (GenerationAttention,),
    (EncoderAttention,),
)
_SPLITS = ("token_divisor", "seq_split")


def _column(name: str, values: Any, count: int, size: int) -> np.ndarray:
    """Coordinates of `count` operators as a column, padded to `size`."""
    if values is None:
        raise InputError(name, None, "given for this kind of operator")
    column = np.broadcast_to(np.asarray(values, np.int32).reshape(-1), (count,))
    return np.pad(column, (0, size - count), constant_values=1)[:, None]


def _bind_attention(database: Database, phase: str, ops: Sequence[Any], lanes: Sequence[str], size: int):
    return attention.bind_attention(database, phase, ops, lanes, rows=size)


def _bind(database: Database, ops: Sequence[Any], size: int):
    if isinstance(ops[0], Gemm):
        return gemm.bind_gemm(database, ops, rows=size)
    if isinstance(ops[0], AllReduce | Nccl):
        return comm.bind_comm(database, ops, rows=size)
    return traffic.bind_traffic(database, ops, rows=size)


@eqx.filter_jit
def _token_driven(rows, tokens, splits, hardware: Hardware, constants: OpConstants):
    divisor, split = splits
    counts = ceil_div(floor_div(tokens, divisor), split).astype(jnp.float32)
    if isinstance(rows, gemm.GemmRows):
        own = jnp.arange(counts.shape[0], dtype=jnp.int32)
        return *gemm.gemm_latency(rows, own, counts, hardware, constants), gemm.gemm_sol(
            rows, counts, hardware, constants
        )
    if isinstance(rows, comm.CommRows):
        return *comm.comm_latency(rows, counts, hardware, constants), comm.comm_sol(rows, counts, hardware, constants)
    latency = traffic.traffic_latency(rows, counts, hardware, constants)
    return *latency, traffic.traffic_sol(rows, counts, hardware, constants)


@eqx.filter_jit
def _attention(rows, points, hardware: Hardware, constants: OpConstants, phase: str):
    batch, length, *prefix = points
    if phase == "context":
        latency = attention.context_attention_latency(rows, batch, length, prefix[0], hardware, constants)
        return *latency, attention.context_attention_sol(rows, batch, length, prefix[0], hardware, constants)
    if phase == "generation":
        latency = attention.generation_attention_latency(rows, batch, length, hardware)
        return *latency, attention.generation_attention_sol(rows, batch, length, hardware)
    latency = attention.encoder_attention_latency(rows, batch, length, hardware, constants)
    return *latency, attention.encoder_attention_sol(rows, batch, length, hardware, constants)
