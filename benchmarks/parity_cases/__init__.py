# SPDX-License-Identifier: Apache-2.0
"""What is asked of the engine for each file of stored answers, by the file's name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aicjax.models.families import FAMILIES
from benchmarks.parity_cases.afd import afd
from benchmarks.parity_cases.comparison import Comparison
from benchmarks.parity_cases.forward import forward
from benchmarks.parity_cases.memory import memory
from benchmarks.parity_cases.operators import OPERATORS
from benchmarks.parity_cases.searches import RTOL as SEARCH_RTOL
from benchmarks.parity_cases.searches import disagg, end_to_end, feasible_agg
from benchmarks.parity_cases.serving import agg, static
from benchmarks.parity_cases.stored import FAMILY, Conditions, StoredRows
from benchmarks.parity_cases.tables import lane_orders, source_resolution

_MODELLED: dict[str, tuple[str, ...]] = {
    FAMILY: tuple(family.name for family in FAMILIES.values() if family.op_lists is not None)
}


@dataclass(frozen=True)
class Case:
    """How one file is compared.

    Attributes:
        compare: Our answers to its rows beside the stored ones.
        scope: What the engine answers at all; rows beyond count only when a condition names the column.
        rtol: Largest relative error allowed.
    """

    compare: Callable[[StoredRows], Comparison]
    scope: Conditions = field(default_factory=dict)
    rtol: float = 1e-4


CASES: Mapping[str, Case] = {
    **{name: Case(operators) for name, operators in OPERATORS.items()},
    "ops_source_resolution": Case(source_resolution),
    "ops_lane_order": Case(lane_orders),
    "forward": Case(forward, _MODELLED),
    "memory": Case(memory, _MODELLED),
    "static": Case(static, _MODELLED),
    "agg": Case(agg, _MODELLED),
    "disagg": Case(disagg, _MODELLED),
    "afd": Case(afd),
    "e2e": Case(end_to_end, _MODELLED, SEARCH_RTOL),
    "e2e_feasible_agg": Case(feasible_agg, _MODELLED, SEARCH_RTOL),
}
