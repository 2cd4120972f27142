# SPDX-License-Identifier: Apache-2.0
"""Operators made of others, resolved when a model is bound."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from aicjax.ops.database import Database
from aicjax.ops.dispatch import expand_dispatch
from aicjax.ops.kinds import kind_of
from aicjax.ops.records import Fallback, MoeDispatch


def chain(database: Database, items: Sequence[Any]) -> tuple[Any, ...]:
    """The operators that run, one after another.

    A fallback is its primary where that was measured, else its chain. An exchange around experts is the collectives
    that it runs, each under its name.
    """
    ops: list[Any] = []
    for item in items:
        if isinstance(item, Fallback):
            ops += chain(database, (item.primary,) if _answers(database, item.primary) else item.fallback)
        elif isinstance(item, MoeDispatch):
            ops += expand_dispatch(item, database.system, database.backend)
        else:
            ops.append(item)
    return tuple(ops)


def _answers(database: Database, primary: Any) -> bool:
    """Whether a primary answers: in `HYBRID` only measurements count, since its chain may be measured; a roofline
    always does.
    """
    if database.mode == "HYBRID":
        database = dataclasses.replace(database, mode="SILICON")
    return database.mode == "SOL" or kind_of(primary).available(database, primary)
