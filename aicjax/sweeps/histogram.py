# SPDX-License-Identifier: Apache-2.0
"""Bins of a histogram over many magnitudes: equal steps within each octave, taken from the bits of a float32."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import NDArray

_STEP_BITS = 3  # 8 bins an octave
_FIRST_OCTAVE, _LAST_OCTAVE = -16, 32
_SHIFT = np.finfo(np.float32).nmant - _STEP_BITS
_FIRST = int(np.float32(2.0**_FIRST_OCTAVE).view(np.int32)) >> _SHIFT
BINS = (_LAST_OCTAVE - _FIRST_OCTAVE) << _STEP_BITS


def bin_of(values: Float[Array, "..."]) -> Int[Array, "..."]:
    """Bin of positive float32 numbers; numbers outside the range are in the first and in the last."""
    bits = jax.lax.bitcast_convert_type(values, jnp.int32)
    return jnp.clip((bits >> _SHIFT) - _FIRST, 0, BINS - 1)


def tally(bins: Int[Array, "row batch ctx"], counted: Bool[Array, "row batch ctx"]) -> Int[Array, "row bin"]:
    """How many of the counted points are in each bin."""
    rows, others = bins.shape[0], BINS  # what is not counted has a place of its own
    place = jnp.where(counted, bins, others) + (others + 1) * jnp.arange(rows)[:, None, None]
    counts = jnp.zeros(rows * (others + 1), jnp.int32).at[place.ravel()].add(1, mode="promise_in_bounds")
    return counts.reshape(rows, -1)[:, :BINS]


def edges() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least number of each bin, and that which is above all of it [bin]."""
    bits = (np.arange(BINS + 1, dtype=np.int32) + _FIRST) << _SHIFT
    values = bits.view(np.float32).astype(np.float64)
    return values[:-1], values[1:]
