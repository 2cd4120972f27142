# SPDX-License-Identifier: Apache-2.0
"""Predictions beside a user's measurements, with the levels and the spread that constants hold."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from aicjax.calibrate.anchor import Corpus, Corrected
from aicjax.calibrate.measurements import Floats, Measurements, Strings
from aicjax.calibrate.personal import GROUP
from aicjax.calibrate.predict import predict
from aicjax.calibrate.score import score, tokens_per_s_per_gpu
from aicjax.calibrate.spread import from_plain, of_kinds
from aicjax.constants import fitted, levels


class Comparison(NamedTuple):
    """Measured servers and what is predicted for them; NaN where there is no prediction.

    Attributes:
        rows: The measurements.
        times_ms: Predicted TTFT and TPOT, levels included [row, quantity].
        range_ms: 10 % and 90 % quantile of both [row, quantity]; None where the constants hold no spread.
        tokens_per_s_per_gpu: Predicted and measured output tokens per second and GPU, by Little's law [row, 2].
        reason: Why there is no prediction [row]; "" where there is one.
        scores: Errors in %, and the share of measured times within their range.
    """

    rows: Measurements
    times_ms: Floats
    range_ms: tuple[Floats, Floats] | None
    tokens_per_s_per_gpu: Floats
    reason: Strings
    scores: Mapping[str, Any]


def compare(rows: Measurements, constants: str) -> Comparison:
    """Predictions and errors of measured servers.

    Args:
        rows: The measurements.
        constants: A name under `configs/constants/`, or the path of a file, which may hold levels of one's own.

    Raises:
        InputError: No such constants.
    """
    prediction = predict(rows, constants)
    known = levels(constants)
    of_row = [known.get(key) for key in zip(*(getattr(rows, name).tolist() for name in GROUP), strict=True)]
    factors = np.array([(1.0, 1.0) if level is None else level[:2] for level in of_row])
    times_ms = np.stack([prediction.ttft_ms, prediction.tpot_ms], 1) * factors
    corrected = None
    if (stored := fitted(constants).get("spread")) is not None:
        found = from_plain(stored)
        corpus = Corpus.of(rows, *times_ms.T)
        kind = corpus.nesting.row_kind
        unseen, curve, noise = (part[kind] for part in of_kinds(found, corpus.kinds))
        pairs = zip(unseen, of_row, strict=True)
        group = np.array([of if level is None else level.log_covariance for of, level in pairs])
        tails = np.broadcast_to(found.tails, (len(rows), *found.tails.shape))
        corrected = Corrected(np.log(times_ms), group + curve + noise, tails)
    throughput = [tokens_per_s_per_gpu(rows, *times) for times in (times_ms.T, (rows.ttft_ms, rows.tpot_ms))]
    return Comparison(
        rows,
        times_ms,
        None if corrected is None else corrected.range_ms,
        np.stack(throughput, 1),
        prediction.reason,
        score(rows, *times_ms.T, corrected=corrected),
    )
