# SPDX-License-Identifier: Apache-2.0
"""Latency of a vision encoder: a pass of its own over the images of a batch, before the prefill."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aicjax.compat import DEFAULT, Compat
from aicjax.constants import Constants
from aicjax.forward.bound import Breakdown, StepCurves, bind, step_queries
from aicjax.hardware import System
from aicjax.models import Images, encoder_stages
from aicjax.ops.records import OpLists

_PART = "context_rest"  # nothing in an encoder reads or keeps a cache


@dataclass(frozen=True)
class EncoderTimes:
    """The encoder of each layout over batches.

    Attributes:
        latency_ms: Latency of a batch, float64 [config, batch]; NaN where data are missing.
    """

    latency_ms: NDArray[np.float64]
    _curves: StepCurves
    _points: NDArray[np.int64]  # of each stage [stage, config, batch]

    def breakdown(self, config: int, batch: int) -> Breakdown:
        """Operators of the encoder of one layout for one batch."""
        stages = [
            self._curves.breakdown(_PART, 2 * config + stage, int(points[config, batch]))
            for stage, points in enumerate(self._points)
        ]
        return Breakdown(
            tuple(name for stage in stages for name in stage.names),
            np.concatenate([stage.latency_ms for stage in stages]),
            np.concatenate([stage.provenance for stage in stages]),
        )

    def missing(self, config: int) -> list[str]:
        """Operators of the encoder of one layout that have no answer for some batch."""
        return [name for stage in range(2) for name in self._curves.missing(_PART, 2 * config + stage)]


def encoder_times(
    system: System,
    backend: str,
    version: str,
    op_lists: Sequence[OpLists],
    images: Images,
    batches: ArrayLike,
    *,
    mode: str = "SILICON",
    transfer_policy: str | None = None,
    constants: Constants | None = None,
    compat: Compat = DEFAULT,
) -> EncoderTimes:
    """Latency of the encoder of each layout over batches.

    The busiest rank takes its share of the images, rounded up. Each image is a sequence of patches; the projector and
    what follows see its tokens.

    Args:
        system, backend, version: Which tables; `version` is resolved.
        op_lists: Operators of each layout, all with an encoder.
        images: Images of a request.
        batches: Requests of a batch, int [batch].
        mode, transfer_policy: As for `bind`.
        constants: Empirical numbers; the reference set of the backend when None.
        compat: As for `bind`.
    """
    stages = [OpLists(stage, ()) for lists in op_lists for stage in encoder_stages(lists.encoder)]
    ranks = np.array([lists.image_ranks for lists in op_lists])
    shares = -(-np.asarray(batches, np.int64) * images.count // ranks[:, None])
    distinct, place = np.unique(shares, return_inverse=True)
    place = place.reshape(shares.shape)
    options = {"mode": mode, "transfer_policy": transfer_policy, "constants": constants, "compat": compat}
    bound = bind(system, backend, version, stages, **options)
    lengths = np.repeat([images.patches, images.tokens], len(distinct))
    curves = bound.evaluate(
        step_queries(context_batch=np.tile(distinct, 2), context_new=lengths, context_prefix=np.zeros_like(lengths))
    )
    points = np.stack([place, place + len(distinct)])
    config = np.arange(len(op_lists))[:, None]
    latency_ms = sum(
        curves.context_rest_ms[2 * config + stage, at].astype(np.float64) for stage, at in enumerate(points)
    )
    return EncoderTimes(np.asarray(latency_ms), curves, points)
