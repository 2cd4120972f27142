# SPDX-License-Identifier: Apache-2.0
"""Kernels of recurrent layers in float64: which tensors they read and write, one call at a time.

Activations take 2 bytes. A scan works through a sequence in chunks of 64 tokens and keeps the state at each.
"""

import math

from aicjax._results import Provenance
from tests.oracles import curves, grid
from tests.oracles.rooflines import MS_PER_S

CHUNK = 64


def convolution(tokens: float, channels: float, width: int) -> float:
    """Each output reads `width` inputs and a tap, and is written."""
    reads, writes = tokens * channels * (width + 1), tokens * channels
    return 2 * (reads + writes)


def mamba2_scan(tokens: float, heads: int, head_dim: int, groups: int, state: int) -> float:
    """Inputs, both projections of every group, a step size a head; outputs."""
    inner = heads * head_dim
    return 2 * tokens * (inner + 2 * groups * state + heads) + 2 * tokens * inner


def gdn_state(tokens: float, batch: float, length: float, k: int, v: int, state: float, state_bytes: int, scan: bool):
    """Queries, keys (`k` wide) and values (`v`) in, values out; the state in and out, and of each chunk likewise."""
    chunks = batch * (length // CHUNK) if scan else 0
    return 2 * tokens * (2 * k + v) + 2 * tokens * v + 2 * batch * state * state_bytes + 2 * chunks * state * 2


def kda_state(tokens: float, batch: float, length: float, v: int, state: float, kind: str) -> float:
    """Four inputs and an output of `v`; a 32-bit state in, and out once, at every chunk too, or after every token."""
    chunks = batch * (length // CHUNK) if kind == "scan" else 0
    written = tokens if kind == "verify" else batch
    return 2 * tokens * 5 * v + 4 * state * (batch + written + 2 * chunks)


def answer(table: grid.Table, query: tuple[int, int], spans: bool, moved, mem_bw: float) -> grid.Answer:
    """Measured over (batch, length), or over batch alone; memory traffic `moved(batch, length)` where it was not."""

    def sol(batch: float, length: float) -> float:
        return MS_PER_S * moved(batch, length) / mem_bw

    if spans:
        found = grid.grid(table, query, sol)
    else:
        found = curves.size_curve({batch: latency for (batch, _), latency in table.items()}, query[0])
    return (sol(*query), Provenance.SOL) if math.isnan(found[0]) else found
