# SPDX-License-Identifier: Apache-2.0
"""What a vision encoder adds to a serving estimate, where it runs on the workers of the language model."""

from aicjax._units import MS_PER_S
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
