# SPDX-License-Identifier: Apache-2.0
"""What a vision encoder does to a serving estimate: on the workers of the language model, or on workers of its own."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aicjax._units import MS_PER_S
from aicjax.constants import DisaggConstants
from aicjax.serving.agg import AggEstimate, AnyScalar


def after_encoder(estimate: AggEstimate, encoder_ms: AnyScalar, batch: AnyScalar, replicas: AnyScalar) -> AggEstimate:
    """The estimate of a worker with in-flight batching that first encodes the images of a batch.

    The encoder runs once in a cycle and once before a first token; it is not part of what queues. All arguments
    broadcast, one element per point.

    Args:
        estimate: The worker without its encoder.
        encoder_ms: Latency of the encoder over the images of a batch [ms].
        batch: Requests in flight of one attention rank.
        replicas: Pipeline stages times attention ranks.
    """
    finished = MS_PER_S * batch * replicas
    return AggEstimate(
        ttft_ms=estimate.ttft_ms + encoder_ms,
        tpot_ms=estimate.tpot_ms,
        request_latency_ms=estimate.request_latency_ms + encoder_ms,
        seq_per_s=finished / (finished / estimate.seq_per_s + encoder_ms),
    )


class Encoders(NamedTuple):
    """Workers that run the vision encoder alone; fields of one shape.

    Attributes:
        seq_per_s: Requests per second of one worker.
        gpus: GPUs of one worker.
        latency_ms: Latency of a batch, which every request waits for before its prefill.
    """

    seq_per_s: NDArray[np.float64]
    gpus: NDArray[np.int64]
    latency_ms: NDArray[np.float64]

    def take(self, choices: Any) -> "Encoders":
        """Some of them."""
        return Encoders(self.seq_per_s[choices], self.gpus[choices], self.latency_ms[choices])

    def rate(self, workers: ArrayLike, constants: DisaggConstants) -> NDArray[np.float64]:
        """Requests per second that so many workers sustain."""
        return self.seq_per_s * constants.encoder_degradation * np.asarray(workers)
