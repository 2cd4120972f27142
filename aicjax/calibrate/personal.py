# SPDX-License-Identifier: Apache-2.0
"""Levels of a user's own servers: a few measurements to a constants file of their own, and what it gains.

The file states a base and one level for each model on each system and backend that was measured, with what is still
unknown of it. Searches with that file multiply their times by the level.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import yaml

from aicjax._results import InputError
from aicjax.calibrate import score
from aicjax.calibrate.anchor import Corpus
from aicjax.calibrate.levels import Components, posterior
from aicjax.calibrate.measurements import Floats, Measurements
from aicjax.calibrate.spread import Spread, from_plain, of_kinds
from aicjax.constants import Level, fitted

GROUP = ("model_path", "system", "backend")


class Personal(NamedTuple):
    """What a user's measurements say.

    Attributes:
        levels: Level by (model, system, backend).
        measured: Number of measurements of each.
        before, after: Scores of the predictions without the levels, and with those that the other measurements give.
    """

    levels: Mapping[tuple[str, str, str], Level]
    measured: Mapping[tuple[str, str, str], int]
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def personal_levels(rows: Measurements, ttft_ms: Floats, tpot_ms: Floats, found: Spread) -> Personal:
    """Levels of a user's servers, and their leave-one-out error.

    Args:
        rows: The measurements.
        ttft_ms, tpot_ms: Predictions without levels [row].
        found: Errors of unseen servers.
    """
    corpus = Corpus.of(rows, ttft_ms, tpot_ms, GROUP)
    components = of_kinds(found, corpus.kinds)
    everything = posterior(corpus.residuals, corpus.nesting, components)
    group = corpus.nesting.group[corpus.nesting.curve]
    levels, measured = {}, {}
    for number, first in zip(*np.unique(group, return_index=True), strict=True):
        key = tuple(str(getattr(rows, name)[first]) for name in GROUP)
        factors = np.exp(everything.group[number])
        levels[key] = Level(float(factors[0]), float(factors[1]), _pairs(everything.group_cov[number]))
        measured[key] = int((group == number).sum())
    left_out = _left_out(corpus, components)
    after = ttft_ms * np.exp(left_out[:, 0]), tpot_ms * np.exp(left_out[:, 1])
    return Personal(levels, measured, score.score(rows, ttft_ms, tpot_ms), score.score(rows, *after))


def spread_in_force(constants: str) -> Spread:
    """How far unseen servers were from the predictions of some constants.

    Raises:
        InputError: The constants were not fitted to measured servers.
    """
    stored = fitted(constants).get("spread")
    if stored is None:
        raise InputError("constants", constants, "a set that was fitted to measured servers")
    return from_plain(stored)


def as_yaml(found: Personal, base: str) -> str:
    """The constants file of the levels."""
    entries = [
        {
            **dict(zip(("model", "system", "backend"), key, strict=True)),
            "measurements": found.measured[key],
            "ttft_level": round(level.ttft_level, 4),
            "tpot_level": round(level.tpot_level, 4),
            "log_covariance": [[round(value, 5) for value in row] for row in level.log_covariance],
        }
        for key, level in found.levels.items()
    ]
    head = "# Levels of one's own servers, by `aicjax calibrate --anchor`: factors on TTFT and TPOT.\n"
    return head + yaml.safe_dump({"base": base, "levels": entries}, sort_keys=False, default_flow_style=None)


def _left_out(corpus: Corpus, components: Components) -> Floats:
    """Level of each row by the measurements of the others [row, quantity]."""
    rows = np.arange(len(corpus.residuals.weight))
    usable = corpus.residuals.usable
    return np.array(
        [
            posterior(
                corpus.residuals._replace(usable=usable & (rows != row)[:, None]), corpus.nesting, components
            ).total[corpus.nesting.curve[row]]
            for row in rows
        ]
    )


def _pairs(covariance: Floats) -> tuple[tuple[float, float], tuple[float, float]]:
    (a, b), (c, d) = covariance.tolist()
    return (a, b), (c, d)
