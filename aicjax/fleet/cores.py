# SPDX-License-Identifier: Apache-2.0
"""Rows of a batch shared out among the cores of this machine."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np


def over_cores(function: Callable[..., Any], rows: Sequence[Any], at_once: int) -> Any:
    """`function(*rows)` in groups of rows, each core taking the next group that is left.

    A compiled function holds no lock of Python, so that threads suffice. Every group has `at_once` rows, the last one
    filled up by copies of its last row, so that one program serves all.

    Args:
        function: A compiled function of pytrees with a leading row axis; answers with one.
        rows: Its arguments for all rows.
        at_once: Rows of a group.

    Returns:
        The answers in the order of the rows, as numpy arrays.
    """
    count = len(jax.tree.leaves(rows)[0])

    def group(first: int) -> Any:
        taken = np.minimum(np.arange(first, first + at_once), count - 1)
        answers = function(*jax.tree.map(lambda leaf: leaf[taken], rows))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: count - first], answers)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        groups = list(pool.map(group, range(0, count, at_once)))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *groups)
