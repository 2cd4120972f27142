# SPDX-License-Identifier: Apache-2.0
"""Step times and memory of the cases of a sweep: each engine is bound once, each grid planned once."""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

import jax
import numpy as np

from aicjax.explore.evaluation import bind_layouts
from aicjax.explore.roles import Worker
from aicjax.forward.bound import BoundModel
from aicjax.serving.point import serving_numbers
from aicjax.sweeps.cases import ENGINES_AT_ONCE, Case, Cases, grid_rules, request_of
from aicjax.sweeps.kernel import Rows
from aicjax.sweeps.plan import GridPlan, plan_grid
from aicjax.sweeps.spec import SweepSpec

GRIDS_AT_ONCE = 4
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
        self._bound: Newest[BoundModel] = Newest(2 * ENGINES_AT_ONCE)
        self._plans: Newest[GridPlan] = Newest(GRIDS_AT_ONCE)

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
        return Rows(
            curves=plan.curves(bound.evaluate(plan.queries)),
            limits=plan.limits(worker, case.memory_fraction),
            dispatch_layers=np.full(layouts, deployment.model.layers, np.float32),
            replicas=np.array([layout.pp * layout.dp for layout in worker.layouts], np.float32),
            constants=jax.tree.map(lambda leaf: np.full(layouts, leaf, np.float32), numbers),
        )

    def _worker(self, case: Case) -> Worker:
        engine = self.cases.engines[case.engine]
        return engine.under(request_of(self.spec, engine.name, case.workload))["agg"]
