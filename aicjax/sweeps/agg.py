# SPDX-License-Identifier: Apache-2.0
"""A chunk of an in-flight batching sweep: every point scanned, the few that can still matter looked at, and kept."""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import jax
import numpy as np
import pyarrow as pa
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from aicjax._types import Device
from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame
from aicjax.interp.counts import point_bucket
from aicjax.serving.agg import AggEstimate
from aicjax.sweeps import kernel, spread
from aicjax.sweeps.bounds import may_be_on_front, may_be_on_top
from aicjax.sweeps.cases import Case, Cases, grid_rules, in_chunks
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.kept import Kept, Points
from aicjax.sweeps.kernel import BLOCK, MEASURES, Grid, Rows, Scan
from aicjax.sweeps.listing import GROUP_POINTS, layout_frame, point_table
from aicjax.sweeps.objectives import factor, measure, measures
from aicjax.sweeps.plan import GridPlan
from aicjax.sweeps.prepare import Preparation
from aicjax.sweeps.rows import agg_rows
from aicjax.sweeps.spec import SweepSpec

LOOKED_AT_ONCE = 1 << 14
Ints = NDArray[np.int64]
Tree = TypeVar("Tree")

_LOOK = functools.partial(jax.jit, static_argnames="littles_law_cap")(kernel.look)


class _Facts(NamedTuple):
    """What the host knows of each row of a chunk.

    Attributes:
        group: Its group [row].
        first_point: Number of its first point [row].
        factor: What its rate is worth, by objective [objective, row].
    """

    group: Ints
    first_point: Ints
    factor: NDArray[np.float64]

    def groups(self) -> Iterator[tuple[int, Ints]]:
        """Each group with its rows."""
        for group in np.unique(self.group).tolist():
            yield group, np.flatnonzero(self.group == group)


