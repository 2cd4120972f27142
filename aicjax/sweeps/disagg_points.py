# SPDX-License-Identifier: Apache-2.0
"""The points of a case of a disaggregated sweep: estimates, numbers and what becomes of them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.constants import DisaggConstants
from aicjax.explore.roles import Worker
from aicjax.forward.memory import Verdict
from aicjax.serving.disagg import DisaggEstimate, WorkerCounts, Workers, disagg_estimate
from aicjax.sweeps.cases import Case
from aicjax.sweeps.disagg_prepare import Side, Sides
from aicjax.sweeps.kept import Points
from aicjax.sweeps.pairs import PairNumbers

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class CasePairs(NamedTuple):
    """Prefill and decode workers of a case, each named by layout * batches + batch.

    Attributes:
        case: The case.
        sides: Rates, latencies and memory of the workers.
        workers: Prefill and decode workers in all layouts.
        numbers: Numbers of the points, from the first of the case on.
    """

    case: Case
    sides: Sides
    workers: tuple[Worker, Worker]
    numbers: PairNumbers

    @property
    def constants(self) -> DisaggConstants:
        """Correction and degradation factors."""
        return self.workers[0].deployment.disagg

    def ttft_ms(self) -> Floats:
        """Time to first token of replicas with each prefill worker, queueing included [prefill worker]."""
        prefill = np.arange(self.sides.prefill.latency_ms.size)
        none = np.zeros_like(prefill)
        return self.estimate(prefill, none, WorkerCounts(none, none, none)).ttft_ms

    def estimate(self, prefill: Ints, decode: Ints, counts: WorkerCounts) -> DisaggEstimate:
        """Estimates of replicas of workers; arguments broadcast."""
        (before, ttft_ms), (after, tpot_ms) = (
            _alone(*side) for side in zip(self.sides, self.workers, (prefill, decode), strict=True)
        )
        return disagg_estimate(before, after, counts, ttft_ms, tpot_ms, self.case.workload.osl, self.constants)

    def points(self, prefill: Ints, decode: Ints, choice: Ints, value: Floats) -> Points:
        """Pairs of workers, each with one of its worker counts, as points."""
        prefill_at, decode_at = (
            np.divmod(worker, side.seq_per_s.shape[1])
            for worker, side in zip((prefill, decode), self.sides, strict=True)
        )
        number = self.case.first_point + self.numbers.of(*prefill_at, *decode_at) + choice
        counts = self.numbers.space.workers(prefill_at[0], decode_at[0], choice)
        estimate = self.estimate(prefill, decode, WorkerCounts(*counts, np.zeros_like(choice)))
        latencies = estimate.ttft_ms, estimate.tpot_ms, estimate.request_latency_ms
        return Points(number, value, *latencies, estimate.seq_per_s)

    def tally(self, in_time: Mask, tpot_ms: float) -> Ints:
        """Points by what becomes of them, in the order of `kept.COUNTS`.

        Args:
            in_time: Prefill workers within the limit on TTFT.
            tpot_ms: Limit on TPOT.
        """
        prefill, decode = (_checks(side) for side in self.sides)
        every, known, fitting, usable = (self._points(*masks) for masks in zip(prefill, decode, strict=True))
        fast = prefill[-1] & in_time.reshape(prefill[-1].shape)
        quick = decode[-1] & (self.sides.decode.latency_ms <= tpot_ms)
        met = self._points(fast, quick), self._points(fast, decode[-1]), self._points(prefill[-1], quick)
        return np.array([every, 0, every - known, known - fitting, fitting - usable, *met], np.int64)

    def _points(self, prefill: Mask, decode: Mask) -> int:
        """Points with some of the workers [layout, batch]."""
        return int(prefill.sum(axis=1) @ self.numbers.space.choices @ decode.sum(axis=1))


def _alone(side: Side, worker: Worker, at: Ints) -> tuple[Workers, Floats]:
    """Rate and GPUs, and latency, of some workers of a side."""
    gpus = np.repeat([layout.gpus for layout in worker.layouts], side.seq_per_s.shape[1])
    return Workers(side.seq_per_s.ravel()[at], gpus[at]), side.latency_ms.ravel()[at]


def _checks(side: Side) -> tuple[Mask, Mask, Mask, Mask]:
    """All workers, those with data, those of them with room for everything, and those with room for the cache too."""
    known = ~side.missing
    return np.ones_like(known), known, known & (side.verdict != Verdict.DOES_NOT_FIT), side.usable
