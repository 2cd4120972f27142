# SPDX-License-Identifier: Apache-2.0
"""Tables that timed their host: small operators take far longer than on the other backends of the same GPU.

A benchmark that launches kernels one by one measures the launches where kernels are short. A server replays them from a
graph, so that nobody waits for them. The mark of such a table is a time that all small operators have in excess of
their siblings (the same operator, format and sizes on the same system, measured with another backend), and that large
operators have not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np

from aicjax.tables.columns import COLUMNS, Kind
from aicjax.tables.rows import Rows, first_rows
from aicjax.tables.schema import TABLES
from aicjax.tables.sources import newest_first
from aicjax.tables.store import read_rows
from aicjax.tables.tree import BACKENDS, Tree, measured_systems, tree

COMPARED = (  # tables whose operators do not depend on the kernel that runs them
    "gemm_perf",
    "moe_perf",
    "context_attention_perf",
    "generation_attention_perf",
    "context_mla_perf",
    "generation_mla_perf",
    "mla_bmm_perf",
    "mla_context_module_perf",
    "mla_generation_module_perf",
    "dsa_context_module_perf",
    "dsa_generation_module_perf",
)
HOW = ("kernel_source", "model")  # columns that say how or for whom, not what, was measured
LEAST_EXCESS_US = 10.0  # two launches of a kernel by a host
LEAST_RATIO = 1.5  # of small operators to their siblings
MOST_LARGE_SHARE = 1 / 3  # of that excess ratio which large operators may show
SMALL_SHARE = 0.25  # share of the common points, the fastest of the sibling, that count as small
LARGE_EXCESSES = 4.0  # a point is large where it takes longer than so many times the excess
LARGEST_SHARE = 0.03  # share of the points that count as large where none is
LEAST_POINTS = 30  # common points that make a comparison


@dataclass(frozen=True)
class TableFile:
    """A measured table: `<database>/<system>/<family>/<backend>/<version>/<table>.parquet`."""

    system: str
    backend: str
    version: str
    table: str

    def rows(self) -> Rows | None:
        """Its own rows."""
        return read_rows(self.system, self.backend, self.version, self.table, shared=False)


@dataclass(frozen=True)
class Comparison:
    """One slice of a table beside the same slice of a sibling.

    Attributes:
        file, sibling: The two tables.
        where: Texts that select the slice, by column.
        points: Points that both measured.
        floor_us, sibling_floor_us: Least latency of these points.
        excess_us: Median of what small operators take longer than the sibling's.
        small_ratio: Median ratio of small operators to the sibling's.
        large_ratio: The same of large operators.
    """

    file: TableFile
    sibling: TableFile
    where: tuple[tuple[str, str], ...]
    points: int
    floor_us: float
    sibling_floor_us: float
    excess_us: float
    small_ratio: float
    large_ratio: float

    @property
    def host_bound(self) -> bool:
        """Whether small operators have a time in excess that large ones have not."""
        vanishes = self.large_ratio - 1 <= MOST_LARGE_SHARE * (self.small_ratio - 1)
        return self.excess_us >= LEAST_EXCESS_US and self.small_ratio >= LEAST_RATIO and vanishes


@dataclass(frozen=True)
class Fault:
    """A slice that is host-bound beside every sibling.

    Attributes:
        comparisons: One for each sibling, of the same slice.
    """

    comparisons: tuple[Comparison, ...]

    @property
    def excess_us(self) -> float:
        """Least excess over a sibling."""
        return min(comparison.excess_us for comparison in self.comparisons)


def find_faults(systems: Sequence[str] = (), tables: Sequence[str] = COMPARED) -> list[Fault]:
    """Faults of the database in use.

    Args:
        systems: Systems to look at; all measured ones when empty.
        tables: Kinds of table, of `COMPARED`.
    """
    found = []
    for system in systems or measured_systems():
        for table in tables:
            files = list(_files(tree(system), table))
            for file in files:
                found += _faults_of(file, [other for other in files if other.backend != file.backend])
    return found


def _files(files: Tree, table: str) -> Iterator[TableFile]:
    """The newest table of each backend."""
    for backend in BACKENDS:
        having = {v for (_, b, v), names in files.files.items() if b == backend and table in names}
        if having:
            yield TableFile(files.directory.name, backend, newest_first(having)[0], table)


def _faults_of(file: TableFile, siblings: Sequence[TableFile]) -> list[Fault]:
    compared: dict[tuple[tuple[str, str], ...], list[Comparison]] = {}
    for sibling in siblings:
        for comparison in compare(file, sibling):
            compared.setdefault(comparison.where, []).append(comparison)
    return [Fault(tuple(found)) for found in compared.values() if all(c.host_bound for c in found)]


def compare(file: TableFile, sibling: TableFile) -> list[Comparison]:
    """Comparisons of all slices that both tables measured at `LEAST_POINTS` points or more."""
    own, other = file.rows(), sibling.rows()
    if own is None or other is None:
        return []
    found = []
    own_slices, other_slices = slices(own, file.table), slices(other, sibling.table)
    for where in own_slices.keys() & other_slices.keys():
        first, second = own.select(own_slices[where]), other.select(other_slices[where])
        at, by = common_points(first, second, file.table)
        if at.size >= LEAST_POINTS:
            found.append(_comparison(file, sibling, where, _latency_us(first)[at], _latency_us(second)[by]))
    return sorted(found, key=lambda comparison: comparison.where)


def _comparison(file: TableFile, sibling: TableFile, where, own_us: np.ndarray, other_us: np.ndarray) -> Comparison:
    small = other_us <= np.quantile(other_us, SMALL_SHARE)
    excess_us = float(np.median((own_us - other_us)[small]))
    ratio = own_us / other_us
    large = other_us >= min(LARGE_EXCESSES * abs(excess_us), np.quantile(other_us, 1 - LARGEST_SHARE))
    floors = float(own_us.min()), float(other_us.min())
    ratios = float(np.median(ratio[small])), float(np.median(ratio[large]))
    return Comparison(file, sibling, where, own_us.size, *floors, excess_us, *ratios)


def slices(rows: Rows, table: str) -> dict[tuple[tuple[str, str], ...], np.ndarray]:
    """Rows of each slice [selected], by the texts that select it."""
    columns = [c for c in TABLES[table].identity if COLUMNS[c].kind is Kind.TEXT and c not in HOW]
    texts = [rows.text(column, "") for column in columns]
    code = np.zeros(len(rows), np.int64)
    for codes, words in texts:
        code = code * len(words) + codes
    met, owner = np.unique(code, return_inverse=True)
    members = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=met.size))[:-1])
    return {
        tuple((c, words[codes[at[0]]]) for c, (codes, words) in zip(columns, texts, strict=True)): at for at in members
    }


def common_points(first: Rows, second: Rows, table: str) -> tuple[np.ndarray, np.ndarray]:
    """Places in either slice of the points that both measured; of rows of one point the first counts."""
    own, other = point_codes(first, second, table)
    at, by = first_rows(own), first_rows(other)
    _, in_own, in_other = np.intersect1d(own[at], other[by], assume_unique=True, return_indices=True)
    return at[in_own], by[in_other]


def point_codes(first: Rows, second: Rows, table: str) -> tuple[np.ndarray, np.ndarray]:
    """A number for each row of two slices [row], the same for the same point."""
    columns = [c for c in TABLES[table].key if COLUMNS[c].kind is not Kind.TEXT]
    code = np.zeros(len(first) + len(second), np.int64)
    for column in columns:
        numbers = np.concatenate([rows.number(column, 0) for rows in (first, second)]).astype(np.int64)
        words, numbers = np.unique(numbers, return_inverse=True)
        code = code * words.size + numbers
    return code[: len(first)], code[len(first) :]


def _latency_us(rows: Rows) -> np.ndarray:
    return rows.number("latency") * 1e3


def file_of(path: PurePath) -> TableFile:
    """The table at a path."""
    system, _, backend, version, name = path.parts[-5:]
    return TableFile(system, backend, version, PurePath(name).stem)
