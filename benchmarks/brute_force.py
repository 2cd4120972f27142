# SPDX-License-Identifier: Apache-2.0
"""All points of sweeps by the sweep of a search, of which numpy keeps what is to be kept: slow, and independent."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.agg_points import AggPoints
from aicjax.explore.agg_sweep import plan_agg_sweep, sweep_points
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.pareto import front_rows
from aicjax.forward.memory import Verdict
from aicjax.sweeps.cases import Case, Cases, request_of
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.kept import Points
from aicjax.sweeps.spec import Limits, SweepSpec

ROUNDING = 1e-6  # relative, between two float32 programs of the same formulas


class Brute(NamedTuple):
    """Points of a group, flat, in the order of their numbers.

    Attributes:
        number: Number in the sweep.
        inside, known, fits, cached: Whether there is room for decoding, are data, is room for everything, and room for
            the KV cache.
        ttft_ms, tpot_ms, request_latency_ms: Latencies [ms].
        seq_per_s: Requests per second.
        gpus, tokens, power_w, price: GPUs and output tokens, and what a GPU takes and costs an hour.
    """

    number: NDArray[np.int64]
    inside: NDArray[np.bool_]
    known: NDArray[np.bool_]
    fits: NDArray[np.bool_]
    cached: NDArray[np.bool_]
    ttft_ms: NDArray[np.float64]
    tpot_ms: NDArray[np.float64]
    request_latency_ms: NDArray[np.float64]
    seq_per_s: NDArray[np.float64]
    gpus: NDArray[np.int64]
    tokens: NDArray[np.int64]
    power_w: NDArray[np.float64]
    price: NDArray[np.float64]

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Points that can be had, whatever the limits."""
        return self.inside & self.known & self.fits & self.cached

    def value(self, objective: str) -> NDArray[np.float64]:
        """What an objective makes of each point; greater is better."""
        rate = self.seq_per_s * self.tokens / self.gpus
        return {
            "tokens/s/gpu": rate,
            "tokens/$": rate * 3600 / self.price,
            "tokens/J": rate / self.power_w,
            "ttft": -self.ttft_ms,
            "tpot": -self.tpot_ms,
            "request_latency": -self.request_latency_ms,
        }[objective]

    def within(self, limits: Limits) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Feasible points within the limit on TTFT, and within that on TPOT."""
        fast, quick = (
            np.ones_like(self.feasible) if limit is None else times <= limit
            for times, limit in ((self.ttft_ms, limits.ttft), (self.tpot_ms, limits.tpot))
        )
        return self.feasible & fast, self.feasible & quick

    def counts(self, limits: Limits) -> list[int]:
        """`kept.COUNTS`."""
        fast, quick = self.within(limits)
        there = self.inside & self.known
        lost = (~self.inside, self.inside & ~self.known, there & ~self.fits, there & self.fits & ~self.cached)
        return [int(mask.sum()) for mask in (np.ones_like(fast), *lost, fast & quick, fast, quick)]

    def top(self, limits: Limits, objective: str, count: int) -> NDArray[np.int64]:
        """Positions of the best few within both limits, best first."""
        fast, quick = self.within(limits)
        at = np.flatnonzero(fast & quick)
        return at[np.argsort(-self.value(objective)[at], kind="stable")[:count]]

    def front(self, limits: Limits, objective: str) -> NDArray[np.int64]:
        """Positions of the Pareto front of TPOT against the objective within the limit on TTFT, by TPOT."""
        at = np.flatnonzero(self.within(limits)[0])
        return at[front_rows(self.tpot_ms[at], self.value(objective)[at], maximize_x=False)]

    def places(self, found: Points) -> NDArray[np.int64]:
        """Positions of points that a sweep found, all of which must be here."""
        at = np.searchsorted(self.number, found.number)
        assert np.array_equal(self.number[at], found.number)
        return at

    def same_top(self, found: Points, limits: Limits, objective: str, count: int) -> bool:
        """Whether the best points found are those of all points, but for the order of those that round alike."""
        expected, value = self.top(limits, objective, count), self.value(objective)
        if len(expected) != len(found.number):
            return False
        at = self.places(found)
        return np.allclose(value[at], value[expected], ROUNDING, 0) and np.allclose(found.value, value[at], ROUNDING, 0)

    def same_front(self, found: Points, limits: Limits, objective: str) -> bool:
        """Whether the front found is that of all points, but for points that one of the two just misses by rounding.

        What is on one of the two alone is matched by the other up to rounding, and beaten by none of it in both
        coordinates.
        """
        expected, value, tpot_ms = self.front(limits, objective), self.value(objective), self.tpot_ms
        at = self.places(found)
        same = np.allclose(found.value, value[at], ROUNDING, 0) and np.allclose(found.tpot_ms, tpot_ms[at], ROUNDING, 0)
        for more, less in ((at, expected), (expected, at)):
            only = np.setdiff1d(more, less)[:, None]
            matched = (tpot_ms[less] <= tpot_ms[only] * (1 + ROUNDING)) & (value[less] >= value[only] * (1 - ROUNDING))
            beaten = (tpot_ms[less] < tpot_ms[only] * (1 - ROUNDING)) & (value[less] > value[only] * (1 + ROUNDING))
            same = same and bool(matched.any(axis=1).all() and not beaten.any())
        return same


def search_points(spec: SweepSpec, cases: Cases, case: Case) -> AggPoints:
    """The points of a case by the sweep of a search, every one judged on its own; float64 [layout, batch, ctx]."""
    engine = cases.engines[case.engine]
    worker, evaluation = engine.under(request_of(spec, engine.name, case.workload))["agg"], Evaluation()
    sweep = plan_agg_sweep(worker, case.batches, spec.ctx_tokens, evaluation.add(worker))
    return sweep_points(sweep, *evaluation.curves(worker), kv_fraction=case.memory_fraction).one_by_one()


def brute(spec: SweepSpec, cases: Cases, groups: Groups, chosen: Sequence[int]) -> Iterator[tuple[int, Brute]]:
    """The chosen groups of a sweep with all their points."""
    for group in chosen:
        own = [case for case in cases.cases if groups.of_case[case.first_point] == group]
        parts = [_case_points(spec, cases, case) for case in own]
        yield group, Brute(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _case_points(spec: SweepSpec, cases: Cases, case: Case) -> Brute:
    points = search_points(spec, cases, case)
    system, size = cases.engines[case.engine].workers["agg"].deployment.system, points.verdict.size
    plan, single = points.plan, case.workload.osl == 1
    inside = plan.inside & ~plan.repeats
    gpus = np.broadcast_to(points.gpus[:, None, None], points.verdict.shape)
    return Brute(
        number=case.first_point + np.arange(size),
        inside=np.broadcast_to(inside, points.verdict.shape).ravel(),
        known=~points.missing.ravel(),
        fits=points.verdict.ravel() != Verdict.DOES_NOT_FIT,
        cached=points.verdict.ravel() != Verdict.KV_DOES_NOT_FIT,
        ttft_ms=points.ttft_ms.ravel(),
        tpot_ms=np.zeros(size) if single else points.tpot_ms.ravel(),
        request_latency_ms=points.request_latency_ms.ravel(),
        seq_per_s=points.seq_per_s.ravel(),
        gpus=gpus.ravel(),
        tokens=np.full(size, max(case.workload.osl - 1, 1)),
        power_w=np.full(size, system.power_w),
        price=np.full(size, spec.gpu_hour_price.get(system.name, np.nan)),
    )
