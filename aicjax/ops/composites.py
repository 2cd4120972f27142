# SPDX-License-Identifier: Apache-2.0
"""Operators made of others, resolved when a model is bound."""

from collections.abc import Sequence
from typing import Any

from aicjax.ops.database import Database
from aicjax.ops.records import Fallback


def chain(database: Database, items: Sequence[Any]) -> tuple[Any, ...]:
    """The operators that run, one after another: a fallback is its primary where that was measured, else its chain."""
    ops: list[Any] = []
    for item in items:
        if isinstance(item, Fallback):
            ops += chain(database, item.fallback)
        else:
            ops.append(item)
    return tuple(ops)
