# SPDX-License-Identifier: Apache-2.0
"""Rates, latencies and memory of the prefill and decode workers of a sweep; each engine is bound once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.evaluation import Evaluation
from aicjax.explore.grid import load_grid
from aicjax.explore.roles import Worker
from aicjax.explore.space import Role
from aicjax.explore.static_sweep import StaticPoints, StaticSweep, plan_static_sweep, static_points
from aicjax.forward.bound import BoundModel, StepCurves
from aicjax.forward.memory import Verdict
from aicjax.serving.coordinates import Coordinates
from aicjax.serving.static import Mode, project, static_estimate
from aicjax.sweeps.cases import ENGINES_AT_ONCE, Case, Cases, request_of
from aicjax.sweeps.prepare import Newest
from aicjax.sweeps.spec import SweepSpec

MODES: dict[Role, Mode] = {"prefill": "static_ctx", "decode": "static_gen"}
CURVES_AT_ONCE = 8  # step times that are held, since cases that follow each other differ in memory alone


class Side(NamedTuple):
    """Workers of one role of a case; arrays [layout, batch].

    Attributes:
        seq_per_s: Requests per second of a worker.
        latency_ms: TTFT of a prefill worker alone, or TPOT of a decode worker.
        missing: Whether its step times lack data.
        verdict: Codes of `Verdict`.
    """

    seq_per_s: NDArray[np.float64]
    latency_ms: NDArray[np.float64]
    missing: NDArray[np.bool_]
    verdict: NDArray[np.int8]

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Workers that can be had."""
        return ~self.missing & (self.verdict == Verdict.FITS)


class Sides(NamedTuple):
    """The workers of a case."""

    prefill: Side
    decode: Side


class _Bound(NamedTuple):
    """An engine bound to its tables: models, and for each role that of its layouts with their positions in it."""

    models: tuple[BoundModel, ...]
    places: dict[Role, tuple[int, Sequence[int]]]


class DisaggPreparation:
    """Makes what the kernel needs of each case; may be asked by several threads."""

    def __init__(self, spec: SweepSpec, cases: Cases):
        self.spec, self.cases = spec, cases
        self.stride = load_grid().disagg.decode_stride
        self._bound: Newest[_Bound] = Newest(2 * ENGINES_AT_ONCE)
        self._curves: Newest[dict[Role, tuple[StaticSweep, StepCurves]]] = Newest(CURVES_AT_ONCE)

    def sides(self, case: Case) -> Sides:
        """Its workers, numpy."""
        workers = self.workers(case)
        key = case.engine, case.workload, case.batches
        batches: dict[Role, Sequence[int]] = {"prefill": self.spec.prefill_batch, "decode": case.batches}
        timed = self._curves.get(key, lambda: self._timed(case, workers, batches))
        return Sides(*(self._side(case, role, *timed[role]) for role in MODES))

    def workers(self, case: Case) -> dict[Role, Worker]:
        """The workers of a case under its requests."""
        engine = self.cases.engines[case.engine]
        return engine.under(request_of(self.spec, engine.name, case.workload))

    def points(self, case: Case, role: Role, batches: Sequence[int]) -> tuple[StaticSweep, StaticPoints]:
        """Step times and memory of one side of a case in batches of one's choice."""
        sweep, curves = self._timed(case, {role: self.workers(case)[role]}, {role: batches})[role]
        return sweep, self._points(case, role, sweep, curves)

    def _timed(
        self, case: Case, workers: dict[Role, Worker], batches: dict[Role, Sequence[int]]
    ) -> dict[Role, tuple[StaticSweep, StepCurves]]:
        """The planned sweep of each side, and the step times that it takes."""
        bound = self._bound.get(case.engine, lambda: self._bind(case.engine))
        coordinates = [Coordinates() for _ in bound.models]
        sweeps = {
            role: plan_static_sweep(worker, MODES[role], batches[role], coordinates[bound.places[role][0]], self.stride)
            for role, worker in workers.items()
        }
        used = {bound.places[role][0] for role in workers}
        curves = {model: bound.models[model].evaluate(coordinates[model].queries()) for model in used}
        return {role: (sweeps[role], curves[bound.places[role][0]]) for role in workers}

    def _bind(self, engine: int) -> _Bound:
        workers, evaluation = self.cases.engines[engine].workers, Evaluation()
        for worker in workers.values():
            evaluation.add(worker)
        models = tuple(bound.model for bound in evaluation.bound())
        return _Bound(models, {role: evaluation.place(worker) for role, worker in workers.items()})

    def _points(self, case: Case, role: Role, sweep: StaticSweep, curves: StepCurves) -> StaticPoints:
        cost = sweep.worker.deployment.cost("prefill" if role == "prefill" else "decode")
        rows = self._bound.get(case.engine, lambda: self._bind(case.engine)).places[role][1]
        return static_points(sweep, curves, rows, cost=cost, kv_fraction=case.memory_fraction)

    def _side(self, case: Case, role: Role, sweep: StaticSweep, curves: StepCurves) -> Side:
        points, load, layouts = (
            self._points(case, role, sweep, curves),
            sweep.worker.deployment.load,
            sweep.worker.layouts,
        )
        dp, pp = (np.array([getattr(layout, axis) for layout in layouts])[:, None] for axis in ("dp", "pp"))
        estimate = static_estimate(
            MODES[role], points.context_ms, points.generation_ms, sweep.batches * dp, load.osl, pp
        )
        estimate = project(estimate, MODES[role], load.osl, load.progress)
        latency_ms = estimate.ttft_ms if role == "prefill" else estimate.tpot_ms
        return Side(estimate.seq_per_s, latency_ms, points.missing, points.verdict)
