# SPDX-License-Identifier: Apache-2.0
"""A sweep chunk by chunk, and the same points by the sweep of a search, of which numpy keeps what is to be kept."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from aicjax.explore.agg_points import AggPoints
from aicjax.explore.agg_sweep import plan_agg_sweep, sweep_points
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.pareto import front_rows
from aicjax.forward.memory import Verdict
from aicjax.sweeps.agg import AggWork
from aicjax.sweeps.cases import Case, Cases, enumerate_cases, request_of
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.kept import Kept
from aicjax.sweeps.spec import Limits, SweepSpec

ROUNDING = 1e-6  # relative, between two float32 programs of the same formulas


def spec_of(**axes: Any) -> SweepSpec:
    """The sweep over some axes, whose short forms pydantic takes."""
    return SweepSpec(**axes)


def work_of(spec: SweepSpec) -> AggWork:
    """The sweep on one device."""
    cases = enumerate_cases(spec)
    return AggWork(spec, cases, Groups(spec, cases), jax.devices()[:1])


def swept(work: AggWork, chunks: Iterable[tuple[Case, ...]] | None = None) -> Kept:
    """What is kept of chunks (all by default), one after the other."""
    known = Kept(work.spec.top_k)
    for chunk in work.chunks() if chunks is None else chunks:
        known.merge(work.keep(chunk, [work.prepare(case) for case in chunk], known))
    return known


def search_points(spec: SweepSpec, cases: Cases, case: Case) -> AggPoints:
    """The points of a case by the sweep of a search, every one judged on its own; float64 [layout, batch, ctx]."""
    engine = cases.engines[case.engine]
    worker, evaluation = engine.under(request_of(spec, engine.name, case.workload))["agg"], Evaluation()
    sweep = plan_agg_sweep(worker, case.batches, spec.ctx_tokens, evaluation.add(worker))
    return sweep_points(sweep, *evaluation.curves(worker), kv_fraction=case.memory_fraction).one_by_one()


class Brute(NamedTuple):
    """All points of a group, flat, in the order of their numbers.

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


def brute(work: AggWork) -> Iterator[tuple[int, Brute]]:
    """Each group with all its points."""
    spec, cases = work.spec, work.cases
    for group in range(len(work.groups.names)):
        own = [case for case in cases.cases if work.groups.of_case[case.first_point] == group]
        parts = [_case_points(spec, cases, case) for case in own]
        yield group, Brute(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _case_points(spec: SweepSpec, cases: Cases, case: Case) -> Brute:
    points = search_points(spec, cases, case)
    system, size = cases.engines[case.engine].workers["agg"].deployment.system, points.verdict.size
    plan, single = points.plan, case.workload.osl == 1
    inside = plan.batch - plan.prompts >= np.where(plan.batch > 1, 1, 0)
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
