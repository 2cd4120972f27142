# SPDX-License-Identifier: Apache-2.0
"""The order of stored rows answers every "first one met" question as the published order does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax.tables.row_order import (
    first_met,
    grouped_order,
    keeps_winners,
    kept_rows,
    key_ids,
    storage_order,
    walk_order,
)
from aicjax.tables.schema import Order, Winner

CODE = st.integers(0, 3)
TABLE = st.lists(st.tuples(CODE, CODE, CODE), min_size=1, max_size=24)


def nested_walk(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Distinct rows as three nested loops meet them, each over the values first met within the ones around it."""
    met: dict[int, dict[int, dict[int, None]]] = {}
    for first, second, third in rows:
        met.setdefault(first, {}).setdefault(second, {})[third] = None
    return [(first, second, third) for first in met for second in met[first] for third in met[first][second]]


def first_come(rows: list) -> list:
    return list(dict.fromkeys(rows))


def _columns(rows: list[tuple[int, ...]]) -> list[np.ndarray]:
    return [np.array(column) for column in zip(*rows, strict=True)]


@given(st.lists(TABLE, min_size=1, max_size=3))
def test_walk_over_stored_files_is_the_walk_over_published_files(files: list[list[tuple[int, ...]]]):
    published = [row for rows in files for row in rows]
    stored = [rows[i] for rows in files for i in walk_order(_columns(rows), len(rows))]
    assert nested_walk(stored) == nested_walk(published)


@given(TABLE)
def test_walk_order_keeps_the_order_of_equal_rows(rows: list[tuple[int, ...]]):
    assert keeps_winners(walk_order(_columns(rows), len(rows)), key_ids(_columns(rows), len(rows)))


@given(st.lists(TABLE, min_size=1, max_size=3), st.sets(CODE))
def test_grouped_texts_are_met_in_the_published_order(files: list[list[tuple[int, ...]]], admitted: set[int]):
    """Text is the first two columns; also after a filter on one of them, and over several files."""
    published = [row for rows in files for row in rows]
    stored = []
    for rows in files:
        first, second, count = _columns(rows)
        stored += [rows[i] for i in grouped_order([first, second], [count], len(rows))]
    for part in (lambda row: row[0], lambda row: row[1], lambda row: row[:2], lambda row: row[0] % 2):
        for keep in (lambda row: True, lambda row: row[1] in admitted):
            assert first_come([part(r) for r in stored if keep(r)]) == first_come(
                [part(r) for r in published if keep(r)]
            )


@given(TABLE)
def test_winner_of_every_key_stays(rows: list[tuple[int, ...]]):
    """The key is the first and the last column; the middle one is a text that does not select."""
    first, merged, count = _columns(rows)
    key = key_ids([first, count], len(rows))
    taken, order = storage_order(Order.GROUPED, key, [first, merged], [count], [first, count])
    assert sorted(order) == list(range(len(rows)))
    assert taken is Order.GROUPED or list(order) == list(range(len(rows)))
    for reverse in (1, -1):
        stored = {(rows[i][0], rows[i][2]): int(i) for i in order[::reverse][::-1]}
        published = {(row[0], row[2]): i for i, row in list(enumerate(rows))[::reverse][::-1]}
        assert stored == published


@given(TABLE)
def test_kept_rows_are_one_of_each_identity(rows: list[tuple[int, ...]]):
    identity = key_ids(_columns(rows), len(rows))
    first = kept_rows(identity, Winner.FIRST)
    last = kept_rows(identity, Winner.LAST)
    assert [rows[i] for i in first] == first_come(rows)
    assert [rows[i] for i in last][::-1] == first_come(rows[::-1])


def test_key_ids_hold_beyond_64_bits():
    columns = [np.arange(2**12) for _ in range(7)]
    assert len(np.unique(key_ids(columns, 2**12))) == 2**12


def test_key_without_columns_is_one_key():
    assert key_ids([], 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("ids", "place"), [([5, 5, 2, 9, 2], [0, 0, 1, 2, 1]), ([], [])])
def test_first_met_counts_distinct_values(ids: list[int], place: list[int]):
    assert first_met(np.array(ids, np.int64)).tolist() == place
