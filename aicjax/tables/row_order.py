# SPDX-License-Identifier: Apache-2.0
"""The order in which rows are stored: small to compress, and every "first one met" rule still gives the same answer."""

from collections.abc import Sequence

import numpy as np

from aicjax.tables.schema import Order, Winner


def key_ids(columns: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Number of the distinct key of each row, int64 [row]; equal numbers, equal keys. Numbers say nothing of order.

    Args:
        columns: Parts of the key, integers or floats [row] each; without any, all rows are alike.
        rows: Number of rows.
    """
    ids, size = np.zeros(rows, np.int64), 1
    for column in columns:
        words, codes = np.unique(column, return_inverse=True)
        if size * len(words) >= 2**63:
            distinct, ids = np.unique(ids, return_inverse=True)
            size = len(distinct)
        ids, size = ids * len(words) + codes, size * len(words)
    return ids


def first_met(ids: np.ndarray) -> np.ndarray:
    """Place of each row's value among the distinct values, in the order in which they are first met, int64 [row]."""
    _, first, codes = np.unique(ids, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[codes]


def kept_rows(identity: np.ndarray, winner: Winner) -> np.ndarray:
    """Rows that remain, one of each identity, ascending, int64 [kept]."""
    if winner is Winner.LAST:
        backward = np.unique(identity[::-1], return_index=True)[1]
        return np.sort(len(identity) - 1 - backward)
    return np.sort(np.unique(identity, return_index=True)[1])


def grouped_order(texts: Sequence[np.ndarray], counts: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Rows by their texts together, as first met, then ascending by their counts; ties keep their order, int64 [row].

    The texts are first met in the same order as before, alone and in any combination.
    """
    return np.lexsort((*reversed(counts), first_met(key_ids(texts, rows))))


def walk_order(levels: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Rows of a nested walk: each level's values as first met within the levels above; ties keep their order.

    A walk over the result meets everything in the order in which it met it before; so does a walk over several
    files one after the other, since each level is first met in the first file that has it.
    """
    prefix, ranks = np.zeros(rows, np.int64), []
    for level in levels:
        prefix = first_met(key_ids((prefix, level), rows))
        ranks.append(prefix)
    return np.lexsort(ranks[::-1])


def keeps_winners(order: np.ndarray, key: np.ndarray) -> bool:
    """Whether rows with the same key stand in the order in which they stood before."""
    moved = order[np.argsort(key[order], kind="stable")]
    same = key[moved[1:]] == key[moved[:-1]]
    return bool(np.all(moved[1:][same] > moved[:-1][same]))


def storage_order(
    wanted: Order,
    key: np.ndarray,
    texts: Sequence[np.ndarray],
    counts: Sequence[np.ndarray],
    levels: Sequence[np.ndarray],
) -> tuple[Order, np.ndarray]:
    """The order to store rows in, and which rows those are.

    Args:
        wanted: What the table's schema asks for.
        key: Number of the key of each row, int64 [row].
        texts: Columns of text, as numbers [row] each.
        counts: Other columns that identify a measurement [row] each, the outermost first.
        levels: Columns of the key as numbers [row] each, the outermost first.

    Returns:
        The order taken, `SOURCE` where grouping would make another row the winner of a key, and the rows, int64 [row].
    """
    rows = len(key)
    if wanted is Order.WALK:
        return wanted, walk_order(levels, rows)
    order = grouped_order(texts, counts, rows)
    if keeps_winners(order, key):
        return Order.GROUPED, order
    return Order.SOURCE, np.arange(rows)
