# SPDX-License-Identifier: Apache-2.0
"""What a sweep keeps does not depend on the order or the grouping of its parts, and survives as bytes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aicjax.sweeps.kept import COUNTS, Kept, Points
from tests.oracles import serving as oracle

PARTS = 5
TOP = 3
SMALL = st.integers(0, 4).map(float)
POINT = st.tuples(SMALL, SMALL)  # TPOT and value, few of each: most tie
PART = st.lists(POINT, max_size=6)
Parts = list[list[tuple[float, float]]]


def parts_of(drawn: Parts) -> list[Kept]:
    """Parts with the points given, numbered through, of two groups by turns."""
    parts, number = [], 0
    for place, points in enumerate(drawn):
        kept, key = Kept(TOP), (place % 2, 0)
        numbers = np.arange(number, number + len(points))
        number += len(points)
        tpot_ms, value = (np.array([point[axis] for point in points], float) for axis in range(2))
        found = Points(numbers, value, tpot_ms + 1, tpot_ms, tpot_ms + 2, value)
        kept.count(key, np.arange(len(COUNTS)) + place)
        kept.tally(key, np.array([place, len(points)]))
        if points:
            kept.offer((*key, 0), found)
            kept.offer_front(key, found)
        parts.append(kept)
    return parts


def merged(parts: list[Kept]) -> Kept:
    whole = Kept(TOP)
    for part in parts:
        whole.merge(part)
    return whole


def same(one: Kept, other: Kept) -> None:
    assert one.top_k == other.top_k
    for name in ("counts", "histograms", "tops", "fronts"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert ours.keys() == theirs.keys()
        for key in ours:
            np.testing.assert_array_equal(ours[key], theirs[key])


DRAWN = st.lists(PART, min_size=PARTS, max_size=PARTS)


@given(DRAWN, st.permutations(range(PARTS)), st.integers(0, PARTS))
def test_any_order_and_grouping_keep_the_same(drawn, order, cut):
    parts = parts_of(drawn)
    whole = merged(parts)
    shuffled = [parts[place] for place in order]
    same(merged(shuffled), whole)
    same(merged([merged(shuffled[:cut]), merged(shuffled[cut:])]), whole)


@given(DRAWN)
def test_what_is_kept_is_the_best_and_the_front_of_all(drawn):
    whole = merged(parts_of(drawn))
    for group in range(2):
        numbered, number = [], 0
        for place, points in enumerate(drawn):
            numbered += [(number + at, *point) for at, point in enumerate(points) if place % 2 == group]
            number += len(points)
        if not numbered:
            assert (group, 0) not in whole.fronts
            continue
        best = sorted(numbered, key=lambda point: (-point[2], point[0]))[:TOP]
        assert whole.tops[group, 0, 0].number.tolist() == [point[0] for point in best]
        front = oracle.front([(-tpot, value) for _, tpot, value in numbered])
        assert sorted(whole.fronts[group, 0].number.tolist()) == sorted(numbered[at][0] for at in front)


@given(DRAWN)
def test_bytes_give_back_what_was_kept(drawn):
    whole = merged(parts_of(drawn))
    again = Kept.unpack(whole.pack())
    same(again, whole)
    again.merge(whole)  # and it can go on
    assert all((again.counts[key] == 2 * whole.counts[key]).all() for key in whole.counts)


def test_of_equals_the_lower_number_wins():
    def points(*numbers: int) -> Points:
        some = np.ones(len(numbers))
        return Points(np.array(numbers), some, some, some, some, some)

    kept = Kept(2)
    for part in (points(7, 5), points(3), points(9)):
        kept.offer((0, 0, 0), part)
        kept.offer_front((0, 0), part)
    assert kept.tops[0, 0, 0].number.tolist() == [3, 5]
    assert kept.fronts[0, 0].number.tolist() == [3]


def test_a_full_list_sets_a_threshold():
    kept = Kept(2)
    assert kept.threshold((0, 0, 0)) == -np.inf
    value = np.array([4.0, 1.0])
    for at in range(2):
        kept.offer((0, 0, 0), Points(*(np.array([x]) for x in (at, value[at], 1.0, 1.0, 1.0, 1.0))))
        assert kept.threshold((0, 0, 0)) == (-np.inf if at == 0 else 1.0)
