# SPDX-License-Identifier: Apache-2.0
"""How the load of measured rows was shaped, by the rules of `configs/silicon/mapping.yaml`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aicjax._results import DataError
from aicjax.calibrate.mapping import mapping_file
from aicjax.calibrate.measurements import Floats, Measurements, Strings

_CONDITIONS = ("harness", "source", "backend", "lengths")
_BASES = ("published", "assumed", "measurements")


class LoadShapes(NamedTuple):
    """Shapes of closed loops [row].

    Attributes:
        waves: Requests measured, relative to the concurrency; 0 where nobody says.
        least_share: Lengths are uniform from this share of the nominal ones.
        mean_share: Mean length relative to the nominal one.
    """

    waves: Floats
    least_share: Floats
    mean_share: Floats


@dataclass(frozen=True)
class LoadRule:
    """The shape of the loads that meet all conditions.

    Attributes:
        when: Allowed values by condition: columns of the rows, or `lengths`, `powers_of_two` or `others`.
        waves: Requests measured, relative to the concurrency; None where nobody says.
        least_share: Least length relative to the nominal one.
        mean_share: Mean length relative to the nominal one.
        basis: `published`; `assumed` where the load is not; `measurements` where it was concluded from the times.
        why: What is known of it.
    """

    when: Mapping[str, Sequence[str]]
    waves: float | None
    least_share: float
    mean_share: float
    basis: str
    why: str

    def __post_init__(self):
        if unknown := set(self.when) - set(_CONDITIONS):
            raise DataError(f"mapping.yaml: conditions {sorted(unknown)} of a load are not of {_CONDITIONS}")
        if self.basis not in _BASES:
            raise DataError(f"mapping.yaml: basis {self.basis} of a load is not of {_BASES}")
        if not (self.waves is None or self.waves >= 1) or not 0 < self.least_share <= self.mean_share <= 1:
            raise DataError("mapping.yaml: a load has at least one wave, and shares above 0 and at most 1")


def load_rules() -> tuple[LoadRule, ...]:
    """The rules of loads, in the order in which they are tried."""
    return tuple(LoadRule(**entry) for entry in mapping_file()["loads"])


def load_shapes(rows: Measurements) -> LoadShapes:
    """The shape of each row's load: that of the first rule that matches.

    Raises:
        DataError: No rule matches a row, or a rule breaks the schema.
    """
    shapes = LoadShapes(*np.full((3, len(rows)), np.nan))
    pending = np.ones(len(rows), bool)
    for rule in load_rules():
        chosen = pending.copy()
        for name, allowed in rule.when.items():
            chosen &= np.isin(_lengths(rows) if name == "lengths" else getattr(rows, name), allowed)
        shapes.waves[chosen] = rule.waves or 0.0
        shapes.least_share[chosen] = rule.least_share
        shapes.mean_share[chosen] = rule.mean_share
        pending &= ~chosen
    if pending.any():
        raise DataError(f"mapping.yaml: no load matches row {rows.row[pending][0]}")
    return shapes


def _lengths(rows: Measurements) -> Strings:
    return np.where((rows.isl & (rows.isl - 1)) == 0, "powers_of_two", "others")
