# SPDX-License-Identifier: Apache-2.0
"""Disaggregated serving: how many prefill and decode workers form a replica, and what the replica yields.

Counts are chosen on the host in float64: many pairs of counts tie (doubling both sides changes nothing per GPU), so the
order of operations and the first of equal scores decide, as in AIConfigurator 0.12.0.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.constants import DisaggConstants
from aicjax.serving.encoder import Encoders

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK_ELEMENTS = 1 << 18  # scores held at once: 2 MiB, so that a chunk stays in cache


@dataclass(frozen=True)
class ReplicaLimits:
    """What a replica may be.

    Attributes:
        sizes: GPU counts allowed.
        max_prefill_workers, max_decode_workers, max_encode_workers: Most workers of a role.
        cluster_gpus: GPUs that copies of a replica fill, some of which may stay idle; None where a replica is judged by
            its own GPUs alone.
    """

    sizes: tuple[int, ...]
    max_prefill_workers: int
    max_decode_workers: int
    max_encode_workers: int = 0
    cluster_gpus: int | None = None

    def filling(self, gpus: int) -> "ReplicaLimits":
        """The limits of replicas whose copies fill so many GPUs."""
        return dataclasses.replace(self, cluster_gpus=gpus)

    def of_size(self, gpus: int) -> "ReplicaLimits":
        """The limits of replicas with exactly so many GPUs."""
        return dataclasses.replace(self, sizes=(gpus,))


class Workers(NamedTuple):
    """Candidate workers of one role.

    Attributes:
        seq_per_s: Requests per second of one worker.
        gpus: GPUs of one worker.
    """

    seq_per_s: Floats
    gpus: Ints


class WorkerCounts(NamedTuple):
    """Workers of a replica for every pair of candidates; 0 where no count fits the limits.

    Attributes:
        prefill, decode, encode: Number of workers, shape [prefill, decode]; no encode workers without encoders.
    """

    prefill: Ints
    decode: Ints
    encode: Ints


class DisaggEstimate(NamedTuple):
    """Serving estimate of a replica.

    Attributes:
        ttft_ms: Time to first token, queueing included.
        tpot_ms: Time per output token after the first.
        request_latency_ms: Time from arrival to the last token.
        seq_per_s: Requests per second that all sides sustain.
        tokens_per_s: Output tokens per second.
        gpus: GPUs of the replica.
        prefill_bound: Whether the prefill side yields less than the decode side.
    """

    ttft_ms: Floats
    tpot_ms: Floats
    request_latency_ms: Floats
    seq_per_s: Floats
    tokens_per_s: Floats
    gpus: Ints
    prefill_bound: NDArray[np.bool_]


def match_workers(
    prefill: Workers,
    decode: Workers,
    limits: ReplicaLimits,
    constants: DisaggConstants,
    encoders: Encoders | None = None,
) -> WorkerCounts:
    """The worker counts with the highest sustained rate per GPU, for every pair of candidates.

    Over the counts (p, d) whose GPUs are an allowed size, the score is
    min(p rate_p degradation_p, d rate_d degradation_d) / GPUs, or where copies of the replica fill a cluster the same
    numerator times the copies; of equal scores the one with fewest decode workers, then fewest prefill workers, wins.
    Encode workers, of one choice, are a third side and the last to be few. Independent of any latency target.
    """
    shape = (len(prefill.gpus), len(decode.gpus))
    counts = WorkerCounts(*(np.zeros(shape, np.int64) for _ in range(3)))
    for prefill_gpus in np.unique(prefill.gpus):
        for decode_gpus in np.unique(decode.gpus):
            rows, columns = np.flatnonzero(prefill.gpus == prefill_gpus), np.flatnonzero(decode.gpus == decode_gpus)
            p_num, d_num, e_num = _admissible(int(prefill_gpus), int(decode_gpus), limits, encoders)
            if len(p_num) == 0:
                continue
            total = prefill_gpus * p_num + decode_gpus * d_num
            if encoders is not None:
                total = total + encoders.gpus * e_num
            copies = 1
            if limits.cluster_gpus is not None:
                copies = limits.cluster_gpus // total
                useful = _undominated(p_num * copies, d_num * copies, e_num * copies)
                p_num, d_num, e_num, copies = (x[useful] for x in (p_num, d_num, e_num, copies))
                total = 1
            # Division by a positive number keeps the order of rounded numbers, so it may come before the minimum.
            p_score = _degraded(prefill.seq_per_s[rows], p_num, constants.prefill_degradation) * copies / total
            d_score = _degraded(decode.seq_per_s[columns], d_num, constants.decode_degradation) * copies / total
            if encoders is not None:
                p_score = np.minimum(p_score, encoders.rate(e_num, constants) * copies / total)
            best = _first_best(p_score, d_score)
            found = best >= 0
            counts.prefill[np.ix_(rows, columns)] = np.where(found, p_num[best], 0)
            counts.decode[np.ix_(rows, columns)] = np.where(found, d_num[best], 0)
            counts.encode[np.ix_(rows, columns)] = np.where(found, e_num[best], 0)
    return counts


def disagg_estimate(
    prefill: Workers,
    decode: Workers,
    counts: WorkerCounts,
    prefill_ttft_ms: Floats,
    decode_tpot_ms: Floats,
    osl: Any,
    constants: DisaggConstants,
    encoders: Encoders | None = None,
    xp: Any = np,
) -> DisaggEstimate:
    """Estimate of replicas; all arguments broadcast, one element per replica.

    Args:
        prefill: Rate and GPUs of one prefill worker.
        decode: Rate and GPUs of one decode worker.
        counts: Workers of the replica.
        prefill_ttft_ms: TTFT of a prefill worker alone [ms]; the queueing correction comes on top.
        decode_tpot_ms: TPOT of a decode worker [ms].
        osl: Output tokens; all of them count as output.
        constants: Correction and degradation factors.
        encoders: One encode worker of each replica, whose TTFT is corrected as that of a prefill; None without.
        xp: `numpy` on the host, `jax.numpy` in a gradient; that of equal rates is the mean over both sides.
    """
    prefill_rate = prefill.seq_per_s * counts.prefill * constants.prefill_degradation
    decode_rate = decode.seq_per_s * counts.decode * constants.decode_degradation
    seq_per_s = xp.minimum(prefill_rate, decode_rate)
    ttft_ms = prefill_ttft_ms * constants.ttft_correction + constants.handover_ms
    gpus = prefill.gpus * counts.prefill + decode.gpus * counts.decode
    if encoders is not None:
        seq_per_s = xp.minimum(seq_per_s, encoders.rate(counts.encode, constants))
        ttft_ms = ttft_ms + encoders.latency_ms * constants.ttft_correction
        gpus = gpus + encoders.gpus * counts.encode
    return DisaggEstimate(
        ttft_ms=ttft_ms,
        tpot_ms=decode_tpot_ms,
        request_latency_ms=ttft_ms + decode_tpot_ms * xp.maximum(osl - 1, 0),
        seq_per_s=seq_per_s,
        tokens_per_s=seq_per_s * osl,
        gpus=gpus,
        prefill_bound=prefill_rate < decode_rate,
    )


def _admissible(
    prefill_gpus: int, decode_gpus: int, limits: ReplicaLimits, encoders: Encoders | None
) -> tuple[Ints, Ints, Ints]:
    """Counts (prefill, decode, encode) whose GPUs are an allowed size, ascending: decode, then prefill, then encode."""
    decodes, prefills = np.arange(1, limits.max_decode_workers + 1), np.arange(1, limits.max_prefill_workers + 1)
    if encoders is None:
        d_num, p_num = np.meshgrid(decodes, prefills, indexing="ij")
        allowed = np.isin(prefill_gpus * p_num + decode_gpus * d_num, limits.sizes)
        return p_num[allowed], d_num[allowed], np.zeros(allowed.sum(), np.int64)
    d_num, p_num, size = np.meshgrid(decodes, prefills, np.array(sorted(limits.sizes)), indexing="ij")
    e_num, beyond = np.divmod(size - prefill_gpus * p_num - decode_gpus * d_num, encoders.gpus)
    allowed = (beyond == 0) & (e_num >= 1) & (e_num <= limits.max_encode_workers)
    return p_num[allowed], d_num[allowed], e_num[allowed]


def _undominated(prefill: Ints, decode: Ints, encode: Ints) -> Ints:
    """Positions of the counts that no others match in all three and exceed in one; of equals the first, ascending.

    A replica yields no less with more workers of a side, so whatever their rates are, one of these is best.
    """
    most = np.full((encode.max() + 2, decode.max() + 2), -1)  # prefill workers by encode and decode workers
    np.maximum.at(most, (encode, decode), prefill)
    beside = np.maximum.accumulate(np.maximum.accumulate(most[::-1, ::-1], axis=0), axis=1)[::-1, ::-1]
    exceeded = np.maximum(beside[encode + 1, decode], beside[encode, decode + 1]) >= prefill
    useful = np.flatnonzero((prefill == most[encode, decode]) & ~exceeded)
    place = encode[useful] * most.shape[1] + decode[useful]
    return np.sort(useful[np.unique(place, return_index=True)[1]])


def _degraded(seq_per_s: Floats, workers: Ints, degradation: float) -> Floats:
    return seq_per_s[:, None] * workers * degradation


def _first_best(p_score: Floats, d_score: Floats) -> Ints:
    """Index of the first largest positive minimum along the last axis, for every pair of rows; else -1."""
    best = np.empty((len(p_score), len(d_score)), np.int64)
    step = max(1, _CHUNK_ELEMENTS // p_score.size)
    for start in range(0, len(d_score), step):
        score = np.minimum(p_score[:, None, :], d_score[None, start : start + step, :])
        first = np.argmax(score, axis=-1)
        positive = np.take_along_axis(score, first[..., None], axis=-1)[..., 0] > 0
        best[:, start : start + step] = np.where(positive, first, -1)
    return best
