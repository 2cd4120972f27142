# SPDX-License-Identifier: Apache-2.0
"""Prefill workers beside decode pools of attention and feed-forward: which, and how many.

On the host in float64: of equal scores the order of operations and the first one decide, as in AIConfigurator 0.12.0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.constants import DisaggConstants

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK_ELEMENTS = 1 << 20  # scores held at once


class PrefillWorkers(NamedTuple):
    """Candidate prefill workers; all fields [option].

    Attributes:
        seq_per_s: Requests per second of one worker.
        gpus: GPUs of one worker.
        ttft_ms: TTFT of a worker alone.
    """

    seq_per_s: Floats
    gpus: Ints
    ttft_ms: Floats


class DecodePools(NamedTuple):
    """Candidate pools; all fields [pool].

    Attributes:
        seq_per_s: Requests per second.
        gpus: GPUs.
        decode_ms: Time from the first token to the last.
    """

    seq_per_s: Floats
    gpus: Ints
    decode_ms: Floats


class PrefillLimits(NamedTuple):
    """What a deployment with its prefill workers may be; None where nothing limits.

    Attributes:
        gpus: GPUs of all.
        prefill_gpus: GPUs that prefill.
        prefill_workers: Workers that prefill.
        ttft_ms: Time to first token.
        request_latency_ms: Whole request.
    """

    gpus: int
    prefill_gpus: int | None
    prefill_workers: int | None
    ttft_ms: float
    request_latency_ms: float | None


class Matched(NamedTuple):
    """Prefill workers of each pool; all fields [pool].

    Attributes:
        option: Position of the worker; -1 where none is within the limits.
        workers: How many.
        seq_per_s: Requests per second that both sides sustain.
    """

    option: Ints
    workers: Ints
    seq_per_s: Floats


def match_prefill(
    pools: DecodePools, prefill: PrefillWorkers, limits: PrefillLimits, constants: DisaggConstants
) -> Matched:
    """The prefill workers with the highest sustained rate per GPU, for every pool.

    With w workers of rate p and g GPUs beside a pool of rate d and G GPUs: min(d degradation_d, w p degradation_p) /
    (G + w g) grows with w until prefill keeps up, so the best w is that number, or one less. Of equal scores the fewest
    GPUs, then the fewest that prefill, then the shortest TTFT, then the first worker counts.
    """
    step = max(1, _CHUNK_ELEMENTS // max(2 * len(prefill.gpus), 1))
    parts = []
    for start in range(0, len(pools.gpus), step):
        part = slice(start, start + step)
        some = DecodePools(pools.seq_per_s[part], pools.gpus[part], pools.decode_ms[part])
        parts.append(_match(some, prefill, limits, constants))
    empty = Matched(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    return Matched(*(np.concatenate(values) for values in zip(*parts, strict=True))) if parts else empty


def _match(pools: DecodePools, prefill: PrefillWorkers, limits: PrefillLimits, constants: DisaggConstants) -> Matched:
    decode_rate = (pools.seq_per_s * constants.pool_degradation)[:, None]
    rate = prefill.seq_per_s * constants.prefill_degradation
    ttft_ms = prefill.ttft_ms * constants.ttft_correction
    allowed = np.broadcast_to(ttft_ms <= limits.ttft_ms, (len(pools.gpus), len(rate)))
    if limits.request_latency_ms is not None:
        allowed = allowed & (ttft_ms + pools.decode_ms[:, None] <= limits.request_latency_ms)
    most = np.minimum(np.maximum(np.ceil(decode_rate / rate), 1), (limits.gpus - pools.gpus)[:, None] // prefill.gpus)
    if limits.prefill_workers is not None:
        most = np.minimum(most, limits.prefill_workers)
    if limits.prefill_gpus is not None:
        most = np.minimum(most, limits.prefill_gpus // prefill.gpus)
    workers = np.stack([most - 1, most], axis=-1)
    sustained = np.minimum(decode_rate[..., None], workers * rate[:, None])
    prefill_gpus = workers * prefill.gpus[:, None]
    gpus = pools.gpus[:, None, None] + prefill_gpus
    possible = allowed[..., None] & (workers >= 1)
    keys = (sustained / np.maximum(gpus, 1), -gpus, -prefill_gpus, np.broadcast_to(-ttft_ms[:, None], gpus.shape))
    flat = possible.reshape(len(pools.gpus), -1)
    best = flat
    for key in keys:
        score = np.where(best, key.reshape(best.shape), -np.inf)
        best = best & (score == score.max(axis=1, initial=-np.inf, keepdims=True))
    found = np.argmax(best, axis=1)
    rows = np.arange(len(found))
    option = np.where(flat.any(axis=1), found // 2, -1)
    return Matched(
        option=option,
        workers=np.where(option >= 0, workers.reshape(best.shape)[rows, found], 0).astype(np.int64),
        seq_per_s=np.where(option >= 0, sustained.reshape(best.shape)[rows, found], 0.0),
    )
