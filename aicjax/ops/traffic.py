# SPDX-License-Identifier: Apache-2.0
"""Operators that only move bytes: element-wise kernels, embedding look-ups and pipeline hand-overs."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax import quant
from aicjax._results import Provenance
from aicjax._types import Array
from aicjax.constants import OpConstants
from aicjax.ops.database import Database
from aicjax.ops.records import P2P, Elementwise, Embedding
from aicjax.ops.roofline import BETWEEN_NODES, Hardware, memory_ms

P2P_BYTES = 2  # activations travel between pipeline stages at 16 bits


class TrafficRows(eqx.Module):
    """Distinct operators that move bytes.

    Attributes:
        bytes_per_token: Bytes a token [row].
        between_nodes: Whether the bytes go over the link between nodes instead of through memory [row].
        idle: Whether nothing moves at all: a pipeline of one stage [row].
    """

    bytes_per_token: Float[Array, " row"]
    between_nodes: Bool[Array, " row"]
    idle: Bool[Array, " row"]


def bind_traffic(database: Database, records: Sequence[Elementwise | Embedding | P2P], *, rows: int) -> TrafficRows:
    """Rows for `records`, padded to `rows`."""
    pad = (0, rows - len(records))
    return TrafficRows(
        bytes_per_token=np.pad(np.array([_bytes_per_token(r) for r in records], np.float32), pad),
        between_nodes=np.pad(np.array([isinstance(r, P2P) for r in records], bool), pad),
        idle=np.pad(np.array([isinstance(r, P2P) and r.pp <= 1 for r in records], bool), pad, constant_values=True),
    )


def _bytes_per_token(record: Elementwise | Embedding | P2P) -> float:
    if isinstance(record, Elementwise):
        return record.bytes_per_token
    if isinstance(record, P2P):
        return record.hidden_size * P2P_BYTES
    return record.hidden_size * quant.GEMM[record.quant].bytes


def traffic_latency(
    rows: TrafficRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each operator: bytes over what the path sustains, plus its constant; provenance."""
    moved = tokens * rows.bytes_per_token[:, None]
    link = moved / hardware.link_bw[BETWEEN_NODES] + hardware.p2p_latency_ms
    latency = jnp.where(rows.between_nodes[:, None], link, memory_ms(moved, hardware))
    idle = jnp.broadcast_to(rows.idle[:, None], latency.shape)
    code = jnp.where(idle, Provenance.NONE, Provenance.ANALYTIC)
    return jnp.where(idle, 0.0, latency), code.astype(jnp.int32)


def traffic_pace(
    rows: TrafficRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """How each latency moves with the hardware: as its formula does [ms]."""
    return traffic_latency(rows, tokens, hardware, constants)[0]


def traffic_sol(
    rows: TrafficRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """Roofline of each operator [ms]: bytes over the peak bandwidth of their path."""
    moved = tokens * rows.bytes_per_token[:, None]
    sol = moved / jnp.where(rows.between_nodes[:, None], hardware.link_bw[BETWEEN_NODES], hardware.mem_bw)
    return jnp.where(rows.idle[:, None], 0.0, sol)
