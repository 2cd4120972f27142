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


def front_of_groups(group: np.ndarray, x: np.ndarray, y: np.ndarray, tie: np.ndarray) -> np.ndarray:
    """Positions of the front of each group: no other of the group has at most its `x` and at least its `y`.

    Group by group, with ascending `x` and `y`. Of equals the one with the least `tie`, then the first, stays.

    Args:
        group: Numbers of the groups, from 0 [point].
        x: To be small [point].
        y: To be large [point].
        tie: What decides between equals [point].
    """
    order = np.lexsort((tie, -y, x, group))
    height = np.unique(y[order], return_inverse=True)[1]
    reach = group[order] * (len(order) + 1) + height  # any of a later group is above all of an earlier one
    before = np.concatenate([[-1], np.maximum.accumulate(reach)[:-1]])
    return order[reach > before]


def front_rows(x: np.ndarray, y: np.ndarray, *, maximize_x: bool = True) -> np.ndarray:
    """Positions of the front of points (x, y), by x ascending; see `pareto_front`."""
    rows = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    gain = x[rows] if maximize_x else -x[rows]
    best_first = rows[np.lexsort((-y[rows], -gain))]
    height = y[best_first]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(height)[:-1]]) if len(rows) else height
    front = best_first[height > before]
    return front[np.argsort(x[front], kind="stable")]
