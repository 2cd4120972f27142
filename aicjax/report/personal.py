# SPDX-License-Identifier: Apache-2.0
"""What one's own measurements say, in text or as plain values: levels, and errors before and after."""

import math
from typing import TYPE_CHECKING, Any

from aicjax.report.table import optional

if TYPE_CHECKING:
    from aicjax.calibrate.personal import Personal

_EIGHT_OF_TEN = 1.2816  # standard deviations on either side that hold eight of ten values
_QUANTITIES = ("ttft", "tpot")


def lines(found: "Personal") -> list[str]:
    """The levels with their ranges, and the errors without them and with those of the other measurements."""
    text = []
    for (model, system, backend), level in found.levels.items():
        factors = zip(_QUANTITIES, (level.ttft_level, level.tpot_level), strict=True)
        said = ", ".join(
            f"{name.upper()} x {factor:.2f} ({_ends(factor, level.log_covariance[at][at])})"
            for at, (name, factor) in enumerate(factors)
        )
        text.append(f"{model} on {system}, {backend}, {found.measured[model, system, backend]} measured: {said}")
    for name in _QUANTITIES:
        before, after = (
            f"{optional(s[name]['mape'], '.1f')} / {optional(s[name]['median'], '.1f')}"
            for s in (found.before, found.after)
        )
        text.append(f"error of {name.upper()}, mean / median in %: {before} before, {after} by the other measurements")
    return text


def as_dict(found: "Personal") -> dict[str, Any]:
    """The same as plain Python values."""
    levels = [
        {
            **dict(zip(("model", "system", "backend"), key, strict=True)),
            "measurements": found.measured[key],
            **level._asdict(),
        }
        for key, level in found.levels.items()
    ]
    return {"levels": levels, "before": dict(found.before), "after": dict(found.after)}


def _ends(factor: float, variance: float) -> str:
    reach = math.exp(_EIGHT_OF_TEN * math.sqrt(variance))
    return f"{factor / reach:.2f} - {factor * reach:.2f}"
