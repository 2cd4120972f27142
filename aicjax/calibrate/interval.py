# SPDX-License-Identifier: Apache-2.0
"""Ranges of predicted times: 10 %, 50 % and 90 % quantiles from three parts that are known separately.

    tables      latencies of operators, by how each was obtained
    constants   what a fit could not pin down, through the gradient of the formulas
    levels      of the group, of the curve, and noise: what residuals of unseen servers show beyond both

All are errors of ln(ttft, tpot), pairs of one row. Rows of one search share their model, system and constants: their
errors are drawn together, so that a comparison of two rows does not count what both share. Host arrays.
"""

from typing import NamedTuple

import numpy as np

from aicjax.calibrate.levels import Components
from aicjax.calibrate.measurements import Floats, Ints
from aicjax.calibrate.spread import NORMAL

DRAWS = 2000
QUANTILES = (0.1, 0.5, 0.9)


class Parts(NamedTuple):
    """Covariances of the errors of ln(ttft, tpot) of each row [row, 2, 2].

    Attributes:
        shared: Of what all rows of one set share: tables, constants, level of the group.
        own: Of what each row has alone: level of the curve, noise.
    """

    shared: Floats
    own: Floats

    @property
    def total(self) -> Floats:
        """Covariance of all errors."""
        return self.shared + self.own


def table_covariance(share: Floats, deviation: Floats, common: Floats) -> Floats:
    """Variance of ln(sum of operator latencies) [row].

    Args:
        share: Share of each operator in the sum [row, operator].
        deviation: Standard deviation of ln(predicted / true) of each [row, operator].
        common: The part of it that operators share, by the tables they are read from [row, operator]; not above it.
    """
    alone = np.sum(share**2 * np.maximum(deviation**2 - common**2, 0.0), -1)
    return alone + np.sum(share * common, -1) ** 2


def constants_covariance(gradient: Floats, covariance: Floats) -> Floats:
    """Covariance of ln(ttft, tpot) by the constants [row, 2, 2].

    Args:
        gradient: d ln(ttft, tpot) / d constants [row, 2, constant].
        covariance: Of the constants [constant, constant].
    """
    return np.einsum("rij,jk,rlk->ril", gradient, covariance, gradient)


def parts(components: Components, tables: Floats, constants: Floats, typical: Floats) -> Parts:
    """Errors of rows about which nothing is measured.

    Residuals of servers hold the errors of the tables and constants of those servers as well. So the level of the group
    is what those leave of it, and a row whose tables are less certain than those of the servers has more.

    Args:
        components: Variances of the kind of each row [row, 2, 2].
        tables, constants: Covariance of each row by both [row, 2, 2].
        typical: The same, both together, of the servers that the residuals are of [row, 2, 2].
    """
    left = _positive(components.group - typical)
    return Parts(tables + constants + left, components.curve + components.noise)


def draws(errors: Parts, tails: Floats, sets: Ints, count: int = DRAWS, seed: int = 0) -> Floats:
    """Errors of ln(ttft, tpot), the same for the same seed [draw, row, 2].

    Shared errors of rows of one set are the same draws, scaled to each row. Every error has the given tails.

    Args:
        errors: Covariances of the rows.
        tails: 10 % and 90 % quantile of each error relative to its standard deviation [quantity, 2].
        sets: Set of each row: model, system and backend [row].
        count: Number of draws.
        seed: Of the random numbers.
    """
    random = np.random.default_rng(seed)
    number, of_row = np.unique(sets, return_inverse=True)
    shared = random.standard_normal((count, len(number), 2))[:, of_row]
    own = random.standard_normal((count, len(sets), 2))
    values = _times_root(errors.shared, shared) + _times_root(errors.own, own)
    reach = np.where(values < 0, tails[:, 0] / NORMAL[0], tails[:, 1] / NORMAL[1])
    return values * reach


def time_range(times_ms: Floats, errors: Parts, tails: Floats) -> Floats:
    """Quantiles of TTFT and TPOT [quantile, row, 2]; the median is the prediction.

    Args:
        times_ms: Predictions of TTFT and TPOT [row, 2].
        errors: Covariances of the rows.
        tails: 10 % and 90 % quantile of each error relative to its standard deviation [quantity, 2].
    """
    deviation = np.sqrt(np.diagonal(errors.total, axis1=1, axis2=2))
    relative = np.stack([tails[:, 0], np.zeros(2), tails[:, 1]])
    return times_ms * np.exp(relative[:, None] * deviation)


def drawn_times_ms(times_ms: Floats, drawn: Floats) -> Floats:
    """TTFT and TPOT of every draw [draw, row, 2]."""
    return times_ms * np.exp(drawn)


def request_latency_ms(times_ms: Floats, osl: Floats) -> Floats:
    """Time of a whole request: ttft + (osl - 1) tpot [..., row]."""
    return times_ms[..., 0] + (osl - 1) * np.where(osl > 1, times_ms[..., 1], 0.0)


def probability_met(
    drawn_ms: Floats,
    osl: Floats,
    *,
    ttft_ms: float = np.inf,
    tpot_ms: float = np.inf,
    latency_ms: float = np.inf,
) -> Floats:
    """Share of draws in which all limits are met [row].

    Args:
        drawn_ms: TTFT and TPOT of every draw [draw, row, 2].
        osl: Output tokens [row].
        ttft_ms, tpot_ms, latency_ms: Limits; infinite for none.
    """
    in_time = (drawn_ms[..., 0] <= ttft_ms) & ((drawn_ms[..., 1] <= tpot_ms) | (osl < 2))
    return np.mean(in_time & (request_latency_ms(drawn_ms, osl) <= latency_ms), axis=0)


def probability_first_is_best(figure: Floats) -> Floats:
    """Share of draws in which the first row has more of a figure than each other one [row]; 1 for itself.

    Args:
        figure: More is better [draw, row].
    """
    better = np.mean((figure[:, :1] > figure) + (figure[:, :1] == figure) / 2, axis=0)
    better[0] = 1.0
    return better


def _positive(matrix: Floats) -> Floats:
    """The nearest matrices without negative variances [row, 2, 2]."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def _times_root(covariance: Floats, normal: Floats) -> Floats:
    """Normal variables of the covariance of each row, from independent ones [draw, row, 2]."""
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.einsum("rij,drj->dri", root, normal)
