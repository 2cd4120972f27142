# SPDX-License-Identifier: Apache-2.0
"""Which pairs of a prefill and a decode worker a disaggregated search keeps, for all latency targets in one pass.

Host arrays in float64 on rounded worker rows: limits are strict, cuts fall on ties, and the first of equals wins, so
that the choice is the one of AIConfigurator 0.12.0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.constants import DisaggConstants
from aicjax.explore.columns import DECIMALS
from aicjax.explore.grid import DisaggGrid
from aicjax.explore.targets import Targets
from aicjax.serving.disagg import DisaggEstimate, ReplicaLimits, WorkerCounts, Workers, disagg_estimate, match_workers
from aicjax.serving.encoder import Encoders

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
FloatLike = Any  # a number or an array of them


@dataclass(frozen=True)
class WorkerTable:
    """Candidate workers of one role, values rounded as reported.

    Attributes:
        seq_per_s: Requests per second of a worker.
        seq_per_s_per_gpu: The same over the GPUs of tensor, pipeline and attention data parallelism.
        gpus: GPUs of a worker.
        global_batch: Requests in flight of a worker.
        ttft_ms, tpot_ms: Latencies of a worker alone [ms].
        layout: Label of the layout.
    """

    seq_per_s: Floats
    seq_per_s_per_gpu: Floats
    gpus: Ints
    global_batch: Ints
    ttft_ms: Floats
    tpot_ms: Floats
    layout: NDArray[np.str_]

    def workers(self, rows: Ints) -> Workers:
        """Rate and GPUs of some rows, as the matching takes them."""
        return Workers(self.seq_per_s[rows], self.gpus[rows])


class Replicas(NamedTuple):
    """Kept replicas, best first.

    Attributes:
        prefill, decode: Rows of the worker tables.
        encode: Choice of encode worker; 0 without encoders.
        counts: Workers of each role.
        estimate: Unrounded estimate of each replica.
    """

    prefill: Ints
    decode: Ints
    encode: Ints
    counts: WorkerCounts
    estimate: DisaggEstimate


def best_replicas(
    prefill: WorkerTable,
    decode: WorkerTable,
    targets: Targets,
    limits: ReplicaLimits,
    osl: int,
    constants: DisaggConstants,
    cuts: DisaggGrid,
    may_pair: Callable[[Ints, Ints], Mask] | None = None,
    encoders: Encoders | None = None,
) -> Replicas:
    """The replicas kept over all targets, without repeats, by tokens/s/GPU descending.

    For each target: of the prefill workers whose corrected TTFT is below the limit, the first by rate per GPU; of the
    decode workers below the TPOT limit, the first of each layout; per decode layout, the pair with the most
    tokens/s/GPU, then the fewest GPUs; of those, the first few. With encoders, prefill workers behind each choice of
    encode worker compete, whose corrected latency counts towards the limit.

    Args:
        prefill: Prefill workers.
        decode: Decode workers.
        targets: Latency limits.
        limits: Sizes of a replica.
        osl: Output tokens.
        constants: Correction and degradation factors.
        cuts: How many workers and replicas are kept.
        may_pair: Which of the given prefill rows may hand over to which of the given decode rows, [prefill, decode];
            None for all.
        encoders: Choices of encode worker; None where prefill workers encode.
    """
    decode_rows, groups = _decode_order(decode, targets)
    limits_ms, which = np.unique(targets.ttft_ms, return_inverse=True)
    choices = [None] if encoders is None else [encoders.take(at) for at in range(len(encoders.gpus))]
    fronts = []
    for choice, worker in enumerate(choices):
        rows, shortlists = _shortlists(prefill, limits_ms, constants, cuts, worker)
        counts = match_workers(prefill.workers(rows), decode.workers(decode_rows), limits, constants, worker)
        estimate = pair_estimate(prefill, decode, rows[:, None], decode_rows[None, :], counts, osl, constants, worker)
        score = np.where(counts.prefill > 0, estimate.tokens_per_s / np.maximum(estimate.gpus, 1), -np.inf)
        if may_pair is not None:
            score = np.where(may_pair(rows, decode_rows), score, -np.inf)
        fronts.append(_Front(rows, np.full(len(rows), choice), shortlists, counts, score, estimate.gpus))
    front = _joined(fronts)
    if len(front.prefill) == 0 or len(decode_rows) == 0:
        none = np.zeros(0, np.int64)
        return ranked_replicas(
            prefill, decode, none, none, none, WorkerCounts(none, none, none), osl, constants, encoders
        )
    partner = np.stack([_best_partner(front.score, front.gpus, shortlist) for shortlist in front.shortlists])
    mate, row = _winners(front.score, front.gpus, partner[which], decode.tpot_ms[decode_rows], groups, targets, cuts)
    kept = WorkerCounts(*(count[mate, row] for count in front.counts))
    rows = front.prefill[mate], decode_rows[row], front.encode[mate]
    return ranked_replicas(prefill, decode, *rows, kept, osl, constants, encoders)


def one_replica(
    prefill: WorkerTable,
    decode: WorkerTable,
    prefill_workers: int,
    decode_workers: int,
    osl: int,
    constants: DisaggConstants,
    encode_workers: int = 0,
    encoders: Encoders | None = None,
) -> Replicas:
    """The replica of the first prefill, decode and encode worker with given counts."""
    first = np.zeros(1, np.int64)
    counts = WorkerCounts(*(np.array([count]) for count in (prefill_workers, decode_workers, encode_workers)))
    return ranked_replicas(prefill, decode, first, first, first, counts, osl, constants, encoders)


class _Front(NamedTuple):
    """Prefill workers, each behind a choice of encode worker, against the decode workers.

    Attributes:
        prefill, encode: Rows of the tables [front].
        shortlists: Positions that each distinct TTFT limit admits.
        counts: Workers of each role [front, decode].
        score: Tokens/s/GPU; -inf where the two do not pair [front, decode].
        gpus: GPUs of the replica [front, decode].
    """

    prefill: Ints
    encode: Ints
    shortlists: list[Ints]
    counts: WorkerCounts
    score: Floats
    gpus: Ints


def _joined(fronts: Sequence[_Front]) -> _Front:
    """One front of several."""
    start = np.cumsum([0, *(len(front.prefill) for front in fronts)])
    shifted = zip(*([s + at for s in front.shortlists] for front, at in zip(fronts, start, strict=False)), strict=True)
    return _Front(
        prefill=np.concatenate([front.prefill for front in fronts]),
        encode=np.concatenate([front.encode for front in fronts]),
        shortlists=[np.concatenate(parts) for parts in shifted],
        counts=WorkerCounts(*(np.concatenate(parts) for parts in zip(*(f.counts for f in fronts), strict=True))),
        score=np.concatenate([front.score for front in fronts]),
        gpus=np.concatenate([front.gpus for front in fronts]),
    )


def time_left(limits_ms: FloatLike, constants: DisaggConstants, encoder: Encoders | None) -> FloatLike:
    """What limits on TTFT leave to the corrected TTFT of a prefill worker, behind an encode worker if there is one."""
    left_ms = limits_ms - (0.0 if encoder is None else encoder.latency_ms * constants.ttft_correction)
    return left_ms - constants.handover_ms


def _shortlists(
    prefill: WorkerTable,
    limits_ms: Floats,
    constants: DisaggConstants,
    cuts: DisaggGrid,
    encoder: Encoders | None,
) -> tuple[Ints, list[Ints]]:
    """Prefill rows that any TTFT limit admits, and their positions for each."""
    order = np.lexsort((prefill.global_batch, -prefill.seq_per_s_per_gpu))
    left_ms = time_left(limits_ms, constants, encoder)
    passing = prefill.ttft_ms[order] * constants.ttft_correction < left_ms[:, None]
    kept = passing & (np.cumsum(passing, axis=1) <= cuts.keep_prefill)
    used = np.flatnonzero(kept.any(axis=0))
    return order[used], [np.flatnonzero(row) for row in kept[:, used]]


def _decode_order(decode: WorkerTable, targets: Targets) -> tuple[Ints, Ints]:
    """Decode rows below the loosest limit, by layout label, then rate per GPU, and where each layout starts."""
    rows = np.flatnonzero((decode.tpot_ms > 0) & (decode.tpot_ms < targets.tpot_ms.max(initial=0.0)))
    labels, group = np.unique(decode.layout[rows], return_inverse=True)
    order = np.lexsort((-decode.seq_per_s_per_gpu[rows], group))
    return rows[order], np.searchsorted(group[order], np.arange(len(labels)))


def _best_partner(score: Floats, gpus: Ints, shortlist: Ints) -> Ints:
    """Position of the best prefill worker of each decode row: highest score, fewest GPUs, first; -1 without any."""
    if len(shortlist) == 0:
        return np.full(score.shape[1], -1)
    scores = score[shortlist]
    top = scores.max(axis=0)
    size = np.where(scores == top, gpus[shortlist], np.iinfo(np.int64).max)
    return np.where(np.isfinite(top), shortlist[np.argmin(size, axis=0)], -1)


def _winners(
    score: Floats, gpus: Ints, partner: Ints, tpot_ms: Floats, groups: Ints, targets: Targets, cuts: DisaggGrid
) -> tuple[Ints, Ints]:
    """Kept pairs (prefill position, decode position), in the order in which targets and their ranking give them.

    `partner` is [target, decode row]; decode rows are sorted by group, `groups` holds the start of each.
    """
    columns = np.arange(score.shape[1])
    best, size = score[partner, columns], gpus[partner, columns]
    member = np.zeros(len(columns), np.int64)
    member[groups[1:]] = 1
    group = np.cumsum(member)
    eligible = tpot_ms < targets.tpot_ms[:, None]
    count = np.cumsum(eligible, axis=1)
    before = np.concatenate([np.zeros((len(count), 1), count.dtype), count], axis=1)[:, groups]
    tried = eligible & (count - before[:, group] <= cuts.keep_decode_per_layout) & (partner >= 0)

    # One rank for (score, fewest GPUs, first row) turns the choice within a group into a minimum.
    order = np.lexsort((columns + 0 * size, size, -best), axis=1)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(columns, order.shape), axis=1)
    lowest = np.minimum.reduceat(np.where(tried, rank, len(columns)), groups, axis=1)
    found = lowest < len(columns)
    winner = np.take_along_axis(order, np.minimum(lowest, len(columns) - 1), axis=1)

    reported = np.where(found, np.round(np.take_along_axis(best, winner, axis=1), DECIMALS), -np.inf)
    ranking = np.argsort(-reported, axis=1, kind="stable")[:, : cuts.keep_per_target]
    kept = np.take_along_axis(found, ranking, axis=1)
    rows = np.take_along_axis(winner, ranking, axis=1)
    mates = np.take_along_axis(partner, rows, axis=1)
    return mates[kept], rows[kept]


def pair_estimate(
    prefill: WorkerTable,
    decode: WorkerTable,
    prefill_rows: Ints,
    decode_rows: Ints,
    counts: WorkerCounts,
    osl: int,
    constants: DisaggConstants,
    encoders: Encoders | None,
) -> DisaggEstimate:
    """Estimates of replicas of the given rows of the tables, which broadcast."""
    return disagg_estimate(
        prefill.workers(prefill_rows),
        decode.workers(decode_rows),
        counts,
        prefill.ttft_ms[prefill_rows],
        decode.tpot_ms[decode_rows],
        osl,
        constants,
        encoders,
    )


def ranked_replicas(
    prefill: WorkerTable,
    decode: WorkerTable,
    prefill_rows: Ints,
    decode_rows: Ints,
    encode_rows: Ints,
    counts: WorkerCounts,
    osl: int,
    constants: DisaggConstants,
    encoders: Encoders | None,
) -> Replicas:
    """The replicas without repeats, by reported tokens/s/GPU descending."""
    same = np.stack([encode_rows, prefill_rows, decode_rows, *counts])
    keep = np.sort(np.unique(same, axis=1, return_index=True)[1])

    def kept(order: Ints) -> Replicas:
        p, d, e = prefill_rows[order], decode_rows[order], encode_rows[order]
        workers = WorkerCounts(*(count[order] for count in counts))
        chosen = None if encoders is None else encoders.take(e)
        return Replicas(p, d, e, workers, pair_estimate(prefill, decode, p, d, workers, osl, constants, chosen))

    estimate = kept(keep).estimate
    reported = np.round(estimate.tokens_per_s / estimate.gpus, DECIMALS)
    return kept(keep[np.argsort(-reported, kind="stable")])
