# SPDX-License-Identifier: Apache-2.0
"""Static batches: a prefill, a whole answer, or both, of requests that run together from start to end.

Plain arithmetic: the same functions take float64 arrays on the host, where candidates are compared after rounding, and
traced arrays in a gradient.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax._units import MS_PER_S
from aicjax.serving.load import Load

Mode = Literal["static", "static_ctx", "static_gen"]
Values = Any  # a float, a float64 array of the host or a traced array


class StaticEstimate(NamedTuple):
    """Serving estimate of one worker that runs static batches; all fields have the shape of the latencies.

    Attributes:
        ttft_ms: Time to first token: encoder and prefill; 0 for a decode worker.
        tpot_ms: Time per output token after the first; NaN for a single output token, 0 for a prefill worker.
        request_latency_ms: Time from start to the last token.
        generation_ms: Time of all decode steps.
        seq_per_s: Requests finished per second.
        tokens_per_s: Output tokens per second: all of a request, those after the first for a decode worker, the first
            for a prefill worker.
        tokens_per_s_per_user: Output tokens per second of one request while it decodes.
    """

    ttft_ms: Values
    tpot_ms: Values
    request_latency_ms: Values
    generation_ms: Values
    seq_per_s: Values
    tokens_per_s: Values
    tokens_per_s_per_user: Values


def decode_samples(load: Load, stride: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """KV lengths at which a decode is priced, and how many steps each stands for.

    Every `stride`-th step, each standing for itself and those that follow it: sample i has KV length isl + i + 1 and
    weight min(stride, osl - 1 - i). Empty for one output token.
    """
    step = np.arange(0, max(load.osl - 1, 0), stride)
    return load.isl + step + 1, np.minimum(stride, load.osl - 1 - step).astype(np.float64)


def static_estimate(
    mode: Mode, context_ms: Values, generation_ms: Values, global_batch: Values, osl: Values, pp: Values = 1
) -> StaticEstimate:
    """Serving estimate of a static batch.

    request latency = ttft + tpot (osl - 1);  rate = 1000 global_batch pp / request latency.

    Args:
        mode: `static` for both phases, `static_ctx` for a prefill worker, `static_gen` for a decode worker.
        context_ms: Latency of encoder and prefill [ms]; not used by a decode worker.
        generation_ms: Latency of all decode steps [ms]; not used by a prefill worker.
        global_batch: Requests of a batch over all attention ranks.
        osl: Output tokens; at least 2 for a decode worker, and for both phases where it is traced.
        pp: Pipeline stages, each with its own batch in flight.
    """
    follow_up = osl - 1
    ttft_ms = 0.0 * generation_ms if mode == "static_gen" else context_ms
    if mode == "static_ctx":
        generation_ms = 0.0 * context_ms
        tpot_ms, user = generation_ms, generation_ms
    elif _single(osl):
        generation_ms = 0.0 * context_ms
        tpot_ms = user = np.nan * context_ms
    else:
        tpot_ms = generation_ms / follow_up
        user = MS_PER_S / tpot_ms
    request_latency_ms = ttft_ms + (0.0 if _single(osl) else tpot_ms * follow_up)
    seq_per_s = global_batch / request_latency_ms * MS_PER_S * pp
    counted = {"static": osl, "static_ctx": 1, "static_gen": follow_up}[mode]
    return StaticEstimate(ttft_ms, tpot_ms, request_latency_ms, generation_ms, seq_per_s, seq_per_s * counted, user)


def rate_gain(estimate: StaticEstimate, mode: Mode, osl: Values, progress: Values) -> Values:
    """Factor on the rates of a batch when its decode steps yield `progress` tokens each instead of one.

    1 for a prefill worker, `progress` for a decode worker, and the shrinkage of the request latency for both phases.
    """
    if mode == "static_ctx" or _single(osl):
        return 1.0
    if mode == "static_gen":
        return progress
    return estimate.request_latency_ms / (estimate.ttft_ms + estimate.tpot_ms / progress * (osl - 1))


def project(estimate: StaticEstimate, mode: Mode, osl: Values, progress: Values) -> StaticEstimate:
    """Estimate of a batch whose decode steps yield `progress` tokens each; `estimate` holds the cost of the steps.

    A prefill worker is unchanged.
    """
    if mode == "static_ctx" or _single(osl):
        return estimate
    gain = rate_gain(estimate, mode, osl, progress)
    tpot_ms = estimate.tpot_ms / progress
    return StaticEstimate(
        ttft_ms=estimate.ttft_ms,
        tpot_ms=tpot_ms,
        request_latency_ms=estimate.ttft_ms + tpot_ms * (osl - 1),
        generation_ms=estimate.generation_ms / progress,
        seq_per_s=estimate.seq_per_s * gain,
        tokens_per_s=estimate.tokens_per_s * gain,
        tokens_per_s_per_user=estimate.tokens_per_s_per_user * progress,
    )


def _single(osl: Values) -> bool:
    """Whether a prefill yields the whole answer; traced answers are longer."""
    return isinstance(osl, int) and osl == 1
