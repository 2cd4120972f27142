# SPDX-License-Identifier: Apache-2.0
"""How far times of unseen servers are from predictions: variances by level, learned from residuals."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from aicjax.calibrate.levels import (
    QUANTITIES,
    Components,
    Nesting,
    Posterior,
    Residuals,
    outlier_weight,
    posterior,
    remainder,
)
from aicjax.calibrate.measurements import Flags, Floats, Ints

START = 0.02  # variance to begin with [1]
PRIOR_GROUPS, PRIOR_CURVES, PRIOR_ROWS = 4.0, 8.0, 30.0  # what the variances of all kinds count for in each kind
WIDEST = 4.0  # robust deviations from the median beyond which a residual is taken for the limit
ROBUST_DEVIATION = 1.4826  # standard deviation of a normal variable, by its median absolute deviation
TAILS = (0.1, 0.9)
NORMAL = np.array([-1.2816, 1.2816])  # the same quantiles of a normal variable
ROUNDS = 30  # of the maximisation


class Spread(NamedTuple):
    """What is known of the errors of unseen servers, by kind.

    Attributes:
        components: Variances of the levels and of the noise.
        tails: 10 % and 90 % quantile of residuals, relative to their standard deviation [quantity, 2].
        anchored_tails: The same where one load of each curve is known, of the other loads.
        constants: What of the variance is due to constants that the fit left open, mean by kind [kind, 2, 2].
        kinds: Name of each kind, as `trtllm/agg`.
    """

    components: Components
    tails: Floats
    anchored_tails: Floats
    constants: Floats
    kinds: tuple[str, ...]


def spread(
    residuals: Residuals,
    nesting: Nesting,
    kinds: Sequence[str],
    anchors: Flags,
    constants: Floats | None = None,
    *,
    rounds: int = ROUNDS,
) -> Spread:
    """Variances and tails of the residuals of a grouped cross-validation.

    Args:
        residuals: Of predictions by constants that were fitted without the row's group.
        nesting: Which rows share which levels.
        kinds: Name of each kind.
        anchors: One load of each curve, known for the anchored tails [row, quantity].
        constants: Covariance of each row by what the fit left open [row, 2, 2]; none by default.
        rounds: Rounds of the maximisation.
    """
    found = components(limited(residuals, nesting, len(kinds)), nesting, len(kinds), rounds=rounds)
    nothing = np.zeros_like(anchors)
    known = tails(residuals, nesting, found, anchors, residuals.usable & ~anchors)
    usual = tails(residuals, nesting, found, nothing, residuals.usable)
    open_part = np.zeros_like(found.noise)
    if constants is not None:
        np.add.at(open_part, nesting.row_kind, constants)
        open_part /= np.maximum(np.bincount(nesting.row_kind, minlength=len(kinds)), 1)[:, None, None]
    return Spread(found, usual, known, open_part, tuple(kinds))


def limited(residuals: Residuals, nesting: Nesting, kinds: int) -> Residuals:
    """The same residuals, none of them farther than `WIDEST` robust deviations from the median of its kind."""
    ratio = residuals.log_ratio.copy()
    for kind in range(kinds):
        for quantity in range(len(QUANTITIES)):
            at = (nesting.row_kind == kind) & residuals.usable[:, quantity]
            if at.any():
                middle = np.median(ratio[at, quantity])
                reach = WIDEST * ROBUST_DEVIATION * np.median(np.abs(ratio[at, quantity] - middle))
                ratio[at, quantity] = np.clip(ratio[at, quantity], middle - reach, middle + reach)
    return residuals._replace(log_ratio=ratio)


def components(residuals: Residuals, nesting: Nesting, kinds: int, *, rounds: int = ROUNDS) -> Components:
    """Variances of groups, of curves and of noise by kind, drawn to those of all kinds where a kind has little data.

    Expectation maximisation: levels given variances, variances given levels. Means are 0, so a bias counts as spread.
    """
    start = np.broadcast_to(np.eye(len(QUANTITIES)) * START, (kinds, len(QUANTITIES), len(QUANTITIES)))
    found = Components(start, start, start)
    for _ in range(rounds):
        level = posterior(residuals, nesting, found, rounds=1)
        found = Components(
            _mean_square(level.group, level.group_cov, nesting.kind, kinds, PRIOR_GROUPS),
            _mean_square(level.curve, level.curve_cov, nesting.curve_kind, kinds, PRIOR_CURVES),
            _noise(residuals, nesting, found, level, kinds),
        )
    return found


def left_over(residuals: Residuals, nesting: Nesting, found: Components, known: Flags) -> tuple[Floats, Floats]:
    """Levels of rows given some of them [row, 2], and the covariance of the errors that are left [row, 2, 2].

    A measurement far off may be its curve's level or an odd row. Both explanations are tried, and the lower level is
    taken: a time predicted too long is off by more percent than one predicted too short.

    Args:
        residuals: Of all rows.
        nesting: Which rows share which levels.
        found: Variances.
        known: Which times of which rows are known [row, quantity].
    """
    measured = residuals._replace(usable=residuals.usable & known)
    level, odd = (posterior(measured, nesting, found, odd_curves=odd_curves) for odd_curves in (False, True))
    left = level.total_cov[nesting.curve] + found.noise[nesting.row_kind]
    return np.minimum(level.total, odd.total)[nesting.curve], left


def tails(residuals: Residuals, nesting: Nesting, found: Components, known: Flags, counted: Flags) -> Floats:
    """Quantiles `TAILS` of errors relative to their standard deviation, over all kinds [quantity, tail].

    Normal deviates would give -1.28 and 1.28; heavier tails with the same variance give less.

    Args:
        residuals: Of all rows.
        nesting: Which rows share which levels.
        found: Variances.
        known: Which times of which rows are known [row, quantity].
        counted: Which times to take the quantiles of [row, quantity].
    """
    level, left = left_over(residuals, nesting, found, known)
    relative = (residuals.log_ratio - level) / np.sqrt(np.diagonal(left, axis1=1, axis2=2))
    return np.array(
        [
            weighted_quantiles(relative[which, quantity], residuals.weight[which], TAILS) if which.any() else NORMAL
            for quantity, which in enumerate(counted.T)
        ]
    )


def of_kinds(found: Spread, kinds: Sequence[str]) -> Components:
    """Variances of the named kinds; of one that was not measured the mean of all [kind, 2, 2]."""
    return Components(*(_of_kinds(values, found, kinds) for values in found.components))


def constants_of_kinds(found: Spread, kinds: Sequence[str]) -> Floats:
    """The part of constants in the variances of the named kinds, in the same way [kind, 2, 2]."""
    return _of_kinds(found.constants, found, kinds)


def _of_kinds(values: Floats, found: Spread, kinds: Sequence[str]) -> Floats:
    at = [found.kinds.index(kind) if kind in found.kinds else -1 for kind in kinds]
    return np.concatenate([values, values.mean(0, keepdims=True)])[at]


def weighted_quantiles(values: Floats, weight: Floats, shares: Sequence[float]) -> Floats:
    """Quantiles of values that count by weight, linear between them."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order]) - weight[order] / 2
    return np.interp(shares, below / weight.sum(), values[order])


