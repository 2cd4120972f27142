# SPDX-License-Identifier: Apache-2.0
"""Levels of groups and of curves: factors between predicted and measured times, given some measurements.

A curve is one configuration over its loads, a group one model on one system and backend. Rows of a curve share a level,
and curves of a group share another, for TTFT and TPOT together:

    ln(measured / predicted) = level of the group + level of the curve + noise          pairs (ttft, tpot)

Levels are normal around 0. Noise is Student's t, so that one odd row does not move a level. Host arrays in float64: a
few thousand rows, solved in closed form.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicjax.calibrate.measurements import Flags, Floats, Ints

DEGREES_OF_FREEDOM = 4.0  # of the noise
QUANTITIES = ("ttft", "tpot")


class Nesting(NamedTuple):
    """Which rows share which levels.

    Attributes:
        curve: Curve of each row [row].
        group: Group of each curve [curve].
        kind: Kind of each group: those of one kind share their variances [group].
    """

    curve: Ints
    group: Ints
    kind: Ints

    @property
    def curve_kind(self) -> Ints:
        """Kind of each curve [curve]."""
        return self.kind[self.group]

    @property
    def row_kind(self) -> Ints:
        """Kind of each row [row]."""
        return self.curve_kind[self.curve]


class Residuals(NamedTuple):
    """What measurements say about levels.

    Attributes:
        log_ratio: ln(measured / predicted) of TTFT and TPOT [row, 2]; any number where not usable.
        usable: Which of them are known [row, 2].
        weight: Independent measurements that a row counts for: half for each of two repeats [row].
    """

    log_ratio: Floats
    usable: Flags
    weight: Floats

    def take(self, rows: NDArray[Any]) -> "Residuals":
        """The chosen rows: a mask or positions."""
        return Residuals(self.log_ratio[rows], self.usable[rows], self.weight[rows])


class Components(NamedTuple):
    """Covariances of (ttft, tpot) by kind [kind, 2, 2].

    Attributes:
        group: Of the levels of groups.
        curve: Of the levels of curves.
        noise: Scale matrix of the noise.
    """

    group: Floats
    curve: Floats
    noise: Floats


class Posterior(NamedTuple):
    """Levels given the measurements.

    Attributes:
        group, group_cov: Mean and covariance of the levels of groups [group, 2(, 2)].
        curve, curve_cov: The same of the levels of curves [curve, 2(, 2)].
        total, total_cov: The same of the sum of both, which the rows of a curve have [curve, 2(, 2)].
    """

    group: Floats
    group_cov: Floats
    curve: Floats
    curve_cov: Floats
    total: Floats
    total_cov: Floats


def posterior(
    residuals: Residuals, nesting: Nesting, components: Components, *, rounds: int = 8, odd_curves: bool = False
) -> Posterior:
    """Levels given measurements; without any the prior: means 0, covariances those of the components.

    Args:
        residuals: The measurements.
        nesting: Which rows share which levels.
        components: Variances by kind.
        rounds: Times that rows are weighed anew by how far they lie off.
        odd_curves: Whether levels of curves are Student's t too, so that a measurement far off is its curve's level.
    """
    count, hold = np.ones(len(residuals.weight)), np.ones(len(nesting.group))
    for _ in range(rounds):
        found = _gaussian(residuals, nesting, components, count, hold)
        count = outlier_weight(residuals, nesting, components, found)
        hold = _curve_weight(nesting, components, found) if odd_curves else hold
    return _gaussian(residuals, nesting, components, count, hold)


def noise_precision(noise: Floats, usable: Flags) -> Floats:
    """Inverse of the noise of what is usable, zero elsewhere [row, 2, 2].

    Args:
        noise: Covariance of each row [row, 2, 2].
        usable: What is known [row, 2].
    """
    pair = usable[:, :, None] & usable[:, None, :]
    identity = np.eye(2, dtype=bool)
    filled = np.where(pair, noise, np.where(identity, 1.0, 0.0))
    return np.where(pair, np.linalg.inv(filled), 0.0)


def outlier_weight(residuals: Residuals, nesting: Nesting, components: Components, found: Posterior) -> Floats:
    """How much each row counts under Student's t: near 1, and little far from its curve [row]."""
    precision = noise_precision(components.noise[nesting.row_kind], residuals.usable)
    rest, spread = remainder(residuals, nesting, found)
    distance = np.einsum("ri,rij,rj->r", rest, precision, rest) + np.einsum("rij,rji->r", precision, spread)
    known = residuals.usable.sum(1)
    return (DEGREES_OF_FREEDOM + known) / (DEGREES_OF_FREEDOM + distance)


