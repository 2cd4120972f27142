# SPDX-License-Identifier: Apache-2.0
"""A chunk of a disaggregated sweep: every pair of workers matched over all worker counts, and the best of them kept.

Of the worker counts of a pair, those that yield most per GPU stand for all: no latency depends on them.
"""

from collections.abc import Sequence

import numpy as np

from aicjax._types import Device
from aicjax.explore.frame import Frame
from aicjax.sweeps.bounds import better
from aicjax.sweeps.cases import Case, Cases, in_chunks, pair_numbers
from aicjax.sweeps.disagg_columns import Columns
from aicjax.sweeps.disagg_pairs import Matcher
from aicjax.sweeps.disagg_points import CasePairs
from aicjax.sweeps.disagg_prepare import DisaggPreparation, Sides
from aicjax.sweeps.disagg_rows import disagg_rows
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.kept import Kept, Points
from aicjax.sweeps.objectives import factor, measure
from aicjax.sweeps.spec import SweepSpec


class DisaggWork:
    """The chunks of a disaggregated sweep, done on some devices; `prepare` may be called by several threads."""

    def __init__(self, spec: SweepSpec, cases: Cases, groups: Groups, devices: Sequence[Device]):
        self.spec, self.cases, self.groups = spec, cases, groups
        self._preparation = DisaggPreparation(spec, cases)
        self._matcher = Matcher(devices)
        limits_ms = [limit.ttft or np.inf for limit in spec.limits]
        self._ttft_limits_ms, self._ttft_limit = np.unique(limits_ms, return_inverse=True)

    def chunks(self) -> list[tuple[Case, ...]]:
        """The chunks: successive cases under one workload."""
        return in_chunks(self.cases.cases, lambda case: case.workload.label)

    def prepare(self, case: Case) -> Sides:
        """Rates, latencies and memory of the workers of a case."""
        return self._preparation.sides(case)

    def describe(self, points: Points) -> Frame:
        """Rows of points."""
        return disagg_rows(self._preparation, points)

    def keep(self, chunk: Sequence[Case], parts: Sequence[Sides], known: Kept) -> Kept:
        """What a chunk adds to what is known.

        Args:
            chunk: Its cases.
            parts: What `prepare` made of each.
            known: What is kept of other chunks; what cannot beat it is left out.
        """
        kept = Kept(self.spec.top_k)
        for case, sides in zip(chunk, parts, strict=True):
            self._keep(kept, known, case, sides)
        return kept

    def _keep(self, kept: Kept, known: Kept, case: Case, sides: Sides) -> None:
        engine, spec, group = self.cases.engines[case.engine], self.spec, self.groups.of_case[case.first_point]
        workers = engine.workers["prefill"], engine.workers["decode"]
        pairs = CasePairs(case, sides, workers, pair_numbers(spec, engine, len(case.batches)))
        in_time = pairs.ttft_ms() <= self._ttft_limits_ms[:, None]
        for place, limits in enumerate(spec.limits):
            counts = pairs.tally(in_time[self._ttft_limit[place]], limits.tpot or np.inf)
            kept.count((group, place), counts)
        stacks = self._matcher.stacks(pairs, in_time)
        if not stacks:
            return
        columns, system = Columns.of(pairs, stacks, in_time), workers[0].deployment.system
        of_gpu = np.ones(1, np.int64)
        worths = [factor(name, spec, system, of_gpu, case.workload.osl)[0] for name in spec.objectives]
        for place, limits in enumerate(spec.limits):
            ttft_limit = self._ttft_limit[place]
            for rank, (name, worth) in enumerate(zip(spec.objectives, worths, strict=True)):
                key = (group, place, rank)
                bar = -float(better(-known.threshold(key) / worth))
                for points in columns.top(ttft_limit, limits.tpot or np.inf, measure(name), spec.top_k, bar):
                    kept.offer(key, points._replace(value=points.value * worth))
            if spec.pareto:
                for points in columns.front(ttft_limit):
                    kept.offer_front((group, place), points._replace(value=points.value * worths[0]))
