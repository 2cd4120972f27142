# SPDX-License-Identifier: Apache-2.0
"""Which points of an in-flight batching sweep are evaluated and kept, as masks over (layout, batch, ctx_tokens).

The walk of AIConfigurator 0.12.0 tries batches in order, and for each the context-token budgets in order, until memory
runs out; points that repeat an earlier one are passed over. Here all points are evaluated at once and the walk is a
mask. An exhaustive sweep judges every point on its own and keeps the front of every layout.
"""

import dataclasses
import enum
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.columns import DECIMALS
from aicjax.explore.pareto import front_of_groups
from aicjax.explore.targets import Bounds, Targets
from aicjax.forward.encoder import EncoderTimes
from aicjax.forward.memory import Verdict
from aicjax.models import Parallel
from aicjax.serving.load import Load
from aicjax.serving.plan import AggPlan, equivalence_class

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Outcome(enum.IntEnum):
    """What became of a point."""

    EVALUATED = 0
    OUTSIDE = 1  # the prompts of a step leave no room for a decode row
    REPEATED = 2  # the same schedule as an earlier point
    MISSING = 3  # no measured data
    KV_DOES_NOT_FIT = 4
    DOES_NOT_FIT = 5
    AFTER_MISFIT = 6  # a smaller budget of the same batch does not fit


@dataclass(frozen=True)
class AggPoints:
    """Estimates of a sweep; arrays are float64 [layout, batch, ctx] unless said.

    Attributes:
        load: The requests.
        plan: Plan of each (batch, ctx) point.
        layouts: Layouts.
        ttft_ms, tpot_ms, request_latency_ms: Latencies [ms]; NaN without data; TPOT NaN for one output token.
        seq_per_s: Requests per second of a worker.
        memory_bytes: Memory of one GPU.
        verdict: Codes of `Verdict`.
        encoder: Times of the vision encoder, in the latencies; None without one.
        encoder_bytes: Its part of the memory.
        judged: What becomes of each point, codes of `Outcome`, where the walk over all of them does not decide.
    """

    load: Load
    plan: AggPlan
    layouts: tuple[Parallel, ...]
    ttft_ms: NDArray[np.float64]
    tpot_ms: NDArray[np.float64]
    request_latency_ms: NDArray[np.float64]
    seq_per_s: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]
    verdict: NDArray[np.int8]
    encoder: EncoderTimes | None = None
    encoder_bytes: NDArray[np.float64] | float = 0.0
    judged: NDArray[np.int8] | None = None

    @functools.cached_property
    def outcome(self) -> NDArray[np.int8]:
        """What the search makes of each point: codes of `Outcome`."""
        if self.judged is not None:
            return self.judged
        return outcomes(self.load, self.plan, self.missing, self.verdict)

    @property
    def missing(self) -> Mask:
        """Points without data."""
        return ~np.isfinite(self.request_latency_ms)

    def one_by_one(self) -> "AggPoints":
        """The points with every one judged on its own, whatever its neighbours are."""
        misfit = np.where(self.verdict == Verdict.DOES_NOT_FIT, Outcome.DOES_NOT_FIT, Outcome.KV_DOES_NOT_FIT)
        cases = [~self.plan.inside, self.plan.repeats, self.missing, self.verdict != Verdict.FITS]
        codes = [Outcome.OUTSIDE, Outcome.REPEATED, Outcome.MISSING, misfit]
        judged = np.select([np.broadcast_to(case, self.verdict.shape) for case in cases], codes, Outcome.EVALUATED)
        return dataclasses.replace(self, judged=judged.astype(np.int8))

    def walked(self, batches: Sequence[int], budgets: Sequence[int]) -> "AggPoints":
        """The points with those of a part of the batches and context-token budgets walked, and the others outside."""
        rows, columns = np.isin(self.plan.batch[:, 0], batches), np.isin(self.plan.ctx_tokens[0], budgets)
        at = np.ix_(np.arange(len(self.layouts)), rows, columns)
        fields = {field.name: getattr(self.plan, field.name)[at[1:]] for field in dataclasses.fields(self.plan)}
        judged = np.full(self.verdict.shape, Outcome.OUTSIDE, np.int8)
        judged[at] = outcomes(self.load, AggPlan(**fields), self.missing[at], self.verdict[at])
        return dataclasses.replace(self, judged=judged)

    @property
    def gpus(self) -> Ints:
        """GPUs of a worker [layout]."""
        return np.array([layout.gpus for layout in self.layouts])

    @property
    def encoder_ms(self) -> NDArray[np.float64]:
        """Latency of the vision encoder over the images of a batch, in the others; 0 without one."""
        if self.encoder is None:
            return np.zeros_like(self.ttft_ms)
        return np.broadcast_to(self.encoder.latency_ms[..., None], self.ttft_ms.shape)

    @property
    def output_tokens(self) -> int:
        """Output tokens that count per request: those after the first, or the only one."""
        return max(self.load.osl - 1, 1)

    def meets(self, ttft_ms: NDArray[np.float64], tpot_ms: NDArray[np.float64], points: Ints) -> Mask:
        """Which points (flat positions) meet limits on TTFT and TPOT; limits broadcast with the points."""
        meets = self.ttft_ms.ravel()[points] <= ttft_ms
        return meets & (self.tpot_ms.ravel()[points] <= tpot_ms) if self.load.osl > 1 else meets


