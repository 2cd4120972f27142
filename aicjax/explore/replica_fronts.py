# SPDX-License-Identifier: Apache-2.0
"""The replicas that no other beats: the whole front of a disaggregated search, whatever limit is picked by.

All pairs of workers and all worker counts compete, but few need to be matched. A replica yields what the least of its
sides yields, the rate of a worker times the workers, so it never yields less with a faster worker. Hence:

- of prefill workers with the same GPUs, those count that are faster than all with at most their TTFT;
- of decode workers of a layout, those count that are faster than all with at most their TPOT, unless requests in flight
  are what is picked by;
- of worker counts, those count that put more workers of a side into the budget than all with as many of the others
  (`serving.disagg`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.constants import DisaggConstants
from aicjax.explore.columns import DECIMALS
from aicjax.explore.objective import Objective, in_flight
from aicjax.explore.pareto import front_of_groups
from aicjax.explore.replicas import Replicas, WorkerTable, pair_estimate, ranked_replicas, time_left
from aicjax.explore.targets import Bounds
from aicjax.serving.disagg import ReplicaLimits, WorkerCounts, match_workers
from aicjax.serving.encoder import Encoders

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class _Pairs(NamedTuple):
    """Pairs of workers with their counts; arrays [pair].

    Attributes:
        prefill, decode: Rows of the worker tables.
        encode: Choice of encode worker.
        prefill_workers, decode_workers, encode_workers: Workers of each role.
        latency_ms: Latency whose front is kept, as reported.
        ttft_ms: Time to first token.
        score: What the objective makes of the replica.
    """

    prefill: Ints
    decode: Ints
    encode: Ints
    prefill_workers: Ints
    decode_workers: Ints
    encode_workers: Ints
    latency_ms: Floats
    ttft_ms: Floats
    score: Floats

    @property
    def counts(self) -> WorkerCounts:
        """Workers of each role."""
        return WorkerCounts(self.prefill_workers, self.decode_workers, self.encode_workers)

    def take(self, rows: Ints) -> "_Pairs":
        """Some of the pairs."""
        return self._make(column[rows] for column in self)

    @classmethod
    def joined(cls, parts: Sequence["_Pairs"]) -> "_Pairs":
        """The pairs of all parts."""
        return cls._make(np.concatenate(columns) for columns in zip(_NO_PAIRS, *parts, strict=True))


_NO_PAIRS = _Pairs._make([*(np.zeros(0, np.int64) for _ in range(6)), *(np.zeros(0) for _ in range(3))])


def replica_fronts(
    prefill: WorkerTable,
    decode: WorkerTable,
    bounds: Bounds,
    objectives: Sequence[Objective],
    limits: ReplicaLimits,
    osl: int,
    constants: DisaggConstants,
    handover: tuple[Ints, Ints] | None = None,
    encoders: Encoders | None = None,
    idle_slots_count: bool = False,
) -> Replicas:
    """The replicas on the front of their decode layout in latency and objective, by tokens/s/GPU descending.

    Args:
        prefill: Prefill workers.
        decode: Decode workers.
        bounds: Latency limits; that on TTFT is not to be reached.
        objectives: What is sought; each has fronts of its own.
        limits: Sizes of a replica.
        osl: Output tokens.
        constants: Correction and degradation factors.
        handover: Kinds of KV cache of prefill and decode workers, which pair with their own kind; 0 pairs with all.
        encoders: Choices of encode worker; None where prefill workers encode.
        idle_slots_count: Whether room of decode workers that the rate of the replica leaves idle serves a load.
    """
    kinds = (np.zeros(len(prefill.gpus), int), np.zeros(len(decode.gpus), int)) if handover is None else handover
    search = _Search(prefill, decode, bounds, limits, osl, constants, *kinds, idle_slots_count)
    choices = [None] if encoders is None else [encoders.take(at) for at in range(len(encoders.gpus))]
    found = []
    for objective in objectives:
        parts = [search.front(objective, choice, worker) for choice, worker in enumerate(choices)]
        found.append(search.kept(_Pairs.joined(parts)))
    pairs = _Pairs.joined(found)
    pairs = search.with_least_ttft(pairs, encoders)
    return ranked_replicas(
        prefill, decode, pairs.prefill, pairs.decode, pairs.encode, pairs.counts, osl, constants, encoders
    )


class _Search(NamedTuple):
    """The workers and limits of a search; see `replica_fronts`. `*_kind` are the kinds of the KV caches."""

    prefill: WorkerTable
    decode: WorkerTable
    bounds: Bounds
    limits: ReplicaLimits
    osl: int
    constants: DisaggConstants
    prefill_kind: Ints
    decode_kind: Ints
    idle_slots_count: bool

    def front(self, objective: Objective, choice: int, encoder: Encoders | None) -> _Pairs:
        """The front behind one choice of encode worker."""
        rows, columns = self._prefill_rows(encoder), self._decode_rows(objective)
        parts = [
            self._paired(rows, columns, counts, objective, choice, encoder)
            for counts in self._matched(rows, columns, objective, encoder)
        ]
        return self.kept(_Pairs.joined(parts))

    def kept(self, pairs: _Pairs) -> _Pairs:
        """The pairs on the front of their decode layout."""
        layout = np.unique(self.decode.layout[pairs.decode], return_inverse=True)[1]
        return pairs.take(front_of_groups(layout, pairs.latency_ms, pairs.score, pairs.ttft_ms))

    def with_least_ttft(self, pairs: _Pairs, encoders: Encoders | None) -> _Pairs:
        """The pairs with the prefill worker of least TTFT that sustains the same rate on the same GPUs."""
        if len(pairs.prefill) == 0:
            return pairs
        chosen = None if encoders is None else encoders.take(pairs.encode)
        tables = self.prefill, self.decode
        rate = pair_estimate(
            *tables, pairs.prefill, pairs.decode, pairs.counts, self.osl, self.constants, chosen
        ).seq_per_s
        rows = np.lexsort((self.prefill.global_batch, self.prefill.ttft_ms))
        alike = self._class(rows) == self._class(pairs.prefill)[:, None]
        workers, degradation = pairs.counts.prefill[:, None], self.constants.prefill_degradation
        sustains = alike & (self.prefill.seq_per_s[rows] * workers * degradation >= rate[:, None])
        return pairs._replace(prefill=rows[sustains.argmax(axis=1)])

    def _class(self, rows: Ints) -> Ints:
        """What prefill workers must share to replace each other: GPUs and kind of KV cache."""
        return self.prefill.gpus[rows] * (int(self.prefill_kind.max(initial=0)) + 1) + self.prefill_kind[rows]

    def _prefill_rows(self, encoder: Encoders | None) -> Ints:
        """Prefill workers within the TTFT limit that count: the fastest of a class, or the front where TTFT counts."""
        left_ms = time_left(self.bounds.ttft_ms, self.constants, encoder)
        rows = np.flatnonzero(self.prefill.ttft_ms * self.constants.ttft_correction < left_ms)
        ttft_ms, rate = self.prefill.ttft_ms[rows], self.prefill.seq_per_s[rows]
        spent = ttft_ms if self.bounds.on_request else np.zeros_like(ttft_ms)
        return rows[front_of_groups(self._class(rows), spent, rate, ttft_ms)]

    def _decode_rows(self, objective: Objective) -> Ints:
        """Decode workers within the TPOT limit that count, by layout and kind of KV cache."""
        tpot_ms = self.decode.tpot_ms
        limit_ms = np.inf if self.bounds.on_request else self.bounds.latency_ms
        rows = np.flatnonzero((tpot_ms > 0) & (tpot_ms <= limit_ms))
        if objective.concurrency is not None:
            return rows
        layout, kind = np.unique(self.decode.layout[rows], return_inverse=True)[1], self.decode_kind[rows]
        alike = layout * (int(self.decode_kind.max(initial=0)) + 1) + kind
        return rows[front_of_groups(alike, tpot_ms[rows], self.decode.seq_per_s[rows], tpot_ms[rows])]

    def _matched(self, rows: Ints, columns: Ints, objective: Objective, encoder: Encoders | None) -> list[WorkerCounts]:
        """Worker counts that count for each pair: the best for a budget; for a load the best of every size."""
        sides = self.prefill.workers(rows), self.decode.workers(columns)
        if objective.gpus is not None:
            filled = self.limits.filling(objective.gpus)
            return [match_workers(*sides, filled, self.constants, encoder)]
        return [match_workers(*sides, self.limits.of_size(size), self.constants, encoder) for size in self.limits.sizes]

    def _paired(
        self,
        rows: Ints,
        columns: Ints,
        counts: WorkerCounts,
        objective: Objective,
        choice: int,
        encoder: Encoders | None,
    ) -> _Pairs:
        """Pairs that have counts, may hand caches over and meet the limits."""
        kinds = self.prefill_kind[rows][:, None], self.decode_kind[columns]
        at = np.nonzero((counts.prefill > 0) & ((kinds[0] == kinds[1]) | (kinds[0] == 0) | (kinds[1] == 0)))
        p, d, workers = rows[at[0]], columns[at[1]], WorkerCounts(*(count[at] for count in counts))
        estimate = pair_estimate(self.prefill, self.decode, p, d, workers, self.osl, self.constants, encoder)
        latency_ms = estimate.request_latency_ms if self.bounds.on_request else estimate.tpot_ms
        concurrency = self.decode.global_batch[d] * workers.decode
        if not self.idle_slots_count:
            sustained = self.decode.seq_per_s[d] * workers.decode * self.constants.decode_degradation
            concurrency = in_flight(concurrency, estimate.seq_per_s, sustained)
        score = objective.score(estimate.seq_per_s, estimate.gpus, concurrency)
        reported_ms = np.round(latency_ms, DECIMALS)
        pairs = _Pairs(p, d, np.full(len(p), choice), *workers, reported_ms, estimate.ttft_ms, score)
        return pairs.take(np.flatnonzero(pairs.latency_ms <= self.bounds.latency_ms))
