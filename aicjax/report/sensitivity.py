# SPDX-License-Identifier: Apache-2.0
"""Which assumptions move a configuration, as a small table in text or as plain values."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from aicjax.explore.result import Sensitivity

LEAST = 0.01  # what is smaller in all figures is counted, not listed
NOT_MODELLED = "sensitivities: not for attention and feed-forward apart, nor for requests with images"


def lines(found: Sequence[Sensitivity] | None, least: float = LEAST) -> list[str]:
    """The table: the change of each figure in percent for one percent more of an assumption.

    Args:
        found: Sensitivities, most first; None where they are not modelled.
        least: Elasticity below which a row is folded into a count at the end.
    """
    if found is None:
        return [NOT_MODELLED]
    shown = [each for each in found if each.largest >= least]
    names = [f"{each.of} {each.name}".strip() for each in shown]
    width = max(len(name) for name in [*names, _TITLE])
    table = [f"{_TITLE:{width}}  tokens/s/gpu      TTFT      TPOT"]
    for name, each in zip(names, shown, strict=True):
        figures = _percent(each.throughput), _percent(each.ttft), _percent(each.tpot)
        table.append(f"{name:{width}}  {figures[0]:>12}  {figures[1]:>8}  {figures[2]:>8}")
    if folded := len(found) - len(shown):
        verb = "other moves" if folded == 1 else "others move"
        table.append(f"{folded} {verb} each by less than {least:g} %")
    return table


def as_dicts(found: Sequence[Sensitivity] | None) -> list[dict[str, Any]] | None:
    """All sensitivities as plain Python values."""
    return None if found is None else [dataclasses.asdict(each) for each in found]


_TITLE = "for 1 % more of"


def _percent(elasticity: float | None) -> str:
    return "-" if elasticity is None else f"{elasticity + 0.0:+.2f} %"
