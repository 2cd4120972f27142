# SPDX-License-Identifier: Apache-2.0
"""Pareto fronts of two columns."""

import numpy as np

from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame


def pareto_front(frame: Frame, x: str, y: str, *, maximize_x: bool = True) -> Frame:
    """Rows that no other row matches or beats in both columns, by `x` ascending; `y` is maximised.

    Of rows equal in both columns the first stays; rows without a finite value are left out.
    """
    if frames.length(frame) == 0:
        return frame
    return frames.take(frame, front_rows(frame[x], frame[y], maximize_x=maximize_x))


def front_rows(x: np.ndarray, y: np.ndarray, *, maximize_x: bool = True) -> np.ndarray:
    """Positions of the front of points (x, y), by x ascending; see `pareto_front`."""
    rows = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    gain = x[rows] if maximize_x else -x[rows]
    best_first = rows[np.lexsort((-y[rows], -gain))]
    height = y[best_first]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(height)[:-1]]) if len(rows) else height
    front = best_first[height > before]
    return front[np.argsort(x[front], kind="stable")]