def as_plain(found: Spread) -> dict[str, Any]:
    """The spread as it is stored in a constants file."""
    parts = {**found.components._asdict(), "constants": found.constants}
    return {
        **{
            which: {name: _rounded(pair) for name, pair in zip(QUANTITIES, getattr(found, which), strict=True)}
            for which in _TAILS
        },
        "kinds": {
            kind: {name: _rounded(values[number]) for name, values in parts.items()}
            for number, kind in enumerate(found.kinds)
        },
    }


def from_plain(stored: dict[str, Any]) -> Spread:
    """The spread that a constants file holds."""
    kinds = stored["kinds"]
    names = (*Components._fields, "constants")
    parts = {name: np.array([kind[name] for kind in kinds.values()], float) for name in names}
    constants = parts.pop("constants")
    usual, anchored = (np.array([stored[which][name] for name in QUANTITIES]) for which in _TAILS)
    return Spread(Components(**parts), usual, anchored, constants, tuple(kinds))


_TAILS = ("tails", "anchored_tails")


def _rounded(values: Floats) -> list[Any]:
    return np.round(values, 5).tolist()


def _mean_square(mean: Floats, cov: Floats, kind: Ints, kinds: int, prior: float) -> Floats:
    square = mean[:, :, None] * mean[:, None, :] + cov
    total = np.zeros((kinds, *square.shape[1:]))
    np.add.at(total, kind, square)
    count = np.bincount(kind, minlength=kinds)[:, None, None]
    return (total + prior * square.mean(0)) / (count + prior)


def _noise(residuals: Residuals, nesting: Nesting, now: Components, level: Posterior, kinds: int) -> Floats:
    """Scale matrix of the noise; rows of which one time is unknown count for the variance of the other alone."""
    rest, uncertain = remainder(residuals, nesting, level)
    weight = residuals.weight * outlier_weight(residuals, nesting, now, level)
    pair: Flags = residuals.usable[:, :, None] & residuals.usable[:, None, :]
    square = np.where(pair, weight[:, None, None] * (rest[:, :, None] * rest[:, None, :] + uncertain), 0.0)
    total, count = np.zeros((2, kinds, len(QUANTITIES), len(QUANTITIES)))
    np.add.at(total, nesting.row_kind, square)
    np.add.at(count, nesting.row_kind, pair * residuals.weight[:, None, None])
    overall = total.sum(0) / np.maximum(count.sum(0), 1.0)
    return (total + PRIOR_ROWS * overall) / (count + PRIOR_ROWS)
