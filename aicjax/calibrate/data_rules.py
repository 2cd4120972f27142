# SPDX-License-Identifier: Apache-2.0
"""Which measured rows to trust: every rule names the rows it flags and drops none."""

from collections.abc import Mapping

import numpy as np

from aicjax.calibrate.launch import launch_facts
from aicjax.calibrate.measurements import Flags, Floats, Measurements
from aicjax.calibrate.predict import Prediction

MOST_ROUNDING_MS = 0.05, 0.005  # by which TTFT and TPOT of a rounded copy differ from its original at most
TOLERANCE_MS = 1e-6  # of comparisons of rounded times
MOST_PREFILL_DEMAND = 1.3  # prefill time of a batch over the latency of a request
LEAST_KERNEL_SHARE = 0.6  # measured TPOT over the time of a decode step's kernels


def repeated(rows: Measurements) -> Flags:
    """Rows that repeat another measurement: copies by their digits, and copies that were rounded.

    Exact copies have a `duplicate_rank` above 0. A rounded copy has the family, system, lengths and concurrency of
    another kept row, and its TTFT to half of 0.1 ms and TPOT to half of 0.01 ms; of such rows the one with most digits
    stays, of equals the first.
    """
    flagged = rows.duplicate_rank > 0
    at = np.flatnonzero(~flagged & ~speculative(rows) & ~wrong_width(rows))
    if not at.size:
        return flagged
    kept = rows.take(at)
    place = kept.codes(("model_family", "system", "isl", "osl", "concurrency"))
    order = np.lexsort((kept.tpot_ms, kept.ttft_ms, place))
    steps = [np.diff(values[order]) for values in (place, kept.ttft_ms, kept.tpot_ms)]
    near = [np.abs(step) <= most + TOLERANCE_MS for step, most in zip(steps[1:], MOST_ROUNDING_MS, strict=True)]
    same = np.empty(len(at), np.int64)
    same[order] = np.cumsum(np.append(True, (steps[0] != 0) | ~near[0] | ~near[1]))
    coarse = (kept.ttft_ms == np.round(kept.ttft_ms, 2)) & (kept.tpot_ms == np.round(kept.tpot_ms, 2))
    order = np.lexsort((np.arange(len(same)), coarse, same))
    later = np.append(False, np.diff(same[order]) == 0)
    flagged[at[order[later]]] = True
    return flagged


def speculative(rows: Measurements) -> Flags:
    """Rows measured with speculative decoding, or that may have been: their label is not `none:...`."""
    return ~np.char.startswith(rows.spec_label, "none:")


def wrong_width(rows: Measurements) -> Flags:
    """Rows whose recorded layout cannot be corrected: `topology_flag` is `bad:...`."""
    return np.char.startswith(rows.topology_flag, "bad:")


def saturated(rows: Measurements) -> Flags:
    """Rows whose requests waited for a place: TTFT is more than half of the request latency. Not scored on TTFT."""
    return rows.ttft_ms > 0.5 * request_latency_ms(rows)


def contradicts_batch(rows: Measurements) -> Flags:
    """In-flight batching rows whose concurrency is not that of one server with the stated batch on all ranks."""
    return rows.is_agg & rows.agg.known & (rows.concurrency != rows.agg.batch * rows.agg.dp)


def contradicts_prefill(rows: Measurements, prediction: Prediction) -> Flags:
    """In-flight batching rows that leave no time for their prefills.

    Each of b requests in flight on a rank needs a prefill while it lives, so b prefills must fit into one request
    latency; the flagged rows would need more than 1.3 times that.
    """
    demand_ms = rows.agg.batch * prediction.prefill_ms
    return rows.is_agg & (demand_ms > MOST_PREFILL_DEMAND * request_latency_ms(rows))


def contradicts_kernels(rows: Measurements, prediction: Prediction) -> Flags:
    """In-flight batching rows faster than 0.6 of the kernels of one decode step at their batch.

    Either the row or a table is wrong, tables that were transferred from other formats above all. So these rows stay in
    every score: to leave out what is predicted too slow would flatter the prediction.
    """
    return rows.is_agg & (rows.tpot_ms < LEAST_KERNEL_SHARE * prediction.decode_ms)


def contradicts_script(rows: Measurements) -> Flags:
    """Rows of runs whose published scripts used speculative decoding, or another concurrency, than is recorded."""
    return launch_facts(rows).wrong != ""


def contradicts_load(rows: Measurements, prediction: Prediction) -> Flags:
    """Rows that are not one server under the stated load: by their script, their batch or the time of prefills."""
    return contradicts_script(rows) | contradicts_batch(rows) | contradicts_prefill(rows, prediction)


def clean(rows: Measurements) -> Flags:
    """Rows to score on: kept copies, no speculation, known widths, TPOT not above that of a higher load."""
    return (rows.duplicate_rank == 0) & ~speculative(rows) & ~wrong_width(rows) & ~rows.non_monotone_tpot


def flagged(rows: Measurements, prediction: Prediction) -> Mapping[str, int]:
    """Clean rows that a further rule flags, by rule; they are scored unless a caller leaves them out."""
    rules = {
        "rounded copies": repeated(rows),
        "queue saturated": saturated(rows),
        "contradicts its script": contradicts_script(rows),
        "batch is not the concurrency": contradicts_batch(rows),
        "no time for the prefills": contradicts_prefill(rows, prediction),
        "faster than its kernels": contradicts_kernels(rows, prediction),
    }
    return {name: int((flags & clean(rows)).sum()) for name, flags in rules.items()}


def request_latency_ms(rows: Measurements) -> Floats:
    """Time from start to the last token: TTFT + TPOT (osl - 1)."""
    return rows.ttft_ms + rows.tpot_ms * (rows.osl - 1)
