# SPDX-License-Identifier: Apache-2.0
"""Which blocks of points can still hold one of the best points, or one of the Pareto front, by bounds alone.

Bounds of blocks and estimates of points come from different compiled programs, which round differently. A bound is
therefore taken as `SLACK` better than it says: what is left out is worse whatever else is known, so that neither the
order of the chunks nor an interruption changes an answer.
"""

import numpy as np
from numpy.typing import NDArray

SLACK = 1e-5  # relative; the programs differ by 1e-7
_BIN_SHIFT = 15  # of the bits of a float32: 256 bins an octave
_BINS = (np.float32(np.inf).view(np.int32) >> _BIN_SHIFT) + 1

Mask = NDArray[np.bool_]
Bounds = NDArray[np.floating]


def may_be_on_top(best: NDArray[np.float64], count: int, threshold: float) -> Mask:
    """Blocks that may hold one of the best `count` points.

    Any block that holds one is among the `count` blocks with the highest bound, or ties with the last of them.

    Args:
        best: Best value of each block; -inf where no point counts.
        count: Points sought.
        threshold: Value that the points must reach in any case.
    """
    if best.size > count:
        threshold = max(threshold, np.partition(best, -count, axis=None)[-count])
    return (better(best) >= threshold) & (best > -np.inf)


def may_be_on_front(least_ms: Bounds, height: Bounds, point_ms: Bounds, point_height: Bounds) -> Mask:
    """Blocks that may hold a point of the Pareto front of TPOT against height.

    A block is out when some point has a smaller TPOT than any of its points and at least their height.

    Args:
        least_ms, height: Least TPOT and greatest height of each block; inf and -inf where no point counts.
        point_ms, point_height: Points that are there, of these blocks or others.
    """
    steps = np.full(_BINS + 1, -np.inf)
    np.maximum.at(steps, _bin(point_ms) + 1, point_height)
    beaten = np.maximum.accumulate(steps)[_bin(-better(-least_ms))]
    return (better(height) > beaten) & np.isfinite(least_ms)


def better(values: NDArray | float) -> NDArray:
    """Values, of which more is better, with the slack; infinite ones stay."""
    return values * (1 + SLACK * np.sign(values))


def _bin(values_ms: Bounds) -> NDArray[np.int32]:
    """Bin of numbers that are not negative, ascending with them."""
    return np.abs(np.ascontiguousarray(values_ms, np.float32)).view(np.int32) >> _BIN_SHIFT