def remainder(residuals: Residuals, nesting: Nesting, found: Posterior) -> tuple[Floats, Floats]:
    """What levels leave of the residuals, 0 where not usable [row, 2], and its covariance by theirs [row, 2, 2]."""
    left = residuals.log_ratio - found.total[nesting.curve]
    return np.where(residuals.usable, left, 0.0), found.total_cov[nesting.curve]


def _curve_weight(nesting: Nesting, components: Components, found: Posterior) -> Floats:
    """How closely each curve is held to its group under Student's t: near 1, and little far from it [curve]."""
    precision = np.linalg.inv(components.curve[nesting.curve_kind])
    square = found.curve[:, :, None] * found.curve[:, None, :] + found.curve_cov
    distance = np.einsum("cij,cji->c", precision, square)
    return (DEGREES_OF_FREEDOM + len(QUANTITIES)) / (DEGREES_OF_FREEDOM + distance)


def _gaussian(residuals: Residuals, nesting: Nesting, components: Components, count: Floats, hold: Floats) -> Posterior:
    """Levels for normal noise and curves whose precisions are multiplied by `count` [row] and `hold` [curve]."""
    precision = noise_precision(components.noise[nesting.row_kind], residuals.usable)
    precision = precision * (residuals.weight * count)[:, None, None]
    known = np.where(residuals.usable, residuals.log_ratio, 0.0)
    curves, groups = len(nesting.group), len(nesting.kind)
    evidence, pull = _sums(precision, nesting.curve, curves), _sums(_times(precision, known), nesting.curve, curves)

    unit: Floats = np.eye(len(QUANTITIES))
    curve_prior, group_prior = (
        components.curve[nesting.curve_kind] / hold[:, None, None],
        components.group[nesting.kind],
    )
    damped = np.linalg.inv(unit + evidence @ curve_prior)  # of a curve's evidence on its group
    group_evidence = _sums(damped @ evidence, nesting.group, groups)
    group_pull = _sums(_times(damped, pull), nesting.group, groups)
    group_cov = _symmetric(group_prior @ np.linalg.inv(unit + group_evidence @ group_prior))
    group = _times(group_cov, group_pull)

    own_cov = _symmetric(curve_prior @ damped)
    curve = _times(own_cov, pull - _times(evidence, group[nesting.group]))
    of_group = group_cov[nesting.group]
    shift = own_cov @ evidence  # how far a curve's level gives way to its group's
    kept: Floats = unit - shift
    curve_cov = own_cov + shift @ of_group @ np.swapaxes(shift, 1, 2)
    total_cov = own_cov + kept @ of_group @ np.swapaxes(kept, 1, 2)
    return Posterior(group, group_cov, curve, curve_cov, group[nesting.group] + curve, total_cov)


def _sums(values: NDArray[Any], of: Ints, count: int) -> Floats:
    """Sums of the rows of each number `of`."""
    total = np.zeros((count, *values.shape[1:]))
    np.add.at(total, of, values)
    return total


def _times(matrix: NDArray[Any], vector: Floats) -> Floats:
    return np.einsum("...ij,...j->...i", matrix, vector)


def _symmetric(matrix: NDArray[Any]) -> Floats:
    return (matrix + np.swapaxes(matrix, -1, -2)) / 2
