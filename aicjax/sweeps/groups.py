# SPDX-License-Identifier: Apache-2.0
"""The groups that a sweep answers apart: the distinct values of the axes that it groups by."""

from collections.abc import Callable, Mapping

from aicjax.sweeps.cases import Case, Cases
from aicjax.sweeps.spec import SweepSpec

GroupName = tuple[tuple[str, str | float | None], ...]


class Groups:
    """Groups in the order of their first case.

    Attributes:
        names: Axis and value, for each group.
        of_case: Group of each case, by its first point.
    """

    def __init__(self, spec: SweepSpec, cases: Cases):
        places: dict[GroupName, int] = {}
        self.of_case: dict[int, int] = {}
        for case in cases.cases:
            name = tuple((axis, _AXES[axis](cases, case)) for axis in spec.group_by)
            self.of_case[case.first_point] = places.setdefault(name, len(places))
        self.names = tuple(places)


def _formats(cases: Cases, case: Case) -> str:
    return " ".join(f"{part}={mode}" for part, mode in cases.engines[case.engine].name.formats) or "inferred"


def _version(cases: Cases, case: Case) -> str:
    return next(iter(cases.engines[case.engine].workers.values())).deployment.version


_AXES: Mapping[str, Callable[[Cases, Case], str | float | None]] = {
    "model": lambda cases, case: cases.engines[case.engine].name.model,
    "system": lambda cases, case: cases.engines[case.engine].name.system,
    "backend": lambda cases, case: cases.engines[case.engine].name.backend,
    "version": _version,
    "formats": _formats,
    "workload": lambda cases, case: case.workload.label,
    "memory_fraction": lambda cases, case: case.memory_fraction,
}
