# SPDX-License-Identifier: Apache-2.0
"""All points of an in-flight batching sweep as rows of tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame
from aicjax.explore.identity import identity, layout_columns
from aicjax.serving.agg import AggEstimate, AnyArray
from aicjax.sweeps.cases import Case, Cases, request_of
from aicjax.sweeps.kernel import VERDICTS
from aicjax.sweeps.spec import SweepSpec

GROUP_POINTS = 1 << 20  # of a table, about


def layout_frame(spec: SweepSpec, cases: Cases, case: Case) -> Frame:
    """What all points of a layout share, one row for each layout of a case."""
    engine, drafts = cases.engines[case.engine], case.workload.drafts
    worker = engine.under(request_of(spec, engine.name, case.workload))["agg"]
    values = {
        **identity(worker.deployment),
        "nextn": drafts.nextn,
        "nextn_accepted": drafts.accepted,
        **layout_columns(worker, np.arange(len(worker.layouts))),
        "num_total_gpus": np.array([layout.gpus for layout in worker.layouts]),
        "memory_fraction": np.nan if case.memory_fraction is None else case.memory_fraction,
    }
    return frames.build(tuple(values), values, len(worker.layouts), decimals=None)


def point_table(
    layouts: Frame,
    first_point: NDArray[np.int64],
    batch: Sequence[int],
    ctx_tokens: Sequence[int],
    inside: NDArray[np.bool_],
    found: AggEstimate,
    verdict: NDArray[np.int8],
) -> pa.Table:
    """One row for each point that leaves room for decoding, by number; latencies are null without data.

    Args:
        layouts: What all points of a layout share.
        first_point: Number of the first point of each layout.
        batch, ctx_tokens: The grid.
        inside: Points that leave room for decoding [batch, ctx].
        found: Estimates [layout, batch, ctx].
        verdict: Positions in `VERDICTS` [layout, batch, ctx].
    """
    at = np.broadcast_to(inside, verdict.shape).nonzero()
    layout, batch_at, ctx_at = at
    rows = layouts["osl"][layout]
    known = np.isfinite(np.asarray(found.request_latency_ms)[at])

    def measured(values: AnyArray, there: NDArray[np.bool_] = known) -> pa.Array:
        return pa.array(np.asarray(values)[at], mask=~there)

    shared = {name: _column(values, layout) for name, values in layouts.items()}
    words = pa.array(VERDICTS)
    return pa.table(
        shared
        | {
            "bs": pa.array(np.array(batch, np.int32)[batch_at]),
            "ctx_tokens": pa.array(np.array(ctx_tokens, np.int32)[ctx_at]),
            "verdict": pa.DictionaryArray.from_arrays(pa.array(verdict[at]), words),
            "ttft": measured(found.ttft_ms),
            "tpot": measured(found.tpot_ms, known & (rows > 1)),
            "request_latency": measured(found.request_latency_ms),
            "seq/s": measured(found.seq_per_s),
            "point": pa.array(first_point[layout] + batch_at * len(ctx_tokens) + ctx_at),
        }
    )


def _column(values: NDArray[Any], at: NDArray[np.int64]) -> pa.Array:
    """Values of layouts at points: words by dictionary, counts in 32 bits, absent numbers null."""
    if values.dtype.kind in "UO":
        words, code = np.unique(values, return_inverse=True)
        return pa.DictionaryArray.from_arrays(pa.array(code[at].astype(np.int32)), pa.array(words.astype(object)))
    if values.dtype.kind == "f":
        return pa.array(values[at], mask=np.isnan(values)[at])
    return pa.array(values[at].astype(np.int32))
