# SPDX-License-Identifier: Apache-2.0
"""What a fit to measured servers found, in text or as plain values: its constants, and errors before and after."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aicjax.report.table import optional

if TYPE_CHECKING:
    from aicjax.calibrate.calibration import Calibration

_QUANTITIES = ("ttft", "tpot", "throughput")


def lines(found: "Calibration") -> list[str]:
    """Errors at each stage, then the constants by engine."""
    fitter = found.fitter
    text = [
        f"{int(fitter.usable.sum())} of {len(fitter.rows)} rows fitted, weight {found.information:g} against the prior",
        f"{'mean / median error in %, bias':32}"
        + "".join(f"{name.upper():>22}" for name in _QUANTITIES)
        + f"{'tau':>8}",
    ]
    for stage, scores in found.scores.items():
        tau = optional(scores["tau"], ".3f")
        text.append(f"{stage:32}" + "".join(f"{_error(scores[name]):>22}" for name in _QUANTITIES) + f"{tau:>8}")
    text += ["", f"{'constant':32}" + "".join(f"{backend:>12}" for backend in found.vectors)]
    for name, values in fitted(found).items():
        text.append(f"{name:32}" + "".join(f"{value:12.4g}" for value in values.values()))
    return text


def as_dict(found: "Calibration") -> dict[str, Any]:
    """The same as plain Python values."""
    return {
        "rows": len(found.fitter.rows),
        "fitted_rows": int(found.fitter.usable.sum()),
        "information": found.information,
        "scores": {stage: dict(scores) for stage, scores in found.scores.items()},
        "constants": fitted(found),
    }


def fitted(found: "Calibration") -> dict[str, dict[str, float]]:
    """Fitted constants by name and engine."""
    from aicjax.explore.request import BACKENDS

    return {
        parameter.name: {
            backend: float(parameter.value(BACKENDS.index(backend), vector[number]))
            for backend, vector in found.vectors.items()
        }
        for number, parameter in enumerate(found.fitter.parameters)
    }


def _error(scores: Mapping[str, Any]) -> str:
    if scores["mape"] is None:
        return "-"
    return f"{scores['mape']:.1f} / {scores['median']:.1f} {scores['bias']:+.2f}"
