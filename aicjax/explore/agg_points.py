# SPDX-License-Identifier: Apache-2.0
"""Which points of an in-flight batching sweep are evaluated and kept, as masks over (layout, batch, ctx_tokens).

The walk of AIConfigurator 0.12.0 tries batches in order, and for each the context-token budgets in order, until memory
runs out; points that repeat an earlier one are passed over. Here all points are evaluated at once and the walk is a
mask.
"""

import enum
import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aicjax.explore.columns import DECIMALS
from aicjax.explore.targets import Targets
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

    @functools.cached_property
    def outcome(self) -> NDArray[np.int8]:
        """What the search makes of each point: codes of `Outcome`."""
        return outcomes(self.load, self.plan, ~np.isfinite(self.request_latency_ms), self.verdict)

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
    room = plan.batch - plan.prompts
    inside = np.broadcast_to(room >= np.where(plan.batch > 1, 1, 0), missing.shape)
    column = np.arange(budgets)
    misfit = ~missing & (verdict != Verdict.FITS)
    dedup = load.progress == 1
    schedule = equivalence_class(load, plan.batch, plan.ctx_tokens)

    stop = np.full((configs, batches), budgets)
    while True:
        reached = inside & (column <= stop[..., None])
        repeated = _repeated(reached, schedule) if dedup else np.zeros_like(reached)
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
    per_gpu = rate[position[encountered]] * points.output_tokens / points.gpus[config[encountered]]
    return position[encountered[np.argsort(-np.round(per_gpu, DECIMALS), kind="stable")]]


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
