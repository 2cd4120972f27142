# SPDX-License-Identifier: Apache-2.0
"""All operators that a token count alone drives, as distinct rows evaluated on distinct counts."""

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.interp.counts import ceil_div, floor_div
from aicjax.ops.comm import CommRows, bind_comm, comm_latency, comm_sol
from aicjax.ops.database import Database
from aicjax.ops.gemm import GemmRows, bind_gemm, gemm_latency, gemm_sol
from aicjax.ops.records import P2P, AllReduce, Elementwise, Embedding, Gemm, Nccl, Op, TokenOp
from aicjax.ops.roofline import Hardware
from aicjax.ops.traffic import TrafficRows, bind_traffic, traffic_latency, traffic_sol

ROW_BUCKET = 8


class TokenRows(eqx.Module):
    """Distinct token-driven operators: matrix products, collectives, traffic, in this order.

    Attributes:
        last_only: Whether a count is that of the last tokens of requests [transform].
        divisor: Floor divisor of the count [transform].
        split: Ceil divisor of the count, after `divisor` [transform].
        gemm: Matrix products.
        comm: Collectives.
        traffic: Operators that only move bytes.
        reads: Which transform each row reads, one array a group.
    """

    last_only: Bool[Array, " transform"]
    divisor: Int[Array, " transform"]
    split: Int[Array, " transform"]
    gemm: GemmRows
    comm: CommRows
    traffic: TrafficRows
    reads: tuple[Int[Array, " row"], ...]


def distinct(op: Op) -> Hashable:
    """What makes two operators one row: everything but name and scale."""
    return dataclasses.replace(op, name="", scale=1.0), isinstance(op, Gemm) and op.last_token_only


def bind_tokens(database: Database, ops: Sequence[TokenOp]) -> tuple[TokenRows, dict[Hashable, int]]:
    """Rows for all distinct operators, and the row of each.

    Args:
        database: Which tables.
        ops: Operators, repeats allowed.
    """
    firsts = {distinct(op): op for op in reversed(ops)}
    keys = list(dict.fromkeys(distinct(op) for op in ops))
    groups = (
        [k for k in keys if isinstance(firsts[k], Gemm)],
        [k for k in keys if isinstance(firsts[k], AllReduce | Nccl)],
        [k for k in keys if isinstance(firsts[k], Elementwise | Embedding | P2P)],
    )
    sizes = [-(-len(group) // ROW_BUCKET) * ROW_BUCKET for group in groups]
    transform: dict[tuple[bool, int, int], int] = {}
    reads, place, offset = [], {}, 0
    for group, size in zip(groups, sizes, strict=True):
        used = [transform.setdefault(_transform(firsts[k]), len(transform)) for k in group]
        reads.append(np.array(used + [0] * (size - len(group)), np.int32))
        place |= {key: offset + at for at, key in enumerate(group)}
        offset += size
    listed = [*transform, *[(False, 1, 1)] * (-len(transform) % 2)]
    records: list[list[Any]] = [[firsts[k] for k in group] for group in groups]
    rows = TokenRows(
        last_only=np.array([t[0] for t in listed], bool),
        divisor=np.array([t[1] for t in listed], np.int32),
        split=np.array([t[2] for t in listed], np.int32),
        gemm=bind_gemm(database, records[0], rows=sizes[0]),
        comm=bind_comm(database, records[1], rows=sizes[1]),
        traffic=bind_traffic(records[2], rows=sizes[2]),
        reads=tuple(reads),
    )
    return rows, place


def _transform(op: TokenOp) -> tuple[bool, int, int]:
    return isinstance(op, Gemm) and op.last_token_only, getattr(op, "token_divisor", 1), op.seq_split


def token_latency(
    rows: TokenRows, tokens: Int[Array, " point"], last_tokens: Int[Array, " point"], hardware: Hardware
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of every row at every token count and how it was obtained.

    Args:
        rows: Bound operators.
        tokens: Tokens of a step.
        last_tokens: Tokens that the vocabulary projection sees.
        hardware: Peaks and bandwidths.
    """
    counts = _counts(rows, tokens, last_tokens)
    gemm, comm, traffic = rows.reads
    parts = [
        gemm_latency(rows.gemm, gemm, counts, hardware),
        comm_latency(rows.comm, counts[comm]),
        traffic_latency(rows.traffic, counts[traffic], hardware),
    ]
    return jnp.concatenate([p[0] for p in parts]), jnp.concatenate([p[1] for p in parts])


def token_sol(
    rows: TokenRows, tokens: Int[Array, " point"], last_tokens: Int[Array, " point"], hardware: Hardware
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Roofline of every row at every token count, in the form of `token_latency`."""
    counts = _counts(rows, tokens, last_tokens)
    gemm, comm, traffic = rows.reads
    parts = [
        gemm_sol(rows.gemm, counts[gemm], hardware),
        comm_sol(rows.comm, counts[comm]),
        traffic_sol(rows.traffic, counts[traffic], hardware),
    ]
    sol = jnp.concatenate(parts)
    return sol, jnp.full(sol.shape, Provenance.SOL, jnp.int32)


def _counts(rows: TokenRows, tokens, last_tokens) -> Float[Array, "transform point"]:
    """Token count that each transform makes of a step's tokens, in integers."""
    count = floor_div(jnp.where(rows.last_only[:, None], last_tokens, tokens), rows.divisor[:, None])
    return ceil_div(count, rows.split[:, None]).astype(jnp.float32)
