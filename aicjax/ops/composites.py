# SPDX-License-Identifier: Apache-2.0
"""Operators made of others, resolved when a model is bound."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from aicjax.ops.database import Database
from aicjax.ops.dispatch import expand_dispatch
from aicjax.ops.kinds import kind_of
from aicjax.ops.records import Fallback, MoeDispatch, Overlap

Chain = tuple[Any, ...]


def chains(database: Database, items: Sequence[Any]) -> tuple[Chain, ...]:
    """Chains of operators, each run one after another, of which the longest takes the time of all `items`.

    One chain, unless some of the items overlap. A fallback is its primary where that answers, else its chain. An
    exchange around experts is the collectives that it runs, each under its name.
    """
    found: list[Chain] = [()]
    for item in items:
        found = [chain + more for chain in found for more in _item_chains(database, item)]
    return tuple(found)


def _item_chains(database: Database, item: Any) -> tuple[Chain, ...]:
    if isinstance(item, Overlap):
        return chains(database, item.first) + chains(database, item.second)
    if isinstance(item, Fallback):
        return chains(database, (item.primary,) if _answers(database, item.primary) else item.fallback)
    if isinstance(item, MoeDispatch):
        return (expand_dispatch(item, database.system, database.backend),)
    return ((item,),)


def _answers(database: Database, primary: Any) -> bool:
    """Whether a primary answers. Only where tables interpolate does its chain stand in: measured parts are worth more
    than an estimate of the whole, but where everything is an estimate, or a roofline, nothing is worth more.
    """
    return not database.interpolates or kind_of(primary).available(_measuring(database), primary)


def _measuring(database: Database) -> Database:
    return dataclasses.replace(database, mode="SILICON")
