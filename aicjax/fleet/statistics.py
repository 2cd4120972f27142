# SPDX-License-Identifier: Apache-2.0
"""Means and percentiles of simulated runs with the interval that the run itself supports.

Requests of one run resemble their neighbours, so that their number says little about how sure an answer is. Runs are
cut into batches that are long enough to be nearly independent, and the spread of the batch means gives the interval. A
percentile takes the interval of its own rank: batch means of "does not exceed the estimate" say how sure the share of a
sample is, and the samples at both ends of that share are the interval. Its upper end is farther, as tails demand.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

WARM_UP_SHARE = 0.2
BATCHES = 20  # in all; a run of its own for each where there are so many runs
CONFIDENCE = 0.95
MOST_CORRELATION = 0.8  # of neighbouring batches: the run is far too short


class Interval(NamedTuple):
    """An estimate and the interval that holds the truth with the stated confidence.

    Attributes:
        value: Estimate [...].
        low, high: Ends of the interval [...].
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def after_warm_up(samples: Float[np.ndarray, "... request"], share: float = WARM_UP_SHARE) -> np.ndarray:
    """The requests after the first `share` of each run, which found the queue emptier than it is in the long run."""
    return samples[..., int(share * samples.shape[-1]) :]


def nearest_rank(samples: Float[np.ndarray, "... request"], share: float) -> np.ndarray | None:
    """The smallest sample that at least `share` of the samples do not exceed [...]; None without samples.

    Args:
        samples: Samples; the last axis is ranked.
        share: Between 0 and 1, such as 0.99.
    """
    return _at_share(np.sort(samples, axis=-1), np.asarray(share)) if samples.shape[-1] else None


def mean_interval(
    samples: Float[np.ndarray, "... run request"], *, batches: int = BATCHES, confidence: float = CONFIDENCE
) -> Interval | None:
    """Mean of all requests and its interval [...]; None with fewer requests than batches.

    Args:
        samples: Requests of independent runs, warm-up removed.
        batches: Least number of batches in all runs together, 5 or more.
        confidence: Of the interval.
    """
    cut = _cut(samples, batches)
    if cut is None:
        return None
    means = cut.mean(axis=-1, dtype=np.float64)
    value = means.mean(axis=(-2, -1))
    half = _half_width(means, confidence)
    return Interval(value, value - half, value + half)


def share_interval(holds: np.ndarray, *, batches: int = BATCHES, confidence: float = CONFIDENCE) -> Interval | None:
    """Share of the requests of which something holds and its interval, as of `mean_interval` but within 0 and 1."""
    interval = mean_interval(holds, batches=batches, confidence=confidence)
    return None if interval is None else Interval(*(np.clip(end, 0.0, 1.0) for end in interval))


def quantile_interval(
    samples: Float[np.ndarray, "... run request"],
    share: float,
    *,
    batches: int = BATCHES,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """Nearest-rank percentile of all requests and its interval [...]; None with fewer requests than batches.

    An interval that would reach beyond the largest sample ends there: the run is too short for the percentile.

    Args:
        samples: Requests of independent runs, warm-up removed.
        share: Share of the requests that do not exceed the percentile, such as 0.99.
        batches: Least number of batches in all runs together, 5 or more.
        confidence: Of the interval.
    """
    cut = _cut(samples, batches)
    if cut is None:
        return None
    ranked = np.sort(cut.reshape(*cut.shape[:-3], -1), axis=-1)
    value = _at_share(ranked, np.asarray(share))
    within = (cut <= value[..., None, None, None]).mean(axis=-1)
    half = _half_width(within, confidence)
    return Interval(value, _at_share(ranked, share - half), _at_share(ranked, share + half))


def _at_share(ranked: Float[np.ndarray, "... request"], share: Float[np.ndarray, "..."]) -> np.ndarray:
    """The nearest rank of each row of sorted samples."""
    count = ranked.shape[-1]
    # 0.07 of 100 is the 7th, though 0.07 * 100 is a little more than 7.
    rank = np.clip(np.ceil(share * count - 1e-9), 1, count).astype(int)
    return np.take_along_axis(ranked, np.broadcast_to(rank - 1, ranked.shape[:-1])[..., None], axis=-1)[..., 0]


def _cut(
    samples: Float[np.ndarray, "... run request"], batches: int
) -> Float[np.ndarray, "... run batch request"] | None:
    """Batches of equal length, the first few requests of each run left out."""
    *outer, runs, count = samples.shape
    each = math.ceil(batches / max(runs, 1))  # batches of a run
    if runs == 0 or count < each:
        return None
    return samples[..., count % each :].reshape(*outer, runs, each, -1)


def _half_width(means: Float[np.ndarray, "... run batch"], confidence: float) -> np.ndarray:
    """Half the interval of the mean of all batches, wider where neighbours within a run are correlated."""
    runs, each = means.shape[-2:]
    count = runs * each
    off = means - means.mean(axis=(-2, -1), keepdims=True)
    variance = np.sum(off**2, axis=(-2, -1)) / (count - 1)
    neighbours = np.sum(off[..., 1:] * off[..., :-1], axis=(-2, -1)) / max(runs * (each - 1), 1)
    correlation = np.clip(neighbours / np.where(variance > 0, variance, 1.0), 0.0, MOST_CORRELATION)
    inflation = (1.0 + correlation) / (1.0 - correlation)  # of the variance of a mean, where correlation decays evenly
    return student_t((1.0 + confidence) / 2.0, count - 1) * np.sqrt(inflation * variance / count)


def student_t(share: float, degrees: int) -> float:
    """Quantile of Student's law by Fisher's expansion: within 0.3 % from 4 degrees of freedom on, for 95 % intervals.

    References:
        Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
    )
    return z + sum(term / degrees**power for power, term in enumerate(terms, start=1))
