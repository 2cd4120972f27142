# SPDX-License-Identifier: Apache-2.0
"""Rows of a measured table as curves of tokens by key."""

from collections.abc import Sequence

import numpy as np

from aicjax.interp.ends import Curve
from aicjax.tables import first_rows


def keyed_curves(
    parts: Sequence[np.ndarray], tokens: np.ndarray, latency_ms: np.ndarray
) -> dict[tuple[int, ...], Curve]:
    """Curves `(tokens, latency_ms)` by key, keys and tokens ascending; the first row of a point counts.

    Args:
        parts: Parts of the key, integers [row] each.
        tokens: Token count of each row [row].
        latency_ms: Latency of each row [row].
    """
    if not tokens.size:
        return {}
    keep = first_rows(*parts, tokens)
    columns = [np.asarray(part)[keep].astype(np.int64) for part in parts]
    tokens, latency_ms = tokens[keep], latency_ms[keep]
    order = np.lexsort((tokens, *reversed(columns)))
    keys = np.stack(columns, -1)[order]
    tokens, latency_ms = tokens[order].astype(np.float64), latency_ms[order].astype(np.float64)
    starts = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]).any(-1)])
    stops = np.r_[starts[1:], tokens.size]
    return {
        tuple(key): (tokens[start:stop], latency_ms[start:stop])
        for key, start, stop in zip(keys[starts].tolist(), starts, stops, strict=True)
    }