class AggWork:
    """The chunks of an in-flight batching sweep, done on some devices; `prepare` may be called by several threads."""

    def __init__(self, spec: SweepSpec, cases: Cases, groups: Groups, devices: Sequence[Device]):
        self.spec, self.cases, self.groups, self.devices = spec, cases, groups, tuple(devices)
        self._preparation = Preparation(spec, cases)
        self.limits = np.array([[limit.ttft or np.inf, limit.tpot or np.inf] for limit in spec.limits], np.float32)
        self._spread = NamedSharding(Mesh(np.array(self.devices), (spread.ROWS,)), PartitionSpec())

    def chunks(self) -> list[tuple[Case, ...]]:
        """The chunks: successive cases on one grid."""
        return in_chunks(self.cases.cases, self._preparation.grid_key)

    def prepare(self, case: Case) -> Rows:
        """Step times and memory of a case."""
        return self._preparation.rows(case)

    def describe(self, points: Points) -> Frame:
        """Rows of points."""
        return agg_rows(self.spec, self.cases, points)

    def keep(self, chunk: Sequence[Case], parts: Sequence[Rows], known: Kept) -> Kept:
        """What a chunk adds to what is known.

        Args:
            chunk: Its cases.
            parts: What `prepare` made of each.
            known: What is kept of other chunks; what cannot beat it is left out.
        """
        plan, cases = self._preparation.grid(chunk[0]), chunk
        rows = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        facts, kept = self._facts(cases, plan), Kept(self.spec.top_k)
        capped = grid_rules(self.cases.engines[cases[0].engine]).littles_law_cap
        scan = self._scan(plan.grid, rows, facts, capped)
        self._count(kept, plan, facts, scan)
        self._look(kept, known, plan, rows, facts, self._promising(facts, scan, known), capped)
        return kept

    def tables(self, chunk: Sequence[Case], parts: Sequence[Rows]) -> Iterator[pa.Table]:
        """All points of a chunk, in tables of successive layouts; the same tables on any number of devices.

        Args:
            chunk: Its cases.
            parts: What `prepare` made of each.
        """
        plan, grid = self._preparation.grid(chunk[0]), self._preparation.grid(chunk[0]).grid
        rows = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        count, first_point = len(rows.replicas), self._facts(chunk, plan).first_point
        layouts = frames.concatenate([layout_frame(self.spec, self.cases, case) for case in chunk])
        inside = np.asarray(grid.needs.inside)[: plan.batches, : plan.budgets]
        run = spread.lister(
            self.devices, littles_law_cap=grid_rules(self.cases.engines[chunk[0].engine]).littles_law_cap
        )
        step = spread.rows_at_once(self.devices[0], grid, count) * len(self.devices)
        grid, size = jax.device_put(grid, self._spread), max(1, GROUP_POINTS // plan.points)
        for first in range(0, count, size):
            end = min(first + size, count)
            found = jax.device_get([run(_slice(rows, at, step, count), grid) for at in range(first, end, step)])
            found = jax.tree.map(
                lambda *leaves: np.concatenate(leaves)[: end - first, : plan.batches, : plan.budgets],  # noqa: B023
                *found,
            )
            of_layouts = frames.take(layouts, np.arange(first, end)), first_point[first:end]
            yield point_table(*of_layouts, chunk[0].batches, self.spec.ctx_tokens, inside, *found)

    def _facts(self, cases: Sequence[Case], plan: GridPlan) -> _Facts:
        groups, first, factors = [], [], []
        for case in cases:
            worker = self.cases.engines[case.engine].workers["agg"]
            gpus = np.array([layout.gpus for layout in worker.layouts])
            tokens = max(case.workload.osl - 1, 1)
            groups.append(np.full(len(gpus), self.groups.of_case[case.first_point]))
            first.append(case.first_point + plan.points * np.arange(len(gpus)))
            system = worker.deployment.system
            factors.append([factor(name, self.spec, system, gpus, tokens) for name in self.spec.objectives])
        return _Facts(np.concatenate(groups), np.concatenate(first), np.concatenate(factors, axis=1))

    def _scan(self, grid: Grid, rows: Rows, facts: _Facts, capped: bool) -> Scan:
        """Scan of all rows, numpy."""
        run = spread.scanner(self.devices, measures(self.spec), corners=self.spec.pareto, littles_law_cap=capped)
        grid = jax.device_put(grid, self._spread)
        count = len(rows.replicas)
        step = spread.rows_at_once(self.devices[0], grid, count) * len(self.devices)
        whole = rows, facts.factor[0].astype(np.float32) if self.spec.histogram else None
        parts = (_slice(whole, start, step, count) for start in range(0, count, step))
        found = [run(part, grid, self.limits, worth) for part, worth in parts]
        host: list[Scan] = jax.device_get(found)

        def limits_first(*leaves: NDArray) -> NDArray:
            return np.concatenate(leaves, axis=1)[:, :count]

        by_limits = jax.tree.map(limits_first, *(part[1:] for part in host))
        return Scan(np.concatenate([part.lost for part in host])[:count], *by_limits)

    def _count(self, kept: Kept, plan: GridPlan, facts: _Facts, scan: Scan) -> None:
        for group, rows in facts.groups():
            shared = [len(rows) * plan.points, len(rows) * (plan.points - plan.inside), *scan.lost[rows].sum(axis=0)]
            for limits, met in enumerate(scan.met[:, rows].sum(axis=1)):
                kept.count((group, limits), np.array([*shared, *met], np.int64))
                if scan.bins is not None:
                    kept.tally((group, limits), np.asarray(scan.bins)[limits, rows].sum(axis=0, dtype=np.int64))

    def _promising(self, facts: _Facts, scan: Scan, known: Kept) -> NDArray[np.bool_]:
        """Blocks [row, block, ctx] that can hold something to keep."""
        promising = np.zeros(scan.best[measures(self.spec)[0]].shape[1:], bool)
        for group, rows in facts.groups():
            for limits in range(len(self.limits)):
                sought = self.spec.top_k + int(scan.doubtful[limits, rows].sum())
                for place, name in enumerate(self.spec.objectives):
                    best = np.asarray(scan.best[measure(name)])[limits, rows] * facts.factor[place, rows, None, None]
                    threshold = known.threshold((group, limits, place))
                    promising[rows] |= may_be_on_top(best, sought, threshold)
                if scan.corners is not None:
                    edges = (np.asarray(edge)[limits, rows] for edge in scan.corners)
                    tpot_ms, seq_per_s, sample_tpot_ms, sample_seq_per_s = edges
                    worth = facts.factor[0, rows, None, None]
                    points = known.with_front((group, limits), sample_tpot_ms, sample_seq_per_s * worth)
                    promising[rows] |= may_be_on_front(tpot_ms, seq_per_s * worth, *points)
        return promising

    def _look(
        self,
        kept: Kept,
        known: Kept,
        plan: GridPlan,
        rows: Rows,
        facts: _Facts,
        promising: NDArray[np.bool_],
        capped: bool,
    ) -> None:
        """Evaluates the points of the promising blocks and keeps the best of them."""
        row, block, ctx = np.nonzero(promising)
        batch = block[:, None] * BLOCK + np.arange(BLOCK)
        there = (batch < plan.batches) & (ctx < plan.budgets)[:, None]
        row, ctx = (np.broadcast_to(index[:, None], batch.shape)[there] for index in (row, ctx))
        batch = batch[there]
        found, fits = _looked_at(plan.grid, rows, row, batch, ctx, capped)
        number = facts.first_point[row] + batch * plan.budgets + ctx
        ttft_ms, tpot_ms, latency_ms, seq_per_s = (np.asarray(values) for values in found)
        points = Points(number, seq_per_s, ttft_ms, tpot_ms, latency_ms, seq_per_s)
        for group in np.unique(facts.group[row]).tolist():
            of_group = fits & (facts.group[row] == group)
            for limits, (ttft_limit_ms, tpot_limit_ms) in enumerate(self.limits):
                fast = of_group & (ttft_ms <= ttft_limit_ms)
                within = np.flatnonzero(fast & (tpot_ms <= tpot_limit_ms))
                for place, name in enumerate(self.spec.objectives):
                    key = (group, limits, place)
                    value = MEASURES[measure(name)](found)[within] * facts.factor[place, row[within]]
                    best = may_be_on_top(value, self.spec.top_k, known.threshold(key))
                    if best.any():
                        kept.offer(key, points.take(within[best])._replace(value=value[best]))
                if self.spec.pareto and fast.any():
                    fast = np.flatnonzero(fast)
                    hopeful = points.take(fast)
                    hopeful = hopeful._replace(value=hopeful.seq_per_s * facts.factor[0, row[fast]])
                    edges = hopeful.tpot_ms, hopeful.value
                    kept.offer_front((group, limits), hopeful.take(may_be_on_front(*edges, *edges)))


def _looked_at(
    grid: Grid, rows: Rows, row: Ints, batch: Ints, ctx: Ints, capped: bool
) -> tuple[AggEstimate, NDArray[np.bool_]]:
    """Estimates of single points, float64, and whether they fit and have data; TPOT is 0 for one output token."""
    count = len(rows.replicas)
    rows = _slice(rows, 0, point_bucket(count), count)
    found = []
    for start in range(0, len(row), LOOKED_AT_ONCE):
        where = (index[start : start + LOOKED_AT_ONCE].astype(np.int32) for index in (row, batch, ctx))
        where = (np.pad(index, (0, LOOKED_AT_ONCE - len(index))) for index in where)
        found.append(_LOOK(rows, grid, *where, littles_law_cap=capped))
    if not found:
        none = np.zeros(0)
        return AggEstimate(none, none, none, none), np.zeros(0, bool)
    found, fits = jax.tree.map(lambda *parts: np.concatenate(parts)[: len(row)], *jax.device_get(found))
    found = AggEstimate(*(values.astype(np.float64) for values in found))
    if grid.osl == 1:
        found = found._replace(tpot_ms=np.zeros(len(row)))
    return found, fits & np.isfinite(found.request_latency_ms)


def _slice(parts: Tree, start: int, size: int, count: int) -> Tree:
    """Some successive rows of the arrays of a tree, of `count` rows each; the last is repeated beyond the end."""
    at = np.minimum(np.arange(start, start + size), count - 1)
    return jax.tree.map(lambda leaf: leaf[at], parts)
