# SPDX-License-Identifier: Apache-2.0
"""Step times and memory of the cases of a sweep: each engine is bound once, each grid planned once."""

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Generic, TypeVar

import jax
import numpy as np

from aicjax.explore.evaluation import bind_layouts
from aicjax.explore.roles import Worker
from aicjax.forward.bound import BoundModel
from aicjax.serving.point import AggCurves, serving_numbers
from aicjax.sweeps.cases import ENGINES_AT_ONCE, Case, Cases, grid_rules, request_of
from aicjax.sweeps.kernel import Rows
from aicjax.sweeps.plan import GridPlan, plan_grid
from aicjax.sweeps.rest import RestTimes, RestUnion, attention_alone, rest_union
from aicjax.sweeps.spec import Drafts, SweepSpec, Workload

GRIDS_TOGETHER = 8  # whose passes without attention an engine evaluates at once
UNIONS_AT_ONCE = 4  # of them: one for each of the rules that engines may have
CURVES_AT_ONCE = 8  # step times that are held, since cases that follow each other may differ in memory alone
GridName = tuple[Workload, tuple[int, ...]]
Value = TypeVar("Value")


class Newest(Generic[Value]):
    """The newest few values by key; each is made once, whichever thread asks first."""

    def __init__(self, size: int):
        self._size, self._lock = size, threading.Lock()
        self._made: dict[Hashable, Future[Value]] = {}

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made if it is not there."""
        with self._lock:
            future = self._made.get(key)
            if asked := future is None:
                future = self._made[key] = Future()
                if len(self._made) > self._size:
                    del self._made[next(iter(self._made))]
        if asked:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
        return future.result()


class Preparation:
    """Makes what the kernels need of each case; may be asked by several threads."""

    def __init__(self, spec: SweepSpec, cases: Cases):
        self.spec, self.cases = spec, cases
        self._together = _together(cases)
        self._bound: Newest[BoundModel] = Newest(2 * ENGINES_AT_ONCE)
        self._curves: Newest[AggCurves] = Newest(CURVES_AT_ONCE)
        self._rest: Newest[RestTimes] = Newest(2 * ENGINES_AT_ONCE)
        self._unions: Newest[RestUnion] = Newest(UNIONS_AT_ONCE)
        self._plans: Newest[GridPlan] = Newest(UNIONS_AT_ONCE * GRIDS_TOGETHER)

    def grid_key(self, case: Case) -> Hashable:
        """What cases on the same grid share."""
        return case.workload, case.batches, grid_rules(self.cases.engines[case.engine])

    def grid(self, case: Case) -> GridPlan:
        """The grid of a case, on the device."""
        return self._plans.get(
            self.grid_key(case), lambda: plan_grid(self._worker(case), case.batches, self.spec.ctx_tokens)
        )

    def rows(self, case: Case) -> Rows:
        """Its layouts, one row each, numpy."""
        worker, plan = self._worker(case), self.grid(case)
        bound = self._bound.get(case.engine, lambda: bind_layouts(worker.deployment, worker.op_lists))
        deployment, layouts = worker.deployment, len(worker.layouts)
        numbers = serving_numbers(deployment.constants)
        curves = self._curves.get(
            (case.engine, case.workload, case.batches),
            lambda: plan.curves(self._rest_times(case, bound), bound.evaluate(attention_alone(plan.queries))),
        )
        return Rows(
            curves=curves,
            limits=plan.limits(worker, case.memory_fraction),
            dispatch_layers=np.full(layouts, deployment.model.layers, np.float32),
            replicas=np.array([layout.pp * layout.dp for layout in worker.layouts], np.float32),
            constants=jax.tree.map(lambda leaf: np.full(layouts, leaf, np.float32), numbers),
        )

    def _rest_times(self, case: Case, bound: BoundModel) -> RestTimes:
        """Passes without attention on the grid of a case, found for all grids at once that an engine shares them on."""
        together, place = self._together[case.workload, case.batches]
        engine = self.cases.engines[case.engine]
        grids = [replace(case, workload=workload, batches=batches) for workload, batches in together]
        key = together[0], grid_rules(engine)
        union = self._unions.get(key, lambda: rest_union([self.grid(grid).queries for grid in grids]))
        times = self._rest.get((case.engine, together[0]), lambda: union.times(bound))
        return times.at(union.places[place])

    def _worker(self, case: Case) -> Worker:
        engine = self.cases.engines[case.engine]
        return engine.under(request_of(self.spec, engine.name, case.workload))["agg"]


def _together(cases: Cases) -> dict[GridName, tuple[Sequence[GridName], int]]:
    """For each grid those that it is evaluated with, the same for all engines, and its place among them."""
    of_drafts: dict[Drafts, list[GridName]] = {}
    for workload, batches in dict.fromkeys((case.workload, case.batches) for case in cases.cases):
        of_drafts.setdefault(workload.drafts, []).append((workload, batches))
    starts = [(grids, start) for grids in of_drafts.values() for start in range(0, len(grids), GRIDS_TOGETHER)]
    parts = [grids[start : start + GRIDS_TOGETHER] for grids, start in starts]
    return {grid: (part, place) for part in parts for place, grid in enumerate(part)}
