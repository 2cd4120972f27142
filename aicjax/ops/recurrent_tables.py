# SPDX-License-Identifier: Apache-2.0
"""Measured kernels of recurrent layers (Mamba2, GDN, KDA): one file a family, one set of points a kernel and shape.

Prompts were measured over batch and length, decode steps over batch alone: their state does not grow.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aicjax.hardware import System
from aicjax.tables import first_rows, read_rows

ACTIVATION_BYTES = 2  # inputs and outputs of every kernel
SPANNING = ("context", "verify")  # phases in which a sequence brings several tokens


class KernelKey(NamedTuple):
    """What selects the measured points of one kernel.

    Attributes:
        kernel: Name of the kernel.
        phase: `context`, `generation` or `verify`.
        shape: Columns of `RecurrentSchema.shape`, the model's width first.
    """

    kernel: str
    phase: str
    shape: tuple[int, ...]


class Points(NamedTuple):
    """Measured points of one kernel; length 0 where a batch alone was measured."""

    batch: np.ndarray
    length: np.ndarray
    latency_ms: np.ndarray


class Moved(NamedTuple):
    """Bytes that a kernel moves: a token, a sequence (its state), and a full chunk of a sequence."""

    token: float
    sequence: float = 0.0
    chunk: float = 0.0


@dataclass(frozen=True)
class Kernel:
    """What an operator runs, as one model in one database has it.

    Attributes:
        phase: `context`, `generation` or `verify`.
        moved: Bytes, of which the roofline is made.
        points: Measurements that answer; None for the roofline alone.
        draft_tokens: Tokens of each sequence that a verification checks, 0 in other phases.
        ignores_length: Whether the length does not even enter the roofline.
        fused: Whether another operator's kernel does the work, at no cost of its own.
    """

    phase: str
    moved: Moved
    points: Points | None
    draft_tokens: int = 0
    ignores_length: bool = False
    fused: bool = False

    @property
    def spans(self) -> bool:
        """Whether a sequence brings several tokens."""
        return self.phase in SPANNING


@dataclass(frozen=True)
class RecurrentSchema:
    """How the file of one family is read.

    Attributes:
        table: Its name.
        shape: Columns that make a shape, the model's width first.
        renamed: Kernels that are listed under another name: `(name in the file, name asked for)`.
    """

    table: str
    shape: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()


class RecurrentTable(dict[KernelKey, Points]):
    """Measured points by kernel, keys ascending."""

    def of_width(self, kernel: str, phase: str, width: int) -> list[KernelKey]:
        """Keys of one kernel and phase in models of one width, ascending."""
        return [key for key in self if key[:2] == (kernel, phase) and key.shape[0] == width]

    def runs(self, kernel: str, phase: str) -> bool:
        """Whether a kernel was measured in a phase, at any shape."""
        return any(key[:2] == (kernel, phase) for key in self)


@functools.lru_cache(maxsize=32)
def load_recurrent(system: System, backend: str, version: str, shared: bool, schema: RecurrentSchema) -> RecurrentTable:
    """Points of one family, the first row of each; empty when nothing was measured."""
    rows = read_rows(system.name, backend, version, schema.table, shared)
    if rows is None or not len(rows):
        return RecurrentTable()
    codes, names = rows.text("kernel_source")
    kernels = [dict(schema.renamed).get(name, name) for name in names]
    distinct = sorted(set(kernels))
    kernel = np.array([distinct.index(name) for name in kernels])[codes]
    phase, phases = rows.text("phase")
    batch, latency = rows.number("batch_size"), rows.number("latency").astype(np.float64)
    length = np.where(rows.is_in("phase", SPANNING), rows.number("seq_len", 0), 0).astype(np.int64)
    parts = (kernel, phase, *[rows.number(column) for column in schema.shape])
    keep = first_rows(*parts, batch, length)
    keys, owner = np.unique(np.stack(parts, -1)[keep], axis=0, return_inverse=True)
    order = np.argsort(owner.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(owner.reshape(-1)))[:-1]
    groups = [np.split(column[keep][order], ends) for column in (batch, length, latency)]
    found = {
        KernelKey(distinct[key[0]], phases[key[1]], tuple(key[2:])): Points(*points)
        for key, *points in zip(keys.tolist(), *groups, strict=True)
    }
    return RecurrentTable(sorted(found.items()))
