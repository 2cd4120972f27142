# SPDX-License-Identifier: Apache-2.0
"""Closed-loop constants fitted to measured servers: the most probable ones under a robust loss and a prior.

Engines share no constant, so each is fitted by itself: a nonlinear least-squares problem of some 15 numbers, with two
residuals a row. Numbers of unit prior stand for the constants (`parameters`).
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Float

from aicjax._results import DataError
from aicjax.calibrate.interval import constants_covariance
from aicjax.calibrate.loop_rows import agg_times, disagg_times
from aicjax.calibrate.measurements import Flags, Floats, Ints, Measurements
from aicjax.calibrate.parameters import Loss, Parameter, constants_at
from aicjax.calibrate.step_table import StepTable, StepTimes
from aicjax.constants import LoopConstants, load_constants
from aicjax.explore.request import BACKENDS

GROUP_COLUMNS = ("model_family", "system")  # rows that share these are left out together
TOLERANCE = 1e-4  # of the numbers of unit prior
MOST_STEPS = 100

Vectors = Mapping[str, Floats]
"""Numbers of unit prior by engine [parameter]."""


class Problem(NamedTuple):
    """Rows of one engine: those of in-flight batching, then disaggregated ones.

    Attributes:
        agg, disagg: Step times.
        log_ttft, log_tpot: Logarithms of the measured times [row].
    """

    agg: StepTimes
    disagg: StepTimes
    log_ttft: Floats
    log_tpot: Floats


class Weights(NamedTuple):
    """How much each row counts [row]; 0 for one that takes no part."""

    ttft: Floats
    tpot: Floats

    def take(self, rows: Any) -> "Weights":
        """The chosen rows: a mask or positions."""
        return Weights(self.ttft[rows], self.tpot[rows])


def row_weights(rows: Measurements, part: Flags, loss: Loss, information: float) -> Weights:
    """How much each row counts in a fit to a part of them.

    A group of n rows weighs n^(1 - group_exponent); all rows together weigh their number times `information`. TTFT
    counts nothing where requests waited for a place.
    """
    group = rows.codes(GROUP_COLUMNS)
    size = np.bincount(group, part)[group]
    weight = np.where(part, np.maximum(size, 1.0) ** -loss.group_exponent, 0.0)
    weight *= information * part.sum() / max(weight.sum(), 1e-30)
    return Weights(np.where(rows.queue_saturated, 0.0, weight * loss.ttft_weight), weight)


class Setting(NamedTuple):
    """What does not change within a fit, and is not traced.

    Attributes:
        parameters: What is fitted.
        ttft_tolerance, tpot_tolerance: Log errors from which the loss grows linearly.
    """

    parameters: tuple[Parameter, ...]
    ttft_tolerance: float
    tpot_tolerance: float


class EngineFit(NamedTuple):
    """The fit of one engine; engines with as many rows share their compiled code.

    Attributes:
        setting: What is fitted and how errors count.
        engine: Position of the engine in `BACKENDS`.
        base: Its constants; those that are not fitted stay.
        problem: Its rows.
    """

    setting: Setting
    engine: int
    base: LoopConstants
    problem: Problem

    def solve(self, weights: Weights, start: Floats | None = None) -> Floats:
        """The most probable numbers of unit prior [parameter].

        Raises:
            DataError: The loss has no gradient there.
        """
        first = np.zeros(len(self.setting.parameters)) if start is None else start
        found = np.asarray(_solve(self.setting, jnp.asarray(first, float), (*self[1:], weights)), np.float64)
        if not np.isfinite(self.loss_and_gradient(found, weights)[1]).all():
            raise DataError(
                f"{BACKENDS[self.engine]}: a row has lengths, a load or times for which nothing can be fitted"
            )
        return found

    def log_errors(self, at: Floats) -> tuple[Floats, Floats]:
        """ln(predicted / measured) of TTFT and of TPOT [row]."""
        ttft, tpot = _log_errors(self.setting, jnp.asarray(at, float), *self[1:])
        return np.asarray(ttft, np.float64), np.asarray(tpot, np.float64)

    def log_slopes(self, at: Floats) -> Floats:
        """Slopes of ln(ttft, tpot) by the numbers [row, quantity, parameter]."""
        slopes = _log_slopes(self.setting, jnp.asarray(at, float), *self[1:])
        return np.stack([np.asarray(part, np.float64) for part in slopes], axis=1)

    def loss_and_gradient(self, at: Floats, weights: Weights) -> tuple[float, Floats]:
        """Loss with the prior, and its gradient [parameter]."""
        values, slopes = self._linear(at, weights)
        return float(values @ values / 2.0), slopes.T @ values

    def covariance(self, at: Floats, weights: Weights, group: Ints) -> Floats:
        """Covariance of the numbers at their best [parameter, parameter].

        The inverse curvature around the spread of the groups' gradients: rows of a group err together, and do not count
        as independent. The prior counts as one observation of each number.
        """
        values, slopes = self._linear(at, weights)
        curvature = np.linalg.inv(slopes.T @ slopes)
        of_rows = np.concatenate([group, group])
        scores = np.zeros((int(group.max()) + 1, slopes.shape[1]))
        np.add.at(scores, of_rows, (slopes * values[:, None])[: len(of_rows)])
        return curvature @ (scores.T @ scores + np.eye(slopes.shape[1])) @ curvature

    def _linear(self, at: Floats, weights: Weights) -> tuple[Floats, Floats]:
        values, slopes = _linear(self.setting, jnp.asarray(at, float), (*self[1:], weights))
        return np.asarray(values, np.float64), np.asarray(slopes, np.float64)


def robust(error: Float[Array, " row"], tolerance: float) -> Float[Array, " row"]:
    """A residual half of whose square is the pseudo-Huber loss of an error: linear from about the tolerance on."""
    return error * jnp.sqrt(2.0 / (1.0 + jnp.sqrt(1.0 + (error / tolerance) ** 2)))


@functools.partial(jax.jit, static_argnums=0)
def _log_errors(
    setting: Setting, at: Float[Array, " parameter"], engine: Any, base: LoopConstants, problem: Problem
) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
    constants = constants_at(base, setting.parameters, engine, at)
    agg, disagg = agg_times(problem.agg, constants), disagg_times(problem.disagg, constants)
    ttft, tpot = (jnp.log(jnp.concatenate(times)) for times in zip(agg, disagg, strict=True))
    return ttft - problem.log_ttft, tpot - problem.log_tpot


@functools.partial(jax.jit, static_argnums=0)
def _log_slopes(setting: Setting, at: Float[Array, " parameter"], *known: Any) -> tuple[Array, Array]:
    return jax.jacfwd(functools.partial(_log_errors, setting))(at, *known)


def _residuals(setting: Setting, at: Float[Array, " parameter"], known: Any) -> Float[Array, " residual"]:
    """Residuals of TTFT [row], of TPOT [row] and of the prior [parameter]; half of their squares is the loss."""
    *problem, weights = known
    ttft, tpot = _log_errors(setting, at, *problem)
    of_ttft = jnp.sqrt(weights.ttft) * robust(ttft, setting.ttft_tolerance)
    of_tpot = jnp.sqrt(weights.tpot) * robust(tpot, setting.tpot_tolerance)
    return jnp.concatenate([of_ttft, of_tpot, at])


@functools.partial(jax.jit, static_argnums=0)
def _linear(setting: Setting, at: Float[Array, " parameter"], known: Any) -> tuple[Array, Array]:
    return _residuals(setting, at, known), jax.jacfwd(functools.partial(_residuals, setting))(at, known)


@functools.partial(jax.jit, static_argnums=0)
def _solve(setting: Setting, start: Float[Array, " parameter"], known: Any) -> Float[Array, " parameter"]:
    solver = optimistix.LevenbergMarquardt(rtol=TOLERANCE, atol=TOLERANCE)
    residuals = functools.partial(_residuals, setting)
    return optimistix.least_squares(residuals, solver, start, known, max_steps=MOST_STEPS, throw=False).value


class Fitter:
    """Fits of all engines to measured rows.

    Args:
        rows: Measured servers.
        table: Their step times.
        base: Constants to start from: a name under `configs/constants/`, or the path of a file.
        loss: How errors count.
        parameters: What is fitted.
        left_out: Rows that take part in no fit [row].
    """

    def __init__(
        self,
        rows: Measurements,
        table: StepTable,
        base: str,
        loss: Loss,
        parameters: Sequence[Parameter],
        left_out: Flags | None = None,
    ) -> None:
        self.rows, self.parameters, self.loss = rows, tuple(parameters), loss
        self.group: Ints = rows.codes(GROUP_COLUMNS)
        self.usable: Flags = table.answered if left_out is None else table.answered & ~left_out
        self.places: dict[str, Ints] = {}
        self.engines: dict[str, EngineFit] = {}
        setting = Setting(self.parameters, loss.ttft_tolerance, loss.tpot_tolerance)
        for number, backend in enumerate(BACKENDS):
            own = table.answered & (table.backend == number)
            of_mode = np.flatnonzero(own & table.is_agg), np.flatnonzero(own & ~table.is_agg)
            if not own.any():
                continue
            at = np.concatenate(of_mode)
            agg, disagg = (table.take(chosen).times for chosen in of_mode)
            problem = Problem(agg, disagg, np.log(rows.ttft_ms[at]), np.log(rows.tpot_ms[at]))
            loop = load_constants(backend, base).loop
            self.places[backend], self.engines[backend] = at, EngineFit(setting, number, loop, problem)

    def fit(self, part: Flags, information: float, start: Vectors | None = None) -> Vectors:
        """The most probable numbers by engine, of a part of the usable rows [row]."""
        weights = row_weights(self.rows, part & self.usable, self.loss, information)
        return {
            backend: fit.solve(weights.take(self.places[backend]), None if start is None else start[backend])
            for backend, fit in self.engines.items()
        }

    def predict(self, at: Vectors) -> tuple[Floats, Floats]:
        """TTFT and TPOT [ms] at numbers by engine [row]; NaN without step times."""
        ttft_ms, tpot_ms = np.full((2, len(self.rows)), np.nan)
        for backend, fit in self.engines.items():
            place = self.places[backend]
            ttft, tpot = fit.log_errors(at[backend])
            ttft_ms[place] = np.exp(ttft) * self.rows.ttft_ms[place]
            tpot_ms[place] = np.exp(tpot) * self.rows.tpot_ms[place]
        return ttft_ms, tpot_ms

    def covariance(self, at: Vectors, information: float) -> Mapping[str, Floats]:
        """Covariance of the numbers by engine, of a fit to all usable rows [parameter, parameter]."""
        weights = row_weights(self.rows, self.usable, self.loss, information)
        return {
            backend: fit.covariance(at[backend], weights.take(place), self.group[place])
            for (backend, fit), place in zip(self.engines.items(), self.places.values(), strict=True)
        }

    def constants_part(self, at: Vectors, information: float) -> Floats:
        """Covariance of ln(ttft, tpot) by what a fit to all rows leaves open; 0 without an answer [row, 2, 2]."""
        found = np.zeros((len(self.rows), 2, 2))
        for backend, covariance in self.covariance(at, information).items():
            place = self.places[backend]
            found[place] = constants_covariance(self.engines[backend].log_slopes(at[backend]), covariance)
        return found

    @property
    def prior(self) -> Vectors:
        """The numbers of the prior, by engine."""
        return {backend: np.zeros(len(self.parameters)) for backend in self.engines}
