# SPDX-License-Identifier: Apache-2.0
"""What an engine step spends on each operator, for the points that are reported."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aicjax._results import Provenance
from aicjax.forward.bound import StepCurves
from aicjax.serving.coordinates import Places


@dataclass(frozen=True)
class StepTimes:
    """One engine step.

    Attributes:
        step: Which step: `prefill`, `mixed step` or `decode step`, with the role in front for a replica.
        names: Operators.
        latency_ms: Time of each, all its layers [ms].
        provenance: How each was obtained.
    """

    step: str
    names: tuple[str, ...]
    latency_ms: tuple[float, ...]
    provenance: tuple[Provenance, ...]

    @property
    def total_ms(self) -> float:
        """Time of the step [ms]."""
        return sum(self.latency_ms)


class StepPart(NamedTuple):
    """One part of a step.

    Attributes:
        places: Where its values lie.
        position: Which of the coordinates asked for, flat.
        share: Factor on its time.
    """

    places: Places
    position: int = 0
    share: float = 1.0


def step_times(step: str, curves: StepCurves, config: int, parts: Sequence[StepPart]) -> StepTimes:
    """Operators of a step of one layout (position on the config axis), part by part."""
    names: list[str] = []
    latency_ms: list[float] = []
    provenance: list[Provenance] = []
    for part in parts:
        point = part.places.start + int(part.places.inverse.ravel()[part.position])
        breakdown = curves.breakdown(part.places.part, config, point)
        names += breakdown.names
        latency_ms += [float(value) * part.share for value in breakdown.latency_ms]
        provenance += [Provenance(int(code)) for code in breakdown.provenance]
    return StepTimes(step, tuple(names), tuple(latency_ms), tuple(provenance))