def outcomes(load: Load, plan: AggPlan, missing: Mask, verdict: NDArray[np.int8]) -> NDArray[np.int8]:
    """What becomes of every point of a sweep, codes of `Outcome` [layout, batch, ctx].

    A misfit ends the budgets of its batch, and points after it do not count as seen, so the first occurrence of a
    schedule depends on where misfits are. Both are settled together: starting without misfits, the rows of the grid
    become final one after the other, in practice all in two or three passes.

    Args:
        load: The requests.
        plan: Plan of each (batch, ctx) point.
        missing: Points without data.
        verdict: Memory verdicts.
    """
    configs, batches, budgets = missing.shape
    inside, again = (np.broadcast_to(mask, missing.shape) for mask in (plan.inside, plan.repeats))
    column = np.arange(budgets)
    misfit = ~missing & (verdict != Verdict.FITS)
    dedup = load.progress == 1 and not plan.budget_class.any()
    schedule = equivalence_class(load, plan.batch, plan.ctx_tokens)

    stop = np.full((configs, batches), budgets)
    while True:
        reached = inside & (column <= stop[..., None])
        repeated = _repeated(reached, schedule) if dedup else reached & again
        ends = reached & ~repeated & misfit
        first = np.where(ends.any(axis=2), ends.argmax(axis=2), budgets)
        if np.array_equal(first, stop):
            break
        stop = first
    misfits = np.where(verdict == Verdict.DOES_NOT_FIT, Outcome.DOES_NOT_FIT, Outcome.KV_DOES_NOT_FIT)
    cases = [~inside, ~reached, repeated, missing, misfit]
    codes = [Outcome.OUTSIDE, Outcome.AFTER_MISFIT, Outcome.REPEATED, Outcome.MISSING, misfits]
    return np.select(cases, codes, Outcome.EVALUATED).astype(np.int8)


def kept_points(points: AggPoints, targets: Targets, keep: int) -> Ints:
    """Flat positions of the points kept over all targets, without repeats, by reported tokens/s/GPU descending.

    For each layout and target the first `keep` points within the limits, by reported rate.
    """
    position = np.flatnonzero(points.outcome == Outcome.EVALUATED)
    config = position // points.outcome[0].size
    rate = points.seq_per_s.ravel()
    order = np.lexsort((position, -np.round(rate[position], DECIMALS), config))
    position, config = position[order], config[order]
    if len(position) == 0:
        return position

    within = points.meets(targets.ttft_ms[:, None], targets.tpot_ms[:, None], position)
    count = np.cumsum(within, axis=1)
    start = np.searchsorted(config, config)
    rank = count - np.where(start > 0, count[:, start - 1], 0)
    chosen = within & (rank <= keep)

    kept = np.flatnonzero(chosen.any(axis=0))
    first_target = chosen[:, kept].argmax(axis=0)
    encountered = kept[np.lexsort((kept, first_target, config[kept]))]
    return _by_rate_per_gpu(points, position[encountered])


def front_points(points: AggPoints, bounds: Bounds, *, of_batches: bool = False) -> Ints:
    """Flat positions of the points on the front of their layout, by reported tokens/s/GPU descending.

    Of the points within the limits, those that no other of the layout matches or beats in reported latency and rate;
    whatever limit on the latency is picked by, the best point within it is one of them.

    Args:
        points: The points.
        bounds: Latency limits.
        of_batches: Whether each batch of a layout keeps a front of its own, for requests in flight to be picked by.
    """
    latency_ms = points.request_latency_ms if bounds.on_request else points.tpot_ms
    within = (points.outcome == Outcome.EVALUATED) & (points.ttft_ms <= bounds.ttft_ms)
    reported_ms = np.round(latency_ms, DECIMALS)
    position = np.flatnonzero(within & (reported_ms <= bounds.latency_ms))
    _, batches, budgets = points.outcome.shape
    group = position // (budgets if of_batches else batches * budgets)
    reported_ms, rate, ttft_ms = (v.ravel()[position] for v in (reported_ms, points.seq_per_s, points.ttft_ms))
    front = front_of_groups(group, reported_ms, rate, ttft_ms)
    return _by_rate_per_gpu(points, position[front])


def _by_rate_per_gpu(points: AggPoints, positions: Ints) -> Ints:
    """Positions by reported tokens/s/GPU, descending."""
    gpus = points.gpus[positions // points.outcome[0].size]
    per_gpu = points.seq_per_s.ravel()[positions] * points.output_tokens / gpus
    return positions[np.argsort(-np.round(per_gpu, DECIMALS), kind="stable")]


def _repeated(reached: Mask, schedule: Ints) -> Mask:
    """Reached points whose schedule (above 1) an earlier reached point of the same layout has."""
    layouts = len(reached)
    classes = int(schedule.max(initial=0)) + 1
    flat = np.arange(schedule.size)
    key = (np.arange(layouts)[:, None] * classes + schedule.ravel()).reshape(reached.shape)
    place = np.broadcast_to(flat.reshape(schedule.shape), reached.shape)
    first = np.full(layouts * classes, schedule.size)
    np.minimum.at(first, key[reached], place[reached])
    return reached & (schedule > 1) & (place > first[key])
